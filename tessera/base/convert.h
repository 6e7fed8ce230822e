// Converts arrays between element types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.h"

namespace tessera {

// Writes `count` elements of type `from` as elements of type `to`. A conversion to a narrower
// floating type rounds to nearest, ties to even. A conversion of a floating value to an integer
// truncates. `in` and `out` do not overlap and need not be aligned. All pairs of types are
// supported; between equal types the bits are copied.
void convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count);

// Returns whether every value of type `from` is also a value of type `to`, so that a conversion to
// `to` and back changes nothing.
bool keeps_values(DType from, DType to);

}  // namespace tessera
