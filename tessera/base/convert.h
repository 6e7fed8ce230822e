// Converts arrays between element types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.h"

namespace tessera {

// Writes `count` elements of type `from` as elements of type `to`. A narrower floating type rounds
// to nearest, ties to even; a floating value becomes an integer by truncation. `in` and `out` do
// not overlap and need not be aligned. Every pair of types is possible; equal types are copied bit
// by bit.
void convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t count);

// Returns whether each value of `from` exists in `to`, so that converting there and back changes
// nothing.
bool keeps_values(DType from, DType to);

}  // namespace tessera
