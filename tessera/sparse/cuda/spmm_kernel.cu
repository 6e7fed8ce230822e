// The kernel of ES-SpMM (docs/theory/sampled-products.md, section 3): a block has one line of threads
// (threadIdx.y) a row and one thread (threadIdx.x) a column of the result. The threads of a row choose
// its slots together and put columns and values into shared memory; then each adds up its column over
// them, reading a row of x side by side.
//
// Unlike the artifact: slots are chosen in tiles of kTile, so that shared memory does not grow with the
// width and rows may keep all their edges; and every thread of a block reaches every barrier, also in
// the last block, where rows are missing.
#include <cuda_runtime.h>

#include <algorithm>

#include "tessera/sparse/cuda/spmm_kernel.h"

namespace tessera::sparse::cuda {
namespace {

constexpr int kTile = 128;     // slots of a row in shared memory
constexpr int kMostRows = 16;  // of a block: kTile * kMostRows * 8 bytes are 16 KiB

__global__ void sampled_product(Product p) {
  __shared__ int32_t columns[kMostRows * kTile];
  __shared__ float values[kMostRows * kTile];
  __shared__ uint32_t most_slots;

  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t feature = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const bool there = row < p.rows;
  const int64_t first = there ? p.begin[row] : 0;
  const uint32_t degree = there ? static_cast<uint32_t>(p.end[row] - first) : 0;
  const uint32_t slots = degree < p.width ? degree : static_cast<uint32_t>(p.width);
  SlotFormula formula;
  if (degree > 0) formula = slot_formula(p.sampler, p.seed, p.first_row + row, degree, slots);

  if (threadIdx.x == 0 && threadIdx.y == 0) most_slots = 0;
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(&most_slots, slots);
  __syncthreads();

  int32_t* const my_columns = columns + threadIdx.y * kTile;
  float* const my_values = values + threadIdx.y * kTile;
  const uint32_t end = most_slots;  // the same in all threads: they go through the same barriers
  float sum = 0;
  for (uint32_t tile = 0; tile < end; tile += kTile) {
    const uint32_t count = slots > tile ? min(slots - tile, static_cast<uint32_t>(kTile)) : 0;
    for (uint32_t k = threadIdx.x; k < count; k += blockDim.x) {
      const int64_t edge = first + slot_position(formula, degree, tile + k);
      my_columns[k] = p.columns[edge];
      if (p.values != nullptr) my_values[k] = p.values[edge];
    }
    __syncthreads();
    if (feature < p.features) {
      for (uint32_t k = 0; k < count; ++k) {
        const float x = p.x[int64_t{my_columns[k]} * p.features + feature];
        sum += p.values != nullptr ? my_values[k] * x : x;
      }
    }
    __syncthreads();
  }
  if (!there || feature >= p.features) return;
  float factor = 1;
  if (p.mean) {
    const float among = static_cast<float>(slots) + p.norm_bias;
    factor = among == 0 ? 0 : 1 / among;
  } else if (p.rescale && slots > 0) {
    factor = static_cast<float>(degree) / static_cast<float>(slots);
  }
  p.y[row * p.features + feature] = sum * factor;
}

// The shape of a block, as in the artifact: at least 32 columns, at most 512 threads.
dim3 block_shape(int64_t features) {
  if (features <= 32) return dim3(32, 4);
  if (features > 128) return dim3(128, 4);
  const unsigned columns = static_cast<unsigned>((features + 31) / 32 * 32);
  return dim3(columns, std::min(512 / columns, static_cast<unsigned>(kMostRows)));
}

// Memory of the device; freed at the end of its scope.
class Memory {
 public:
  ~Memory() { cudaFree(data_); }
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // A copy of the host's array; null stays null.
  template <class T>
  const T* copy(const T* from, int64_t count, cudaError_t& error) {
    if (from == nullptr) return nullptr;
    T* const to = allocate<T>(count, error);
    if (error == cudaSuccess) {
      error = cudaMemcpy(to, from, sizeof(T) * static_cast<size_t>(count), cudaMemcpyHostToDevice);
    }
    return to;
  }
  template <class T>
  T* allocate(int64_t count, cudaError_t& error) {
    if (error == cudaSuccess) {
      error = cudaMalloc(&data_, sizeof(T) * static_cast<size_t>(std::max<int64_t>(count, 1)));
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace

const char* no_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count == 0 ? "none is present" : nullptr;
}

const char* run(const Product& product) {
  if (product.rows == 0 || product.features == 0) return nullptr;
  cudaError_t error = cudaSuccess;
  Memory begin, end, columns, values, x, y;
  Product on_device = product;
  on_device.begin = begin.copy(product.begin, product.rows, error);
  on_device.end = end.copy(product.end, product.rows, error);
  on_device.columns = columns.copy(product.columns, product.edges, error);
  on_device.values = values.copy(product.values, product.edges, error);
  on_device.x = x.copy(product.x, product.column_count * product.features, error);
  on_device.y = y.allocate<float>(product.rows * product.features, error);
  if (error == cudaSuccess) {
    const dim3 block = block_shape(product.features);
    const dim3 grid(static_cast<unsigned>((product.rows + block.y - 1) / block.y),
                    static_cast<unsigned>((product.features + block.x - 1) / block.x));
    sampled_product<<<grid, block>>>(on_device);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpy(product.y, on_device.y,
                       sizeof(float) * static_cast<size_t>(product.rows * product.features),
                       cudaMemcpyDeviceToHost);
  }
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace tessera::sparse::cuda
