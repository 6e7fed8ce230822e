// The sparse product of tessera/sparse/cuda on arrays in the device's memory, as a C function for
// benchmarks/run_sparse_gpu.py. It returns before the product is done: 0, or 1 after it has printed
// an error.
#include <cstdint>
#include <cstdio>
#include <limits>

#include "tessera/sparse/cuda/spmm_kernel.h"

extern "C" int tessera_spmm_on_device(int64_t rows, int64_t columns, int64_t edges,
                                      const int64_t* offsets, const int32_t* indices,
                                      const float* values, int sampler, int64_t width,
                                      uint64_t seed, const float* x, int64_t features, float* y) {
  using namespace tessera::sparse;
  const char* const message =
      cuda::launch({.rows = rows,
                    .column_count = columns,
                    .edges = edges,
                    .first_row = 0,
                    .begin = offsets,
                    .end = offsets + 1,
                    .columns = indices,
                    .values = values,
                    .sampler = static_cast<Sampler>(sampler),
                    .width = sampler == 0 ? std::numeric_limits<int32_t>::max() : width,
                    .seed = seed,
                    .mean = false,
                    .rescale = false,
                    .norm_bias = 0,
                    .features = features,
                    .x = x,
                    .y = y});
  if (message == nullptr) return 0;
  std::fprintf(stderr, "a sparse product on the CUDA device failed: %s\n", message);
  return 1;
}
