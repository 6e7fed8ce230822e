// Outputs of ops with a time loop, made step by step: pieces written where they rest, parts reduced
// to the holder of each step's piece, or parts of a sum that travels as its piece does. Ops without
// a loop have one step. Private to tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/sums_in_place.h"

namespace tessera {

// A `SteppedOutput` says where an output goes, step by step.
struct SteppedOutput {
  SumTerm term;  // of a sum made in place, whose home is `home`
  Held home;
  std::optional<StepPiece> piece;     // set if the loop moves over this output
  std::optional<AxisId> reduce_axis;  // each step's part is reduced to its holder on this axis
  // Set if parts travel: the sum of a piece moves along these axes as the piece itself does, each
  // rank adds its part, and the last move brings it home.
  Axes travel_axes;
  Held sum;  // the sum of this step's piece, which comes from where it was a step before
  Layout made;
  bool in_sum() const { return term.terms > 1; }
  // Returns whether each step writes its own piece, and nothing moves.
  bool in_pieces() const { return piece && !reduce_axis && travel_axes.empty(); }
};

// `StepMoves` are the instructions that a step's parts need besides the step itself.
struct StepMoves {
  std::vector<TextInstruction> sends;     // right behind the step
  std::vector<TextInstruction> arrivals;  // behind the next step, beside which the parts travel
  std::vector<int> due;                   // handles that are awaited before the arrivals
};

class StepOutputs {
 public:
  StepOutputs(const Facts& facts, TextWriter& writer, const Holds& holds, SumsInPlace& sums)
      : facts_(facts), writer_(writer), holds_(holds), sums_(sums) {}

  std::vector<SteppedOutput> prepare(const Op& op);
  // Returns where the step puts its output.
  TextOutput write(const Op& op, size_t output, SteppedOutput& stepped, int64_t step,
                   StepMoves& moves);

 private:
  SteppedOutput prepare_one(const Op& op, size_t output);
  Axes homeward_axes(const SteppedOutput& stepped, TensorId tensor, PlaceId place) const;
  Write write_across(TensorId tensor, const Layout& home) const;
  TextView reduce_to_holder(const Op& op, TensorId tensor, const SteppedOutput& stepped,
                            int64_t step, StepMoves& moves);
  TextView travel(const Op& op, TensorId tensor, SteppedOutput& stepped, int64_t step,
                  StepMoves& moves);

  const Facts& facts_;
  TextWriter& writer_;
  const Holds& holds_;
  SumsInPlace& sums_;
};

}  // namespace tessera
