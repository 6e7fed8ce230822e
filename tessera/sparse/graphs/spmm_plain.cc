// The plain loops, as short as the formulas of spmm.h. Tests compare the other variants with them.
#include "tessera/sparse/graphs/spmm_rows.h"

namespace tessera::sparse {
namespace {

template <class T>
struct Plain {
  static T factor(const RowBlock<T>& block, int64_t row) {
    return block.scale == nullptr ? T(1) : block.scale[row];
  }
  static T value(const RowBlock<T>& block, int64_t slot) {
    return block.values == nullptr ? T(1) : block.values[slot];
  }

  static void gather(const RowBlock<T>& block, const T* x, int64_t x_stride, T* y, int64_t y_stride,
                     int64_t features) {
    for (int64_t r = 0; r < block.rows; ++r) {
      T* out = y + r * y_stride;
      for (int64_t j = 0; j < features; ++j) out[j] = 0;
      for (int64_t slot = block.begin[r]; slot < block.end[r]; ++slot) {
        const T* in = x + block.columns[slot] * x_stride;
        const T v = value(block, slot);
        for (int64_t j = 0; j < features; ++j) out[j] += v * in[j];
      }
      for (int64_t j = 0; j < features; ++j) out[j] *= factor(block, r);
    }
  }

  static void scatter(const RowBlock<T>& block, const T* dy, int64_t dy_stride, T* dx,
                      int64_t dx_stride, int64_t features) {
    for (int64_t r = 0; r < block.rows; ++r) {
      const T* in = dy + r * dy_stride;
      for (int64_t slot = block.begin[r]; slot < block.end[r]; ++slot) {
        T* out = dx + block.columns[slot] * dx_stride;
        const T v = factor(block, r) * value(block, slot);
        for (int64_t j = 0; j < features; ++j) out[j] += v * in[j];
      }
    }
  }

  static void dots(const RowBlock<T>& block, const T* dy, int64_t dy_stride, const T* x,
                   int64_t x_stride, T* dvalues, int64_t features) {
    for (int64_t r = 0; r < block.rows; ++r) {
      const T* a = dy + r * dy_stride;
      for (int64_t slot = block.begin[r]; slot < block.end[r]; ++slot) {
        const T* b = x + block.columns[slot] * x_stride;
        T sums[kPartialSums] = {};
        for (int64_t j = 0; j < features; ++j) sums[j % kPartialSums] += a[j] * b[j];
        const int64_t edge = block.edges == nullptr ? slot : block.edges[slot];
        dvalues[edge] += factor(block, r) * add_partial_sums(sums);
      }
    }
  }
};

template <class T>
constexpr RowLoops<T> kLoops = {Plain<T>::gather, Plain<T>::scatter, Plain<T>::dots};

}  // namespace

const LoopTable& plain_loops() {
  static constexpr LoopTable kTable = {kLoops<float>, kLoops<double>};
  return kTable;
}

}  // namespace tessera::sparse
