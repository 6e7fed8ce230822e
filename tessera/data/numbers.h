// Numbers as they are stored in files: little-endian, without gaps, and not aligned. The elements
// of NumPy arrays, raw token files and Megatron's indexed files are stored in this way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

enum class Number : uint8_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat32,
  kFloat64,
};

int64_t number_bytes(Number number);
bool is_integer(Number number);
bool is_signed(Number number);
std::string_view number_name(Number number);  // "uint16"
// Returns the largest value of an integer type, but for uint64 the largest int64.
int64_t largest(Number number);

template <class T>
T read_number(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls f with a value of the C++ type that `number` names, and returns the result. f is meant to
// use only the type of the value, which is 0.
template <class F>
decltype(auto) with_number(Number number, F&& f) {
  switch (number) {
    case Number::kUint8: return f(uint8_t{});
    case Number::kInt8: return f(int8_t{});
    case Number::kUint16: return f(uint16_t{});
    case Number::kInt16: return f(int16_t{});
    case Number::kUint32: return f(uint32_t{});
    case Number::kInt32: return f(int32_t{});
    case Number::kUint64: return f(uint64_t{});
    case Number::kInt64: return f(int64_t{});
    case Number::kFloat32: return f(float{});
    case Number::kFloat64: return f(double{});
  }
  return f(uint8_t{});
}

// The head of a NumPy file (format 1 to 3).
struct NpyHeader {
  Number number = Number::kUint8;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes before the first element
  int64_t volume() const;
};
// Reads the head of a NumPy file of `size` bytes, and checks that the file is large enough for all
// elements of the shape. Errors are one line without the file's name.
Result<NpyHeader> read_npy_header(const std::byte* bytes, int64_t size);

}  // namespace tessera
