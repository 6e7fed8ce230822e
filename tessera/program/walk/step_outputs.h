// Outputs of ops with a time loop. Each step makes a piece of the output and writes it where it
// rests, or makes a part that is reduced to the rank that holds the step's piece, or adds a part to
// a sum that travels around the ring with the piece. An op without a loop has one step. Private to
// tessera/program.
#pragma once

#include <optional>
#include <vector>

#include "tessera/program/walk/sums_in_place.h"

namespace tessera {

// A `SteppedOutput` says where an op with a time loop puts one of its outputs in each step.
struct SteppedOutput {
  SumTerm term;  // the output as a term of a sum made in place; `home` is then the sum's buffer
  Held home;
  std::optional<StepPiece> piece;     // set if the loop cuts a dim of this output
  std::optional<AxisId> reduce_axis;  // set if each step's part is reduced to one rank on this axis
  // Not empty if the sum of a piece travels: it moves along these axes from step to step as the
  // piece of the operands does, each rank adds its part, and the last move brings the sum home.
  Axes travel_axes;
  Held sum;  // of a travelling sum: the sum of this step's piece, on its way from the last rank
  Layout made;
  bool in_sum() const { return term.terms > 1; }
  // Returns whether each step writes its own piece, and nothing moves.
  bool in_pieces() const { return piece && !reduce_axis && travel_axes.empty(); }
};

// `StepMoves` are the instructions, in addition to the step's compute, that move the step's parts.
struct StepMoves {
  std::vector<TextInstruction> sends;     // go right after the step
  std::vector<TextInstruction> arrivals;  // go after the next step, during which the parts travel
  std::vector<int> due;                   // handles that are awaited before the arrivals
};

class StepOutputs {
 public:
  StepOutputs(const Facts& facts, TextWriter& writer, const Holds& holds, SumsInPlace& sums)
      : facts_(facts), writer_(writer), holds_(holds), sums_(sums) {}

  std::vector<SteppedOutput> prepare(const Op& op);
  // Returns where the step puts its output. Adds what then moves the output to `moves`.
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
