// First needs. Collectives, receives and copies with a handle are started by one instruction and
// awaited later. The first need is the first instruction that cannot run until the started one is
// complete. Passes over place texts ask for first needs while the texts have no waits yet, to learn
// which instructions may be joined or moved. place_waits (place_text.h) asks last and writes each
// answer as a wait. Sends are treated in send_waits.cc, because they also wait for the receiver.
// Private to tessera/program.
//
// An instruction needs what is under way if it reads a region that is being written, or writes a
// region that is being read or written. Then:
//
//   issued in         first needed                  awaited
//   ----------------  ----------------------------  --------------------------------------------
//   any block         later in the same block       there
//   prologue          in a block of micro-batches   a collective: there, in the block's first run;
//                                                   anything else: at the end of the prologue
//   a micro-batch's   in other blocks               in the block of these that always runs first.
//                                                   At the end of the issuing block instead if no
//                                                   block is always first, if that block runs once
//                                                   a step, or if the issuing block's run for the
//                                                   next micro-batch needs the result too
//   any               nowhere                       at the end of the issuing block
//
// Two rules bound the memory of what is under way. A handle with a due mark (PlaceText::due) is
// awaited no later than the first instruction of its block that was written after the mark. At most
// two copies out of a tier (to a slower one) are under way at a time in a block.
//
//   for (const Need& need : find_needs(text, BlockOrder(plan, place)))
//     if (need.block == need.issued) ...  // awaited in the block that issues it
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// A `BlockOrder` knows the order in which the blocks of a place run. A place may be in several rows
// of the plan's schedule, and the order may differ between these rows.
class BlockOrder {
 public:
  BlockOrder() = default;  // of no plan: nothing is known about the order of micro-batches' blocks
  BlockOrder(const ResolvedPlan& plan, PlaceId place);

  // Returns whether `a` runs before `b` in every micro-batch and every row.
  bool always_before(BlockRef a, BlockRef b) const;
  bool repeats() const { return repeats_; }  // whether there are several micro-batches
  // Returns the position of a block of micro-batches if the place's blocks are ordered by their
  // first runs. Returns nothing if this order differs between rows, or if the block does not run.
  std::optional<size_t> position(BlockRef block) const;

 private:
  // By block and micro-batch: the position of the run in the row; -1: the block does not run.
  using Runs = std::map<BlockRef, std::vector<int64_t>>;

  std::vector<Runs> rows_;
  std::map<BlockRef, size_t> positions_;
  bool repeats_ = false;
};

struct Need {
  int handle = 0;
  BlockRef issued;    // the block in which the handle is started
  BlockRef block;     // the block in which the handle is awaited
  size_t before = 0;  // the wait goes before this position in `block`; the block's size: at its end
  When when = When::kAlways;
  // The op that needs the result. If the wait follows from a due mark, or nothing needs the result:
  // the op for which the transfer was started.
  OpId cause;
};

// Returns the needs in the order of blocks and of the instructions in them.
std::vector<Need> find_needs(const PlaceText& text, const BlockOrder& order);

}  // namespace tessera
