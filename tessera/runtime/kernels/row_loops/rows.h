// Loops over one contiguous row of float or double, for kernels of kinds for which libtorch has no
// out-variant. The loops are compiled three times, for the baseline, AVX2 and AVX-512 instruction
// sets (rows_*.cc, with flags in CMakeLists.txt). At the first use the processor's features decide
// which of the three is used. Sums are computed in vector lanes, so their last bits depend on the
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

// The constants of one AdamW update; docs/reference/ops.md has the formula. The gradient g is first
// multiplied by `coefficient`.
template <class A>
struct AdamW {
  A coefficient, beta1, beta2, one_minus_beta1, one_minus_beta2, decay, step_size, second_scale,
      eps;
};

template <class A>
struct RowOps {
  void (*add)(A* y, const A* x, int64_t n);                     // y += x
  void (*multiply_add)(A* y, const A* x, A factor, int64_t n);  // y += factor x
  // Sets y to the sum of factor x over `count` rows x of the table; with `add`, adds this sum
  // to y. Row i begins at table + offsets[i] bytes; the rows are added in this order. `offsets`
  // has `known` elements, at least `count`; those after the first `count` are used only to
  // prefetch rows.
  void (*sum_rows)(A* y, bool add, const std::byte* table, const int64_t* offsets, int64_t count,
                   int64_t known, A factor, int64_t n);
  A (*sum)(const A* x, int64_t n);
  A (*sum_squares)(const A* x, int64_t n);
  A (*max)(const A* x, int64_t n);                         // -inf if n = 0
  void (*moments)(const A* x, int64_t n, A* mean, A* m2);  // m2 = sum of (x - mean)^2, two passes
  // Layer norm of a row. Below, xhat = (x - mean) rstd and g = dy gamma.
  void (*normalize)(A* y, const A* x, const A* gamma, const A* beta, A mean, A rstd, int64_t n);
  void (*scale_by)(A* y, const A* x, const A* gamma, A rstd, int64_t n);  // y = x rstd gamma
  void (*grad_sums)(const A* dy, const A* x, const A* gamma, A mean, A rstd, int64_t n, A* sum_g,
                    A* sum_g_xhat);
  void (*grad_apply)(A* dx, const A* dy, const A* x, const A* gamma, A mean, A rstd, A mean_g,
                     A mean_g_xhat,
                     int64_t n);  // dx = rstd (g - mean_g - xhat mean_g_xhat)
  void (*grad_params)(A* dgamma, A* dbeta, const A* dy, const A* x, A mean, A rstd,
                      int64_t n);  // dgamma += dy xhat, dbeta += dy
  A (*dot)(const A* x, const A* y, int64_t n);
  // Sums and rows of exponentials.
  A (*sum_exp)(const A* x, A shift, int64_t n);                         // sum exp(x - shift)
  void (*exp_shifted)(A* y, const A* x, A shift, A factor, int64_t n);  // factor exp(x - shift)
  // Computes y1 = x1 c - sign x2 s and y2 = x2 c + sign x1 s.
  void (*rotate)(A* y1, A* y2, const A* x1, const A* x2, const A* c, const A* s, A sign, int64_t n);
  // Computes y[i] = bits[i] >> 8 >= threshold ? x[i] factor : 0.
  void (*keep)(A* y, const A* x, const uint32_t* bits, uint32_t threshold, A factor, int64_t n);
  // Optimizer steps. An output may have the memory of an input.
  void (*adamw)(A* p_out, A* m_out, A* v_out, const A* p, const A* g, const A* m, const A* v,
                const AdamW<A>& c, int64_t n);
  void (*sgd)(A* p_out, A* b_out, const A* p, const A* g, const A* b, A coefficient, A decay,
              A momentum, A rate, int64_t n);
  void (*adagrad)(A* p_out, A* sum_out, const A* p, const A* g, const A* sum, A coefficient, A rate,
                  A eps, int64_t n);
  void (*gelu)(A* y, const A* x, int64_t n);  // tanh form
  void (*gelu_grad)(A* dx, const A* dy, const A* x, int64_t n);
  void (*silu)(A* y, const A* x, int64_t n);
  void (*silu_grad)(A* dx, const A* dy, const A* x, int64_t n);
  // Attention. The first two functions replace scores x by weights: softmax_scaled by softmax(scale
  // x), and it returns log(sum(exp(scale x))); exp_scaled by exp(scale x - shift).
  A (*softmax_scaled)(A* x, A scale, int64_t n);
  void (*exp_scaled)(A* x, A scale, A shift, int64_t n);
  void (*score_grad)(A* dp, const A* p, A dot, A scale,
                     int64_t n);  // dp becomes p (dp - dot) scale
  // Functions for batch norm, where several rows share their statistics. An output may have the
  // memory of an input.
  A (*sum_squares_from)(const A* x, A center, int64_t n);  // sum (x - center)^2
  void (*center_scale)(A* y, const A* x, A center, A scale, A shift,
                       int64_t n);  // (x - center) scale + shift
  void (*sums_centered)(const A* dy, const A* x, A center, int64_t n, A* sum,
                        A* sum_centered);  // sum dy, sum dy (x - center)
  void (*grad_centered)(A* dx, const A* dy, const A* x, A center, A scale, A level, A slope,
                        int64_t n);  // scale (dy - level - (x - center) slope)
  // The largest elements of several rows. A NaN counts as larger than all numbers; among equal
  // elements the first one stays.
  void (*larger)(A* y, const A* x, int64_t n);  // y = max(y, x)
  // Computes y as `larger` does, and sets which[i] = row where x[i] replaces y[i].
  void (*larger_of)(A* y, int32_t* which, const A* x, int32_t row, int64_t n);
};

template <class A>
const RowOps<A>& row_ops();
template <>
const RowOps<float>& row_ops<float>();
template <>
const RowOps<double>& row_ops<double>();

// Writes the words of the Philox blocks [first, first + count), four words a block; the same words
// as by base/philox.h.
void philox_words(uint32_t* words, uint64_t seed, uint64_t stream, uint64_t first, int64_t count);

struct RowTable {
  RowOps<float> f32;
  RowOps<double> f64;
  void (*philox)(uint32_t* words, uint64_t seed, uint64_t stream, uint64_t first, int64_t count);
};
const RowTable& baseline_row_table();
const RowTable& avx2_row_table();
const RowTable& avx512_row_table();

}  // namespace tessera::kernels
