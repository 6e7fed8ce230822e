#include "tessera/base/convert.h"

#include <cstring>
#include <type_traits>

#include "tessera/base/half.h"

namespace tessera {
namespace {

// An element type: `Stored` is the type in memory; load() and store() convert it to and from the
// type in which it is computed.
template <class T>
struct Plain {
  using Stored = T;
  static T load(T value) { return value; }
  template <class V>
  static T store(V value) {
    return static_cast<T>(value);
  }
};
struct BFloat16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return half::from_bfloat16(bits); }
  template <class V>
  static uint16_t store(V value) {
    return half::to_bfloat16(static_cast<float>(value));
  }
};
struct Float16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return half::from_float16(bits); }
  template <class V>
  static uint16_t store(V value) {
    return half::to_float16(static_cast<float>(value));
  }
};
struct Bool {
  using Stored = uint8_t;
  static uint8_t load(uint8_t value) { return value == 0 ? 0 : 1; }
  template <class V>
  static uint8_t store(V value) {
    return value == V{} ? 0 : 1;
  }
};

template <class Do>
void with_type(DType dtype, Do&& work) {
  switch (dtype) {
    case DType::kFloat64: return work(Plain<double>{});
    case DType::kFloat32: return work(Plain<float>{});
    case DType::kBFloat16: return work(BFloat16{});
    case DType::kFloat16: return work(Float16{});
    case DType::kInt64: return work(Plain<int64_t>{});
    case DType::kInt32: return work(Plain<int32_t>{});
    case DType::kUInt8: return work(Plain<uint8_t>{});
    case DType::kBool: return work(Bool{});
  }
}

// The number of binary digits of the integers that a type represents exactly, and for a floating
// type the number of bits of its exponent.
struct Digits {
  int mantissa, exponent;
};
Digits digits_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return {53, 11};
    case DType::kFloat32: return {24, 8};
    case DType::kBFloat16: return {8, 8};
    case DType::kFloat16: return {11, 5};
    case DType::kInt64: return {63, 0};
    case DType::kInt32: return {31, 0};
    case DType::kUInt8: return {8, 0};
    case DType::kBool: return {1, 0};
  }
  return {0, 0};
}

}  // namespace

void convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count) {
  if (from == to) {
    if (count > 0) std::memcpy(out, in, static_cast<size_t>(count * dtype_bytes(from)));
    return;
  }
  with_type(from, [&](auto source) {
    with_type(to, [&](auto target) {
      using In = typename decltype(source)::Stored;
      using Out = typename decltype(target)::Stored;
      for (int64_t i = 0; i < count; ++i) {
        In value;
        std::memcpy(&value, in + i * static_cast<int64_t>(sizeof(In)), sizeof(In));
        const Out result = target.store(source.load(value));
        std::memcpy(out + i * static_cast<int64_t>(sizeof(Out)), &result, sizeof(Out));
      }
    });
  });
}

bool keeps_values(DType from, DType to) {
  if (from == to) return true;
  const Digits a = digits_of(from), b = digits_of(to);
  if (is_floating(from) && !is_floating(to)) return false;
  if (!is_floating(from) && is_floating(to))
    return a.mantissa <= b.mantissa && a.mantissa <= (1 << (b.exponent - 1));
  // Each value of `from`, subnormal ones too, exists in `to` if neither the mantissa nor the
  // exponent of `to` is shorter. A subnormal number of `from` is a normal one in `to` if the
  // exponent of `to` is longer, and else a subnormal one.
  return a.mantissa <= b.mantissa && a.exponent <= b.exponent;
}

}  // namespace tessera
