// The order of a block whose copies between tiers are issued ahead of their readers (tiers.cc).
// Private to tessera/program.
#pragma once

#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// A `TieredItem` is an instruction of the text that is being rewritten, and its old position.
struct TieredItem {
  TextInstruction instruction;
  size_t origin = 0;
  bool ahead = false;  // the instruction is a copy that may be issued earlier
  bool inserted = false;
};

// Returns the instructions of the rewritten block, each copy `ahead` moved to where it is issued: the
// beginning of an earlier unit (prefetch.h), or, without units, the position of the reader before
// its own. A copy stays behind instructions that write what it copies. `size`: the number of
// instructions that the block had.
std::vector<TextInstruction> issue_ahead(std::vector<TieredItem> items, size_t size, BlockRef block,
                                         const Graph& graph, const ResolvedPlan& plan);

}  // namespace tessera
