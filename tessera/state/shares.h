// Decides which rank writes what: every rank knows what all ranks hold, and each element is written
// by one of its holders. The answer depends only on the holdings, so that all ranks compute the
// same one and need no agreement.
//
//   A rank holds boxes of tensors: whole ones, shards, replicas of either; boxes of different ranks
//   may be cut differently (uneven cuts, stages on other meshes) and overlap in part.
//   1. A tensor's boxes are cut along each other's borders into pieces that have one set of holders.
//   2. A large piece with several holders is cut evenly among them.
//   3. Pieces go, the largest first, to the holder that has least to write so far.
//
// The resulting pieces are disjoint and together cover all that any rank holds; each lies in one
// held box of its writer. Where holders are free to be chosen, the rank that writes most writes at
// most the average and one piece more.
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

inline constexpr int64_t kShareBytes = 1 << 20;  // pieces below twice this are not cut for balance

// Shares the boxes out. `element_bytes` is by tensor; `held` and the answer are by rank. The answer
// is sorted by tensor and place and is equal on every machine.
std::vector<std::vector<HeldBox>> share_out(const std::vector<int64_t>& element_bytes,
                                            const std::vector<std::vector<HeldBox>>& held,
                                            int64_t share_bytes = kShareBytes);

}  // namespace tessera
