// First needs: the instructions that first need what another instruction has started. Every wait
// follows from them. Passes over place texts ask for first needs while the texts have no waits yet,
// to learn what may be joined, moved or sent on. place_waits (place_text.h) asks last and writes
// the answers as waits. Private to tessera/program.
//
// Collectives, receipts of messages and copies between tiers are started. Sends are treated in
// send_waits.cc, since they wait for the other side.
//
// An instruction needs what is under way if it reads a region that is being written, or writes a
// region that is being read or written. Then:
//
//   issued in         first needed                  awaited
//   ----------------  ----------------------------  --------------------------------------------
//   any block         later in the same block       there
//   prologue          in a block of micro-batches   a collective: there, in the block's first run;
//                                                   anything else: at the end of the prologue
//   a micro-batch's   in other blocks               in that which always runs before the others; at
//                                                   the end of its own if there is none, if it runs
//                                                   once a step, or if the next micro-batch's run
//                                                   of its own block needs it too
//   any               nowhere                       at the end of its own block
//
// Two rules bound the memory of what is under way. A handle with a due mark (PlaceText::due) is
// awaited no later than the first instruction of its block that was written from the mark on. At
// most two of the copies that take something out of a tier are under way in a block.
//
//   for (const Need& need : find_needs(text, BlockOrder(plan, place)))
//     if (need.block == need.issued) ...  // awaited in the block that issues it
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// A `BlockOrder` knows the order in which the rows of the plan that have a place run its blocks.
class BlockOrder {
 public:
  BlockOrder() = default;  // for a text alone: nothing is known about blocks of micro-batches
  BlockOrder(const ResolvedPlan& plan, PlaceId place);

  // Returns whether `a` runs before `b` in every micro-batch and every row.
  bool always_before(BlockRef a, BlockRef b) const;
  bool repeats() const { return repeats_; }  // whether there are several micro-batches
  // Returns the position of a block of micro-batches in the order of first runs; nothing if the
  // position differs between rows, or the block does not run.
  std::optional<size_t> position(BlockRef block) const;

 private:
  using Runs = std::map<BlockRef, std::vector<int64_t>>;  // by micro-batch: run's position; -1

  std::vector<Runs> rows_;
  std::map<BlockRef, size_t> positions_;
  bool repeats_ = false;
};

struct Need {
  int handle = 0;
  BlockRef issued;    // the block that starts it
  BlockRef block;     // the block that awaits it
  size_t before = 0;  // position in `block` of what needs it; the block's size: the end
  When when = When::kAlways;
  OpId cause;  // the op that needs it; if it is due, or needed nowhere: the op it was started for
};

// Returns the needs in the order of blocks and of the instructions in them.
std::vector<Need> find_needs(const PlaceText& text, const BlockOrder& order);

}  // namespace tessera
