// The inner loops of spmm.h, for a block of rows whose edges have been chosen. They are compiled
// once for each instruction set (spmm_plain.cc, spmm_avx2.cc, spmm_avx512.cc), and spmm.cc chooses
// one of these variants at run time. All variants add in the same order, and the build turns off
// the fusing of multiplications with additions in these files, so the results are equal bit for
// bit.
#pragma once

#include <cstdint>

namespace tessera::sparse {

// A block of rows. Row r has the slots begin[r] .. end[r] - 1 of `columns` and `values` (null: all
// values are 1); its factor is scale[r] (null: 1). `edges[slot]` is the number of the slot's edge
// in the graph (null: the number of the slot itself). The loops may read `columns` up to index
// `slots` to prefetch rows of x; with `slots` 0 nothing is prefetched.
template <class T>
struct RowBlock {
  int64_t rows = 0, slots = 0;
  const int64_t* begin = nullptr;
  const int64_t* end = nullptr;
  const int32_t* columns = nullptr;
  const T* values = nullptr;
  const T* scale = nullptr;
  const int64_t* edges = nullptr;
};

template <class T>
struct RowLoops {
  // y[r, 0 .. features) = scale * sum of value * x[column, ...)
  void (*gather)(const RowBlock<T>& block, const T* x, int64_t x_stride, T* y, int64_t y_stride,
                 int64_t features);
  // dx[column, 0 .. features) += (scale * value) * dy[r, ...)
  void (*scatter)(const RowBlock<T>& block, const T* dy, int64_t dy_stride, T* dx,
                  int64_t dx_stride, int64_t features);
  // dvalues[edge] += scale * <dy[r, ...), x[column, ...)>. The product of element j goes to partial
  // sum j mod 16. Then the upper half of the 16 sums is added to the lower half, and so on: ((0 +
  // 8) + (4 + 12)) + ...
  void (*dots)(const RowBlock<T>& block, const T* dy, int64_t dy_stride, const T* x,
               int64_t x_stride, T* dvalues, int64_t features);
};

inline constexpr int kPartialSums = 16;

// Adds up the partial sums. Each source that includes this file has its own copy (static), because
// each is compiled for other processors.
template <class T>
static inline T add_partial_sums(T* sums) {
  for (int half = kPartialSums / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

struct LoopTable {
  RowLoops<float> f32;
  RowLoops<double> f64;
};
const LoopTable& plain_loops();
const LoopTable* avx2_loops();    // null where it is not built in
const LoopTable* avx512_loops();  // null where it is not built in

}  // namespace tessera::sparse
