// Arrays that files hold in 4 bits (MXFP4 of the Open Compute Project's microscaling formats, as
// gpt-oss is published): a pair of arrays of bytes, of which one has two numbers in each byte and the
// other a power of two for each 32 numbers. A source of such files shows them unpacked.
//
//   X_blocks [experts, rows, columns / 32, 16]    numbers 2 i (low half) and 2 i + 1 of byte i
//   X_scales [experts, rows, columns / 32]        the exponent plus 127
//   X        [experts, columns, rows], bfloat16   what is shown: transposed, exact in bfloat16
#pragma once

#include <memory>

#include "tessera/base/result.h"
#include "tessera/state/source.h"

namespace tessera {

struct UnpackedFiles {
  std::unique_ptr<TensorSource> files;
  bool packed = false;  // whether any array was packed
};

// Returns the files with each pair X_blocks, X_scales of bytes as the array X, or the files as they
// are if they have none. Unpacking holds one expert of one array at a time. Returns an error if the
// shapes of a pair do not fit.
Result<UnpackedFiles> unpacked(std::unique_ptr<TensorSource> files);

}  // namespace tessera
