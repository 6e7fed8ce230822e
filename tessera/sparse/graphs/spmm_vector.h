// The loops of spmm_rows.h with vector registers. The including file defines `Lanes`, which
// describes the registers of an instruction set, for float and for double:
//   Value, Vector, kLanes    the element's type, the register's type, and its number of elements
//   load(p), store(p, v)     a whole register; p need not be aligned
//   load_first(p, n)         a register of the n elements from p on, then zeros
//   store_first(p, v, n)     writes only the first n elements of v
//   all(x), zero()           a register whose elements are all x, or 0
// Registers are added by + and multiplied by *.
//
// The features of a row of y are computed in groups of up to eight registers, called stretches. The
// sums of a stretch stay in the registers over all slots of the row, so each row of x is read once
// for each stretch, and y is written once. The row of x that is needed kAhead slots later is
// prefetched into the cache. The hardware would not prefetch it, because its address comes from
// `columns`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tessera/sparse/graphs/spmm_rows.h"

namespace tessera::sparse::vector_loops {

inline constexpr int64_t kAhead = 16;      // how many slots ahead rows are prefetched
inline constexpr int64_t kLineBytes = 64;  // bytes of a cache line

template <class Lanes>
struct Loops {
  using T = typename Lanes::Value;
  using V = typename Lanes::Vector;
  static constexpr int64_t kLanes = Lanes::kLanes;
  static constexpr int kRegisters = 8;

  static void fetch(const T* row, int64_t count) {
    const char* begin = reinterpret_cast<const char*>(row);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    for (int64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(begin + at);
    __builtin_prefetch(begin + bytes - 1);  // the row's last line, as it may begin inside a line
  }

  // Computes the features of one stretch, [0, N * kLanes + rest), for all rows. rest < kLanes; it
  // is 0 unless Rest. `block` is passed by value, so that the compiler knows that no store changes
  // it.
  template <int N, bool Rest, bool Valued>
  static void gather_stretch(const RowBlock<T> block, const T* x, int64_t x_stride, T* y,
                             int64_t y_stride, int64_t rest) {
    const int64_t count = N * kLanes + rest;
    for (int64_t r = 0; r < block.rows; ++r) {
      V sums[N + 1];
      for (int j = 0; j <= N; ++j) sums[j] = Lanes::zero();
      for (int64_t slot = block.begin[r]; slot < block.end[r]; ++slot) {
        if (slot + kAhead < block.slots) {
          fetch(x + block.columns[slot + kAhead] * x_stride, count);
        }
        const T* in = x + block.columns[slot] * x_stride;
        if constexpr (Valued) {
          const V v = Lanes::all(block.values[slot]);
          for (int j = 0; j < N; ++j) sums[j] = sums[j] + v * Lanes::load(in + j * kLanes);
          if constexpr (Rest) sums[N] = sums[N] + v * Lanes::load_first(in + N * kLanes, rest);
        } else {
          for (int j = 0; j < N; ++j) sums[j] = sums[j] + Lanes::load(in + j * kLanes);
          if constexpr (Rest) sums[N] = sums[N] + Lanes::load_first(in + N * kLanes, rest);
        }
      }
      T* out = y + r * y_stride;
      const V factor = Lanes::all(block.scale == nullptr ? T(1) : block.scale[r]);
      for (int j = 0; j < N; ++j) Lanes::store(out + j * kLanes, sums[j] * factor);
      if constexpr (Rest) Lanes::store_first(out + N * kLanes, sums[N] * factor, rest);
    }
  }

  template <int N, bool Rest>
  static void scatter_stretch(const RowBlock<T> block, const T* dy, int64_t dy_stride, T* dx,
                              int64_t dx_stride, int64_t rest) {
    const int64_t count = N * kLanes + rest;
    for (int64_t r = 0; r < block.rows; ++r) {
      const T* in = dy + r * dy_stride;
      V given[N + 1];
      for (int j = 0; j < N; ++j) given[j] = Lanes::load(in + j * kLanes);
      if constexpr (Rest) given[N] = Lanes::load_first(in + N * kLanes, rest);
      const T factor = block.scale == nullptr ? T(1) : block.scale[r];
      for (int64_t slot = block.begin[r]; slot < block.end[r]; ++slot) {
        if (slot + kAhead < block.slots) {
          fetch(dx + block.columns[slot + kAhead] * dx_stride, count);
        }
        T* out = dx + block.columns[slot] * dx_stride;
        const V v = Lanes::all(block.values == nullptr ? factor : factor * block.values[slot]);
        for (int j = 0; j < N; ++j) {
          Lanes::store(out + j * kLanes, Lanes::load(out + j * kLanes) + v * given[j]);
        }
        if constexpr (Rest) {
          T* last = out + N * kLanes;
          Lanes::store_first(last, Lanes::load_first(last, rest) + v * given[N], rest);
        }
      }
    }
  }

  // Calls f.template operator()<N, Rest>(first feature, rest) for each stretch of the features.
  template <class F>
  static void stretches(int64_t features, const F& f) {
    int64_t first = 0;
    for (; features - first >= kRegisters * kLanes; first += kRegisters * kLanes) {
      f.template operator()<kRegisters, false>(first, 0);
    }
    if (first == features) return;
    const int64_t whole = (features - first) / kLanes;
    const int64_t rest = (features - first) % kLanes;
    [&]<int... N>(std::integer_sequence<int, N...>) {
      (void)((whole == N && (rest == 0 ? f.template operator()<N, false>(first, rest)
                                       : f.template operator()<N, true>(first, rest),
                             true)) ||
             ...);
    }
    (std::make_integer_sequence<int, kRegisters>());
  }

  static void gather(const RowBlock<T>& block, const T* x, int64_t x_stride, T* y, int64_t y_stride,
                     int64_t features) {
    stretches(features, [&]<int N, bool Rest>(int64_t first, int64_t rest) {
      if (block.values != nullptr) {
        gather_stretch<N, Rest, true>(block, x + first, x_stride, y + first, y_stride, rest);
      } else {
        gather_stretch<N, Rest, false>(block, x + first, x_stride, y + first, y_stride, rest);
      }
    });
  }

  static void scatter(const RowBlock<T>& block, const T* dy, int64_t dy_stride, T* dx,
                      int64_t dx_stride, int64_t features) {
    stretches(features, [&]<int N, bool Rest>(int64_t first, int64_t rest) {
      scatter_stretch<N, Rest>(block, dy + first, dy_stride, dx + first, dx_stride, rest);
    });
  }

  static void dots(const RowBlock<T>& block, const T* dy, int64_t dy_stride, const T* x,
                   int64_t x_stride, T* dvalues, int64_t features) {
    constexpr int kVectors = kPartialSums / static_cast<int>(kLanes);
    for (int64_t r = 0; r < block.rows; ++r) {
      const T* a = dy + r * dy_stride;
      const T factor = block.scale == nullptr ? T(1) : block.scale[r];
      for (int64_t slot = block.begin[r]; slot < block.end[r]; ++slot) {
        if (slot + kAhead < block.slots) {
          fetch(x + block.columns[slot + kAhead] * x_stride, features);
        }
        const T* b = x + block.columns[slot] * x_stride;
        V sums[kVectors];
        for (int k = 0; k < kVectors; ++k) sums[k] = Lanes::zero();
        int64_t j = 0;
        for (; j + kPartialSums <= features; j += kPartialSums) {
          for (int k = 0; k < kVectors; ++k) {
            sums[k] = sums[k] + Lanes::load(a + j + k * kLanes) * Lanes::load(b + j + k * kLanes);
          }
        }
        for (int k = 0; k < kVectors && j < features; ++k, j += kLanes) {
          const int64_t n = std::min(kLanes, features - j);
          sums[k] = sums[k] + Lanes::load_first(a + j, n) * Lanes::load_first(b + j, n);
        }
        T partial[kPartialSums];
        for (int k = 0; k < kVectors; ++k) Lanes::store(partial + k * kLanes, sums[k]);
        const int64_t edge = block.edges == nullptr ? slot : block.edges[slot];
        dvalues[edge] += factor * add_partial_sums(partial);
      }
    }
  }

  static constexpr RowLoops<T> kTable = {gather, scatter, dots};
};

}  // namespace tessera::sparse::vector_loops
