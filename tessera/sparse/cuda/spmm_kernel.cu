// The kernels of a sampled product (docs/strategies/graph-partitions.md, section 9). A group of
// threads of one warp adds up slots of a row. Each thread of the group computes kWidth neighbouring
// columns of the result, so that the threads together read a row of x from neighbouring addresses.
// Each thread looks up one of the next slots, and the threads pass its column and value to one
// another by shuffles.
//
// In `light_rows`, a group computes a whole row. A row of more than kLightSlots slots would keep
// one group busy long after all others are done. Such rows are left to `heavy_rows`, in which a
// block computes 32 columns of a row: its groups take tiles of slots in turns, and their sums are
// added in the order of the groups. Both kernels give the same bits in every run.
#include <cuda_runtime.h>

#include <algorithm>

#include "tessera/sparse/cuda/spmm_kernel.h"

namespace tessera::sparse::cuda {
namespace {

constexpr int kThreads = 128;  // threads of a block of light rows
constexpr int kLightSlots = 512;
constexpr int kHeavyThreads = 512;
constexpr int kHeavyColumns = 32;
constexpr int kSearchedRows = 1024;  // rows among which a block looks for heavy ones

template <int kWidth>
struct alignas(4 * kWidth) Columns {
  float at[kWidth];
};

struct Row {
  int64_t number, first;  // first: its first edge
  uint32_t degree, slots;
};

__device__ Row row_of(const Product& p, int64_t number) {
  Row row{number, p.begin[number], 0, 0};
  row.degree = static_cast<uint32_t>(p.end[number] - row.first);
  row.slots = row.degree < p.width ? row.degree : static_cast<uint32_t>(p.width);
  return row;
}

// Returns the factor by which the sum of the row is multiplied.
__device__ float factor_of(const Product& p, const Row& row) {
  if (p.mean) {
    const float among = static_cast<float>(row.slots) + p.norm_bias;
    return among == 0 ? 0 : 1 / among;
  }
  return p.rescale && row.slots > 0 ? static_cast<float>(row.degree) / static_cast<float>(row.slots)
                                    : 1;
}

// Returns the sums of kWidth columns over the slots of the tiles first, first + step, ...; a tile
// has kGroup slots. `x` points to the first of these columns in row 0 of x. All threads of a group
// must call it together.
template <int kGroup, int kWidth>
__device__ Columns<kWidth> sum_of_tiles(const Product& p, const Row& row, const float* x,
                                        uint32_t first, uint32_t step) {
  const uint32_t lane = threadIdx.x % kGroup;
  const unsigned first_of_group = threadIdx.x % 32 / kGroup * kGroup;
  const unsigned group = (kGroup == 32 ? ~0U : (1U << kGroup % 32) - 1) << first_of_group;
  SlotFormula formula;
  if (row.slots < row.degree) {
    formula = slot_formula(p.sampler, p.seed, p.first_row + row.number, row.degree, row.slots);
  }
  Columns<kWidth> sum = {};
  for (uint32_t start = first * kGroup; start < row.slots; start += step * kGroup) {
    int32_t column = 0;
    float value = 1;
    const uint32_t mine = start + lane;
    if (mine < row.slots) {
      const bool all = row.slots == row.degree;
      const int64_t edge = row.first + (all ? mine : slot_position(formula, row.degree, mine));
      column = p.columns[edge];
      if (p.values != nullptr) value = p.values[edge];
    }
    const auto add = [&](int k) {
      const int64_t place = int64_t{__shfl_sync(group, column, k, kGroup)} * p.features;
      const float factor = __shfl_sync(group, value, k, kGroup);
      const auto taken = *reinterpret_cast<const Columns<kWidth>*>(x + place);
      for (int i = 0; i < kWidth; ++i) sum.at[i] += factor * taken.at[i];
    };
    const uint32_t count = min(row.slots - start, static_cast<uint32_t>(kGroup));
    if (count == kGroup) {  // the loop's length is fixed, so several rows of x are read at a time
#pragma unroll(kGroup < 8 ? kGroup : 8)
      for (int k = 0; k < kGroup; ++k) add(k);
    } else {
#pragma unroll 4
      for (uint32_t k = 0; k < count; ++k) add(static_cast<int>(k));
    }
  }
  return sum;
}

// Computes the light rows, kGroup threads each; kGroup is a power of two up to a warp. A row with
// more columns than they cover is divided over blockIdx.y.
template <int kGroup, int kWidth>
__global__ void __launch_bounds__(kThreads) light_rows(Product p) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / kGroup) + threadIdx.x / kGroup;
  if (number >= p.rows) return;  // the whole group leaves
  const Row row = row_of(p, number);
  if (row.slots > kLightSlots) return;
  const int64_t feature = (int64_t{blockIdx.y} * kGroup + threadIdx.x % kGroup) * kWidth;
  const bool there = feature < p.features;
  Columns<kWidth> sum = sum_of_tiles<kGroup, kWidth>(p, row, p.x + (there ? feature : 0), 0, 1);
  if (!there) return;
  const float factor = factor_of(p, row);
  for (int i = 0; i < kWidth; ++i) sum.at[i] *= factor;
  *reinterpret_cast<Columns<kWidth>*>(p.y + number * p.features + feature) = sum;
}

template <int kWidth>
__global__ void __launch_bounds__(kHeavyThreads) heavy_rows(Product p) {
  constexpr int kGroup = kHeavyColumns / kWidth;
  constexpr int kGroups = kHeavyThreads / kGroup;
  __shared__ int64_t heavy[kSearchedRows];
  __shared__ int count;
  __shared__ float sums[kGroups][kHeavyColumns];

  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < kSearchedRows; i += kHeavyThreads) {
    const int64_t number = int64_t{blockIdx.x} * kSearchedRows + i;
    if (number < p.rows && row_of(p, number).slots > kLightSlots) {
      heavy[atomicAdd(&count, 1)] = number;  // any order will do, because rows are independent
    }
  }
  __syncthreads();
  const int64_t first_column = int64_t{blockIdx.y} * kHeavyColumns;
  const int64_t feature = first_column + threadIdx.x % kGroup * kWidth;
  for (int h = 0; h < count; ++h) {
    const Row row = row_of(p, heavy[h]);
    const Columns<kWidth> sum = sum_of_tiles<kGroup, kWidth>(
        p, row, p.x + (feature < p.features ? feature : 0), threadIdx.x / kGroup, kGroups);
    for (int i = 0; i < kWidth; ++i) {
      sums[threadIdx.x / kGroup][threadIdx.x % kGroup * kWidth + i] = sum.at[i];
    }
    __syncthreads();
    if (threadIdx.x < kHeavyColumns && first_column + threadIdx.x < p.features) {
      float total = 0;
      for (int g = 0; g < kGroups; ++g) total += sums[g][threadIdx.x];
      p.y[row.number * p.features + first_column + threadIdx.x] = total * factor_of(p, row);
    }
    __syncthreads();
  }
}

unsigned pieces(int64_t all, int64_t piece) {
  return static_cast<unsigned>((all + piece - 1) / piece);
}

template <int kGroup, int kWidth>
void start_light(const Product& p) {
  const dim3 grid(pieces(p.rows, kThreads / kGroup), pieces(p.features, kGroup * kWidth));
  light_rows<kGroup, kWidth><<<grid, kThreads>>>(p);
}

// Starts the kernels. A light row gets the smallest group whose threads cover the columns, at most
// a warp.
template <int kWidth>
void start(const Product& p) {
  const unsigned threads = pieces(p.features, kWidth);
  if (threads <= 4) {
    start_light<4, kWidth>(p);
  } else if (threads <= 8) {
    start_light<8, kWidth>(p);
  } else if (threads <= 16) {
    start_light<16, kWidth>(p);
  } else {
    start_light<32, kWidth>(p);
  }
  if (p.width > kLightSlots) {
    const dim3 grid(pieces(p.rows, kSearchedRows), pieces(p.features, kHeavyColumns));
    heavy_rows<kWidth><<<grid, kHeavyThreads>>>(p);
  }
}

// Memory of the device, which is freed when the object goes out of scope.
class Memory {
 public:
  ~Memory() { cudaFree(data_); }
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns a copy of the host's array on the device; null if `from` is null.
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

const char* message_of(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* no_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count == 0 ? "none is present" : nullptr;
}

const char* launch(const Product& on_device) {
  if (on_device.rows == 0 || on_device.features == 0) return nullptr;
  // Threads read the widest groups of columns that the length of the rows and the addresses of both
  // arrays allow.
  const auto aligned = [&](int64_t width) {
    const uintptr_t bytes = static_cast<uintptr_t>(width) * sizeof(float);
    return on_device.features % width == 0 &&
           reinterpret_cast<uintptr_t>(on_device.x) % bytes == 0 &&
           reinterpret_cast<uintptr_t>(on_device.y) % bytes == 0;
  };
  if (aligned(4)) {
    start<4>(on_device);
  } else if (aligned(2)) {
    start<2>(on_device);
  } else {
    start<1>(on_device);
  }
  return message_of(cudaGetLastError());
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
  if (error != cudaSuccess) return message_of(error);
  if (const char* const message = launch(on_device); message != nullptr) return message;
  return message_of(cudaMemcpy(product.y, on_device.y,
                               sizeof(float) * static_cast<size_t>(product.rows * product.features),
                               cudaMemcpyDeviceToHost));
}

}  // namespace tessera::sparse::cuda
