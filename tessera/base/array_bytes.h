// Sizes of arrays that files state.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// Bytes of an array. No value: a size is negative, or the bytes are more than an int64 counts, also
// where another size is 0.
inline std::optional<int64_t> array_bytes(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = dtype_bytes(dtype);
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace tessera
