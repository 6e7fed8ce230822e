// Operands of ops with a time loop, fetched step by step: aligned from the holder of each piece,
// around a ring from the neighbour, nested around rings of rings; what was fetched is shared with
// readers of the same pieces. Ops without a loop have one step. Private to tessera/program.
#pragma once

#include <list>
#include <optional>
#include <vector>

#include "tessera/program/walk/materialise.h"

namespace tessera {

// The steps' pieces that a loop op has fetched, for readers of the same pieces soon after it.
struct FetchedSteps {
  TensorId tensor;
  BlockRef block;
  Region region;  // of step 0
  Axes axes;
  std::vector<Held> by_step;
  OpId last_reader;
};

// An operand, on its way through the steps of its op.
struct SteppedOperand {
  Held staged;  // what the steps take from
  Layout need;  // loop left out
  std::optional<StepPiece> piece;
  Axes axes;  // over which the looped dim is held sharded; none: local
  std::vector<Held> by_step;
  std::optional<Held> early;      // of a nested loop: the piece of the next outer step
  FetchedSteps* known = nullptr;  // fetched already, for an op shortly before
  // By step, where some find all that they read in what rests here, while the halo that the others
  // need is on its way; empty: all take from `staged`.
  std::vector<bool> at_rest;
  Held rests;
};

// The order in which an op's steps run: those first that wait for nothing.
std::vector<int64_t> order_of_steps(const std::vector<SteppedOperand>& operands, int64_t steps);

class StepOperands {
 public:
  StepOperands(const Facts& facts, TextWriter& writer, Materialiser& materialiser)
      : facts_(facts), writer_(writer), materialiser_(materialiser), fetched_(writer.places()) {}

  // Makes available what the steps take from.
  SteppedOperand prepare(const Op& op, size_t operand);
  // Makes the operand of a step available (issued, not waited for), behind those before it in
  // by_step.
  void fetch(const Op& op, size_t operand, SteppedOperand& stepped, int64_t step);
  // All steps are fetched: others may share them.
  void share(const Op& op, size_t operand, const SteppedOperand& stepped);

 private:
  FetchedSteps* fetched_before(const Op& op, TensorId tensor, const SteppedOperand& stepped);
  void find_at_rest(const Op& op, size_t operand, SteppedOperand& stepped);
  Held move(const Op& op, size_t operand, const SteppedOperand& stepped, const Held& source,
            int64_t step, Axes axes);

  const Facts& facts_;
  TextWriter& writer_;
  Materialiser& materialiser_;
  std::vector<std::list<FetchedSteps>> fetched_;  // by place; lists: readers keep pointers
};

}  // namespace tessera
