// Decides which rank writes which elements of a checkpoint. Every rank knows what all ranks hold,
// and each element is written by exactly one of the ranks that hold it. The answer depends only on
// what the ranks hold, so all ranks compute the same answer without talking.
//
//   A rank holds boxes of tensors: whole tensors, shards, or copies of what other ranks hold. Boxes
//   of different ranks may be cut differently (uneven cuts, stages on other meshes) and overlap in
//   part.
//   1. The boxes of a tensor are cut along each other's borders. All elements of a resulting piece
//      are held by the same ranks.
//   2. A large piece with several holders is cut evenly among them.
//   3. Each piece is given to the one of its holders that has the least to write so far. Pieces
//      with one holder come first, then the others, in both groups the largest first.
//
// The resulting pieces are disjoint and together cover all that any rank holds. Each piece lies
// inside one box that its writer holds. If every rank holds every piece, no rank writes more than
// the average plus one piece.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/box.h"

namespace tessera {

struct HeldBox {
  size_t tensor = 0;
  Box box;
  friend bool operator==(const HeldBox&, const HeldBox&) = default;
};

// A piece is cut in step 2 only if it has at least twice these bytes.
inline constexpr int64_t kShareBytes = 1 << 20;

// Divides the boxes among the ranks. `element_bytes` is by tensor; `held` and the answer are by
// rank. The answer is sorted by tensor and by position in the tensor, and is equal on every
// machine.
std::vector<std::vector<HeldBox>> share_out(const std::vector<int64_t>& element_bytes,
                                            const std::vector<std::vector<HeldBox>>& held,
                                            int64_t share_bytes = kShareBytes);

}  // namespace tessera
