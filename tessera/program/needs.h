// Where what an instruction has started is first needed: the question behind every wait. Passes over
// place texts ask it while the texts have no waits yet (what may be joined, moved, or sent on);
// place_waits (place_text.h) asks it last and writes the answers as waits. Private to
// tessera/program.
//
// Started are collectives, receipts of messages and copies between tiers. Sends are another
// question, since they wait for the other side (send_waits.cc).
//
// An instruction needs what is under way if it reads what is being written, or writes what is being
// read or written. Then:
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
// Two rules bound the memory that is held by what is under way. What has a due mark (PlaceText::due)
// is awaited no later than the first instruction of its block that was written from the mark on. Of
// the copies that take something out of a tier no more than two are under way in a block.
//
//   for (const Need& need : find_needs(text, BlockOrder(plan, place)))
//     if (need.block == need.issued) ...  // awaited in the block that issues it
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// In which order the rows of the plan that have a place run its blocks.
class BlockOrder {
 public:
  BlockOrder() = default;  // of a text alone: nothing is known of blocks of micro-batches
  BlockOrder(const ResolvedPlan& plan, PlaceId place);

  // Does `a` run before `b` in every micro-batch and every row?
  bool always_before(BlockRef a, BlockRef b) const;
  bool repeats() const { return repeats_; }  // are there several micro-batches?
  // The position of a block of micro-batches by first runs; none if the rows differ in it, or the
  // block does not run.
  std::optional<size_t> position(BlockRef block) const;

 private:
  using Runs = std::map<BlockRef, std::vector<int64_t>>;  // position of the run, by micro-batch; -1

  std::vector<Runs> rows_;
  std::map<BlockRef, size_t> positions_;
  bool repeats_ = false;
};

struct Need {
  int handle = 0;
  BlockRef issued;    // the block that starts it
  BlockRef block;     // the block that awaits it
  size_t before = 0;  // position in that block; its size: at its end
  When when = When::kAlways;
  OpId cause;  // the op that needs it; of one that is due, or needed nowhere: the op it was for
};

// In the order of blocks and of the instructions in them.
std::vector<Need> find_needs(const PlaceText& text, const BlockOrder& order);

}  // namespace tessera
