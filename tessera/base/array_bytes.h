// Computes the size in bytes of an array whose dtype and shape are read from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// Returns the bytes of an array. Returns no value if a size is negative or if the product of the
// sizes that are not 0 and the element's bytes does not fit an int64.
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
