// Operands of ops with a time loop, fetched step by step: aligned from the holder of each piece,
// around a ring from the neighbour, or nested around rings of rings. Readers of the same pieces
// share what was fetched. Ops without a loop have one step. Private to tessera/program.
#pragma once

#include <list>
#include <optional>
#include <vector>

#include "tessera/program/walk/materialise.h"

namespace tessera {

// A `FetchedSteps` holds the pieces that a loop op has fetched, for readers of the same pieces soon
// after it.
struct FetchedSteps {
  TensorId tensor;
  BlockRef block;
  Region region;  // of step 0
  Axes axes;
  std::vector<Held> by_step;
  OpId last_reader;
};

// A `SteppedOperand` is an operand on its way through the steps of its op.
struct SteppedOperand {
  Held staged;  // the value that the steps take from
  Layout need;  // without the loop
  std::optional<StepPiece> piece;
  Axes axes;  // axes over which the looped dim is held sharded; none: local
  std::vector<Held> by_step;
  std::optional<Held> early;      // for a nested loop: the piece of the next outer step
  FetchedSteps* known = nullptr;  // set if an op shortly before has fetched it
  // By step: whether the step finds all that it reads in `rests`, while the halo that other steps
  // need is on its way. Empty: all steps take from `staged`.
  std::vector<bool> at_rest;
  Held rests;
};

// Returns the order in which an op's steps run: steps that wait for nothing come first.
std::vector<int64_t> order_of_steps(const std::vector<SteppedOperand>& operands, int64_t steps);

class StepOperands {
 public:
  StepOperands(const Facts& facts, TextWriter& writer, Materialiser& materialiser)
      : facts_(facts), writer_(writer), materialiser_(materialiser), fetched_(writer.places()) {}

  // Makes the value available that the steps take from.
  SteppedOperand prepare(const Op& op, size_t operand);
  // Makes the operand of a step available (issued, not waited for) and appends it to by_step.
  void fetch(const Op& op, size_t operand, SteppedOperand& stepped, int64_t step);
  // Offers the operand to other readers, once all its steps are fetched.
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
