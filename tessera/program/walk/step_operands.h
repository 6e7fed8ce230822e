// Operands of ops with a time loop. Each step fetches its piece: in an aligned loop from the rank
// that holds the piece, in a rotated loop from the neighbour in a ring, in a nested loop around
// rings of rings. Readers of the same pieces share what was fetched. An op without a loop has one
// step. Private to tessera/program.
#pragma once

#include <list>
#include <optional>
#include <vector>

#include "tessera/program/walk/materialise.h"

namespace tessera {

// A `FetchedSteps` holds the pieces that an op with a time loop has fetched, so that the next
// readers of the same pieces can use them.
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
  Held staged;                     // the value from which the steps take their pieces
  Layout need;                     // the layout of all pieces of a rank together
  std::optional<StepPiece> piece;  // unset: the loop does not cut this operand
  Axes axes;  // axes over which `staged` has the looped dim cut; none: each rank has all its pieces
  std::vector<Held> by_step;
  std::optional<Held> early;      // for a nested loop: the piece of the next outer step
  FetchedSteps* known = nullptr;  // set if an op shortly before has fetched the same pieces
  // By step: whether all that the step reads is in `rests`. Such steps can run while the halo that
  // other steps need is on its way. Empty: all steps take from `staged`.
  std::vector<bool> at_rest;
  Held rests;
};

// Returns the order in which an op's steps run. Steps that need no transfer come first.
std::vector<int64_t> order_of_steps(const std::vector<SteppedOperand>& operands, int64_t steps);

class StepOperands {
 public:
  StepOperands(const Facts& facts, TextWriter& writer, Materialiser& materialiser)
      : facts_(facts), writer_(writer), materialiser_(materialiser), fetched_(writer.places()) {}

  // Makes the value available from which the steps take their pieces of the operand.
  SteppedOperand prepare(const Op& op, size_t operand);
  // Makes the piece of a step available and appends it to stepped.by_step. Its transfer is issued
  // and not waited for.
  void fetch(const Op& op, size_t operand, SteppedOperand& stepped, int64_t step);
  // Keeps the pieces of the operand for other readers. To be called when all steps are fetched.
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
