// Who writes what: every rank knows what all ranks hold, and each element is written by one of those
// that hold it. A pure function of the holdings, so that all ranks compute the same answer and
// nothing needs to be agreed upon.
//
//   A rank holds boxes of tensors: whole ones, shards, replicas of either; boxes of different ranks
//   may be cut differently (uneven cuts, stages on other meshes) and overlap in part.
//   1. A tensor's boxes are cut along each other's borders into pieces that have one set of holders.
//   2. A piece that several hold, and that is large, is cut evenly among them.
//   3. Pieces go, the largest first, to the holder that has least to write so far.
//
// What comes out: pieces that are disjoint and together cover all that anybody holds; each lies in
// one held box of its writer; the rank that writes most writes at most the average and one piece
// more, where holders are free to be chosen.
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

// `element_bytes`: of each tensor. `held` and the answer: by rank. The answer is sorted by tensor
// and place, the same on every machine.
std::vector<std::vector<HeldBox>> share_out(const std::vector<int64_t>& element_bytes,
                                            const std::vector<std::vector<HeldBox>>& held,
                                            int64_t share_bytes = kShareBytes);

}  // namespace tessera
