// Internal to kernels/: loops over the elements of several arrays at once, and access to rows of
// any floating type as rows of float or double.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/base/half.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {

// Loops over the elements of N arrays of the same shape. Adjacent dims are joined into one loop
// where the strides of all arrays allow that. each(f) calls f(pointers) for each element, where
// `pointers` is a std::array<std::byte*, N> with the element's address in each array.
template <size_t N>
class Nest {
 public:
  // Makes loops over the first `rank` dims of each array; all arrays agree on their sizes.
  Nest(const std::array<const Array*, N>& arrays, size_t rank) {
    for (size_t k = 0; k < N; ++k) base_[k] = arrays[k]->data;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t size = arrays[0]->shape[d];
      if (size == 1) continue;
      std::array<int64_t, N> strides{};
      bool joins = !sizes_.empty();
      for (size_t k = 0; k < N; ++k) {
        strides[k] = arrays[k]->strides[d] * dtype_bytes(arrays[k]->dtype);
        joins = joins && strides_.back()[k] == size * strides[k];
      }
      if (joins) {
        sizes_.back() *= size;
        strides_.back() = strides;
      } else {
        sizes_.push_back(size);
        strides_.push_back(strides);
      }
    }
  }

  template <class F>
  void each(F&& f) const {
    walk(0, base_, f);
  }

 private:
  template <class F>
  void walk(size_t d, std::array<std::byte*, N> at, F& f) const {
    if (d == sizes_.size()) {
      f(at);
      return;
    }
    for (int64_t i = 0; i < sizes_[d]; ++i) {
      if (d + 1 == sizes_.size()) {
        f(at);
      } else {
        walk(d + 1, at, f);
      }
      for (size_t k = 0; k < N; ++k) at[k] += strides_[d][k];
    }
  }

  std::array<std::byte*, N> base_{};
  std::vector<int64_t> sizes_;
  std::vector<std::array<int64_t, N>> strides_;
};

inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t float_to_bfloat16(float value) {  // rounds to nearest, ties to even
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Returns the element of type `dtype` at `at`, converted to A.
template <class A>
A load_element(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return static_cast<A>(*reinterpret_cast<const double*>(at));
    case DType::kFloat32: return static_cast<A>(*reinterpret_cast<const float*>(at));
    case DType::kBFloat16:
      return static_cast<A>(bfloat16_to_float(*reinterpret_cast<const uint16_t*>(at)));
    case DType::kFloat16:
      return static_cast<A>(half::from_float16(*reinterpret_cast<const uint16_t*>(at)));
    default: break;
  }
  TESSERA_CHECK(false, "no kernels on {}", dtype_name(dtype));
}
template <class A>
void store_element(std::byte* at, DType dtype, A value) {
  switch (dtype) {
    case DType::kFloat64: *reinterpret_cast<double*>(at) = static_cast<double>(value); return;
    case DType::kFloat32: *reinterpret_cast<float*>(at) = static_cast<float>(value); return;
    case DType::kBFloat16:
      *reinterpret_cast<uint16_t*>(at) = float_to_bfloat16(static_cast<float>(value));
      return;
    case DType::kFloat16:
      *reinterpret_cast<uint16_t*>(at) = half::to_float16(static_cast<float>(value));
      return;
    default: break;
  }
  TESSERA_CHECK(false, "no kernels on {}", dtype_name(dtype));
}

// Stores `value` with stochastic rounding if `dtype` has 16 bits: stores one of the two
// neighbouring numbers, with such probabilities that the mean of the stored numbers is `value`. 24
// of the random bits decide. Values beyond the largest number, NaN, and values of wider types are
// stored by store_element.
template <class A>
void store_stochastic(std::byte* at, DType dtype, A value, uint32_t bits) {
  store_element(at, dtype, value);
  if (dtype_bytes(dtype) != 2) return;
  const A nearest = load_element<A>(at, dtype);
  if (nearest == value || !std::isfinite(nearest)) return;
  // For numbers of either sign, adding 1 to the bits gives the next number of larger size.
  uint16_t& stored = *reinterpret_cast<uint16_t*>(at);
  const uint16_t kept = stored;
  constexpr uint16_t kSign = 0x8000;
  const bool grows = (value > nearest) == (nearest > 0 || (nearest == 0 && value > 0));
  if (nearest == 0) {
    stored = static_cast<uint16_t>(value > 0 ? 1 : kSign | 1);
  } else {
    stored = static_cast<uint16_t>(grows ? kept + 1 : kept - 1);
  }
  const A other = load_element<A>(at, dtype);
  const A farther = (value - nearest) / (other - nearest);  // the probability of `other`, 0 .. 1/2
  constexpr int kUnused = 8;
  if (!std::isfinite(other) || static_cast<A>(bits >> kUnused) * A{0x1p-24} >= farther)
    stored = kept;
}

// Returns the array; if it has no dims, gives it one dim of size 1, so that it has a row.
inline Array rows_of(Array array) {
  if (array.shape.empty()) {
    array.shape = {1};
    array.strides = {1};
  }
  return array;
}

// Gives access to a row of an array as contiguous elements of type A. If the row is contiguous and
// of type A, the access is direct, else through a buffer.
template <class A>
class Row {
 public:
  Row() = default;
  // Makes rows over the last dim of the array.
  explicit Row(const Array& array) : Row(array.dtype, array.shape.back(), array.strides.back()) {}
  Row(DType dtype, int64_t size, int64_t stride)
      : dtype_(dtype), size_(size), step_(stride * dtype_bytes(dtype)) {
    constexpr DType kOwn = sizeof(A) == 8 ? DType::kFloat64 : DType::kFloat32;
    direct_ = dtype == kOwn && (stride == 1 || size <= 1);
    if (!direct_) buffer_ = std::make_shared<std::vector<A>>(static_cast<size_t>(size));
  }
  int64_t size() const { return size_; }

  const A* read(const std::byte* at) const {
    if (direct_) return reinterpret_cast<const A*>(at);
    for (int64_t i = 0; i < size_; ++i)
      (*buffer_)[static_cast<size_t>(i)] = load_element<A>(at + i * step_, dtype_);
    return buffer_->data();
  }
  // Returns the memory into which the caller writes the row's new values; commit(at) then stores
  // them at `at`.
  A* write(std::byte* at) const { return direct_ ? reinterpret_cast<A*>(at) : buffer_->data(); }
  // Stores the row that was written to write(at). `bits` has a random word for each element, for
  // stochastic rounding; null: rounds to nearest.
  void commit(std::byte* at, const uint32_t* bits = nullptr) const {
    if (direct_) return;
    if (bits != nullptr) {
      for (int64_t i = 0; i < size_; ++i)
        store_stochastic(at + i * step_, dtype_, (*buffer_)[static_cast<size_t>(i)], bits[i]);
      return;
    }
    for (int64_t i = 0; i < size_; ++i)
      store_element(at + i * step_, dtype_, (*buffer_)[static_cast<size_t>(i)]);
  }

 private:
  DType dtype_ = DType::kFloat32;
  int64_t size_ = 0, step_ = 0;
  bool direct_ = true;
  std::shared_ptr<std::vector<A>>
      buffer_;  // shared by the copies of a closure, since a rank runs one kernel at a time
};

// Calls f with the type in which kernels of `dtype` compute: f<double>() for float64, f<float>()
// for the narrower floating types. Returns what f returns.
template <class F>
auto with_compute_type(DType dtype, F&& f) {
  if (dtype == DType::kFloat64) return f.template operator()<double>();
  return f.template operator()<float>();
}

}  // namespace tessera::kernels
