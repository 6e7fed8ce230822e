// The loops of rows.h, written so that the compiler vectorises them. Each rows_<isa>.cc includes
// this file once and compiles it for another instruction set. Only builtins and functions of this
// file may be called here. An inline function of a shared header would be compiled for, say,
// AVX-512, and the linker might keep this copy for the whole program, which would then fail on
// processors without AVX-512.
#pragma once

#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

inline double exp_one(double x) { return __builtin_exp(x); }

// Computes exp by Cody-Waite reduction and a degree-6 polynomial; at most 2 ulp over the normal
// range, 0 below it.
inline float exp_one(float x) {
  const float low = -87.33654F, high = 88.72283F,
              magic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  float c = x < low ? low : x;
  c = c > high ? high : c;
  const float t = c * 1.44269504088896341F + magic;
  const float k = t - magic;
  const float r = (c - k * 0.693359375F) + k * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // Computes 2^k as a product of two factors, because a float has no exponent k = 128.
  const int32_t whole = static_cast<int32_t>(k);
  const int32_t half = whole >> 1;
  const float f1 = __builtin_bit_cast(float, (half + 127) << 23);
  const float f2 = __builtin_bit_cast(float, (whole - half + 127) << 23);
  const float value = p * f1 * f2;
  return x < low ? 0.0F : value;
}

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

template <class A>
void add(A* y, const A* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <class A>
void multiply_add(A* y, const A* x, A factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Adds up kVectors vectors of columns over all rows and keeps their sums in registers. sum_rows()
// takes blocks of four vectors, then of one vector, and sums the columns that are left one by one.
template <class A, int kVectors>
void sum_block(A* y, bool add_to, const std::byte* table, const int64_t* offsets, int64_t count,
               A factor) {
  typedef A Vector __attribute__((vector_size(64), aligned(sizeof(A)), may_alias));
  constexpr int64_t kWidth = 64 / sizeof(A);
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v)
    sums[v] = add_to ? *reinterpret_cast<const Vector*>(y + v * kWidth) : Vector{};
  for (int64_t i = 0; i < count; ++i) {
    const A* x = reinterpret_cast<const A*>(table + offsets[i]);
    for (int v = 0; v < kVectors; ++v)
      sums[v] += factor * *reinterpret_cast<const Vector*>(x + v * kWidth);
  }
  for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Vector*>(y + v * kWidth) = sums[v];
}

template <class A>
void sum_rows(A* y, bool add_to, const std::byte* table, const int64_t* offsets, int64_t count,
              int64_t known, A factor, int64_t n) {
  constexpr int64_t kWidth = 64 / sizeof(A), kAhead = 16, kLine = 64;
  for (int64_t i = kAhead; i < count + kAhead && i < known; ++i) {
    const std::byte* row = table + offsets[i];
    for (int64_t at = 0; at < n * static_cast<int64_t>(sizeof(A)); at += kLine)
      __builtin_prefetch(row + at);
  }
  int64_t done = 0;
  for (; done + 4 * kWidth <= n; done += 4 * kWidth) {
    const std::byte* columns = table + done * static_cast<int64_t>(sizeof(A));
    sum_block<A, 4>(y + done, add_to, columns, offsets, count, factor);
  }
  for (; done + kWidth <= n; done += kWidth) {
    const std::byte* columns = table + done * static_cast<int64_t>(sizeof(A));
    sum_block<A, 1>(y + done, add_to, columns, offsets, count, factor);
  }
  for (; done < n; ++done) {
    A s = add_to ? y[done] : A{0};
    for (int64_t i = 0; i < count; ++i)
      s += factor * reinterpret_cast<const A*>(table + offsets[i])[done];
    y[done] = s;
  }
}

template <class A>
A sum(const A* x, int64_t n) {
  A s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += x[i];
  return s;
}

// Sums squares in four independent sums, because in a single sum each addition waits for the
// previous one.
template <class A>
A sum_squares(const A* x, int64_t n) {
  const int64_t part = n / 4;
  const A *x1 = x + part, *x2 = x1 + part, *x3 = x2 + part;
  A s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (int64_t i = 0; i < part; ++i) {
    s0 += x[i] * x[i];
    s1 += x1[i] * x1[i];
    s2 += x2[i] * x2[i];
    s3 += x3[i] * x3[i];
  }
  for (int64_t i = 4 * part; i < n; ++i) s0 += x[i] * x[i];
  return (s0 + s1) + (s2 + s3);
}

template <class A>
A max(const A* x, int64_t n) {
  A m = -__builtin_huge_val();
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

template <class A>
void moments(const A* x, int64_t n, A* mean, A* m2) {
  const A center = n > 0 ? sum(x, n) / static_cast<A>(n) : A{0};
  A s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += (x[i] - center) * (x[i] - center);
  *mean = center;
  *m2 = s;
}

template <class A>
void normalize(A* y, const A* x, const A* gamma, const A* beta, A mean, A rstd, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
}

template <class A>
void scale_by(A* y, const A* x, const A* gamma, A rstd, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * gamma[i];
}

template <class A>
void grad_sums(const A* dy, const A* x, const A* gamma, A mean, A rstd, int64_t n, A* sum_g,
               A* sum_g_xhat) {
  A s0 = 0, s1 = 0;
#pragma omp simd reduction(+ : s0, s1)
  for (int64_t i = 0; i < n; ++i) {
    const A g = dy[i] * gamma[i];
    s0 += g;
    s1 += g * ((x[i] - mean) * rstd);
  }
  *sum_g = s0;
  *sum_g_xhat = s1;
}

template <class A>
void grad_apply(A* dx, const A* dy, const A* x, const A* gamma, A mean, A rstd, A mean_g,
                A mean_g_xhat, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (dy[i] * gamma[i] - mean_g - (x[i] - mean) * rstd * mean_g_xhat);
  }
}

template <class A>
void grad_params(A* dgamma, A* dbeta, const A* dy, const A* x, A mean, A rstd, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
    dbeta[i] += dy[i];
  }
}

template <class A>
A dot(const A* x, const A* y, int64_t n) {
  A s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += x[i] * y[i];
  return s;
}

template <class A>
A sum_exp(const A* x, A shift, int64_t n) {
  A s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += exp_one(x[i] - shift);
  return s;
}

template <class A>
void exp_shifted(A* y, const A* x, A shift, A factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = factor * exp_one(x[i] - shift);
}

inline float logarithm(float x) { return __builtin_logf(x); }
inline double logarithm(double x) { return __builtin_log(x); }
// Turns x into softmax(scale x). Returns log(sum(exp(scale x))).
template <class A>
A softmax_scaled(A* x, A scale, int64_t n) {
  const A highest = max(x, n) * scale;
  A s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) {
    const A e = exp_one(x[i] * scale - highest);
    x[i] = e;
    s += e;
  }
  const A factor = A{1} / s;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
  return highest + logarithm(s);
}

// Turns x into exp(scale x - shift).
template <class A>
void exp_scaled(A* x, A scale, A shift, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = exp_one(x[i] * scale - shift);
}

// Turns dp into p (dp - dot) scale.
template <class A>
void score_grad(A* dp, const A* p, A dot_value, A scale, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dp[i] = p[i] * (dp[i] - dot_value) * scale;
}

template <class A>
void larger(A* y, const A* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] <= y[i] || y[i] != y[i] ? y[i] : x[i];
}

template <class A>
void larger_of(A* y, int32_t* which, const A* x, int32_t row, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const bool keeps = x[i] <= y[i] || y[i] != y[i];
    which[i] = keeps ? which[i] : row;
    y[i] = keeps ? y[i] : x[i];
  }
}

template <class A>
A sum_squares_from(const A* x, A center, int64_t n) {
  A s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += (x[i] - center) * (x[i] - center);
  return s;
}

template <class A>
void center_scale(A* y, const A* x, A center, A scale, A shift, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - center) * scale + shift;
}

template <class A>
void sums_centered(const A* dy, const A* x, A center, int64_t n, A* sum, A* sum_centered) {
  A s0 = 0, s1 = 0;
#pragma omp simd reduction(+ : s0, s1)
  for (int64_t i = 0; i < n; ++i) {
    s0 += dy[i];
    s1 += dy[i] * (x[i] - center);
  }
  *sum = s0;
  *sum_centered = s1;
}

template <class A>
void grad_centered(A* dx, const A* dy, const A* x, A center, A scale, A level, A slope, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = scale * (dy[i] - level - (x[i] - center) * slope);
}

// gelu(x) = x s(u), where s is the logistic function and u = 2 sqrt(2/pi) (x + 0.044715 x^3). This
// is the tanh form of gelu, because (1 + tanh(v)) / 2 = s(2 v).
template <class A>
constexpr A kGeluLinear = A(1.5957691216057307117597842397375);
template <class A>
constexpr A kGeluCubic = A(1.5957691216057307117597842397375 * 0.044715);

template <class A>
void gelu(A* y, const A* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A u = x[i] * (kGeluLinear<A> + kGeluCubic<A> * x[i] * x[i]);
    y[i] = x[i] / (A{1} + exp_one(-u));
  }
}

template <class A>
void gelu_grad(A* dx, const A* dy, const A* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A square = x[i] * x[i];
    const A u = x[i] * (kGeluLinear<A> + kGeluCubic<A> * square);
    const A s = A{1} / (A{1} + exp_one(-u));
    const A slope = kGeluLinear<A> + A{3} * kGeluCubic<A> * square;
    dx[i] = dy[i] * (s + x[i] * s * (A{1} - s) * slope);
  }
}

template <class A>
void silu(A* y, const A* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (A{1} + exp_one(-x[i]));
}

template <class A>
void silu_grad(A* dx, const A* dy, const A* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A s = A{1} / (A{1} + exp_one(-x[i]));
    dx[i] = dy[i] * s * (A{1} + x[i] * (A{1} - s));
  }
}

template <class A>
void rotate(A* y1, A* y2, const A* x1, const A* x2, const A* c, const A* s, A sign, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A a = x1[i], b = x2[i];
    y1[i] = a * c[i] - sign * (b * s[i]);
    y2[i] = b * c[i] + sign * (a * s[i]);
  }
}

template <class A>
void keep(A* y, const A* x, const uint32_t* bits, uint32_t threshold, A factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = (bits[i] >> 8) >= threshold ? x[i] * factor : A{0};
}

template <class A>
void adamw(A* p_out, A* m_out, A* v_out, const A* p, const A* g, const A* m, const A* v,
           const AdamW<A>& constants, int64_t n) {
  const AdamW<A> c = constants;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A gradient = g[i] * c.coefficient;
    const A first = c.beta1 * m[i] + c.one_minus_beta1 * gradient;
    const A second = c.beta2 * v[i] + c.one_minus_beta2 * gradient * gradient;
    p_out[i] = p[i] * c.decay - c.step_size * first / (root(second) * c.second_scale + c.eps);
    m_out[i] = first;
    v_out[i] = second;
  }
}

template <class A>
void sgd(A* p_out, A* b_out, const A* p, const A* g, const A* b, A coefficient, A decay, A momentum,
         A rate, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A gradient = coefficient * g[i] + decay * p[i];
    const A velocity = momentum * b[i] + gradient;
    p_out[i] = p[i] - rate * velocity;
    b_out[i] = velocity;
  }
}

template <class A>
void adagrad(A* p_out, A* sum_out, const A* p, const A* g, const A* sum, A coefficient, A rate,
             A eps, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const A gradient = coefficient * g[i];
    const A total = sum[i] + gradient * gradient;
    p_out[i] = p[i] - rate * (gradient / (root(total) + eps));
    sum_out[i] = total;
  }
}

// Computes kLanes blocks of Philox at a time, stored word by word, so that each round is computed
// for all of them by vector instructions.
inline void philox(uint32_t* words, uint64_t seed, uint64_t stream, uint64_t first, int64_t count) {
  constexpr int kLanes = 16;
  for (int64_t base = 0; base < count; base += kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t block = first + static_cast<uint64_t>(base) + static_cast<uint64_t>(lane);
      c0[lane] = static_cast<uint32_t>(block);
      c1[lane] = static_cast<uint32_t>(block >> 32);
      c2[lane] = static_cast<uint32_t>(stream);
      c3[lane] = static_cast<uint32_t>(stream >> 32);
    }
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t p0 = uint64_t{0xD2511F53} * c0[lane];
        const uint64_t p1 = uint64_t{0xCD9E8D57} * c2[lane];
        c0[lane] = static_cast<uint32_t>(p1 >> 32) ^ c1[lane] ^ k0;
        c2[lane] = static_cast<uint32_t>(p0 >> 32) ^ c3[lane] ^ k1;
        c1[lane] = static_cast<uint32_t>(p1);
        c3[lane] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    const int64_t lanes = count - base < kLanes ? count - base : kLanes;
    uint32_t* out = words + 4 * base;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      out[4 * lane] = c0[lane];
      out[4 * lane + 1] = c1[lane];
      out[4 * lane + 2] = c2[lane];
      out[4 * lane + 3] = c3[lane];
    }
  }
}

template <class A>
constexpr RowOps<A> kRowOps = {
    add<A>,
    multiply_add<A>,
    sum_rows<A>,
    sum<A>,
    sum_squares<A>,
    max<A>,
    moments<A>,
    normalize<A>,
    scale_by<A>,
    grad_sums<A>,
    grad_apply<A>,
    grad_params<A>,
    dot<A>,
    sum_exp<A>,
    exp_shifted<A>,
    rotate<A>,
    keep<A>,
    adamw<A>,
    sgd<A>,
    adagrad<A>,
    gelu<A>,
    gelu_grad<A>,
    silu<A>,
    silu_grad<A>,
    softmax_scaled<A>,
    exp_scaled<A>,
    score_grad<A>,
    sum_squares_from<A>,
    center_scale<A>,
    sums_centered<A>,
    grad_centered<A>,
    larger<A>,
    larger_of<A>,
};
constexpr RowTable kRowTable = {kRowOps<float>, kRowOps<double>, philox};

}  // namespace
}  // namespace tessera::kernels
