// Pieces of a time loop: the piece that a rank starts with, the length of a ring, and the pieces
// that a rank leaves out. Private to tessera/program.
#pragma once

#include "tessera/program/walk/facts.h"

namespace tessera {

// Returns whether the piece of step 0 is the rank's own shard over `axes`.
bool starts_at_home(const StepPiece& piece, const Axes& axes, const Mesh& mesh);

// Returns the number of steps of a nested loop's inner rings.
int64_t inner_steps(const StepPiece& piece, const Mesh& mesh);

// Sets up the piece so that keys that none of a rank's queries sees are left out. In a ring this
// needs a falling skew by the very axes that cut the queries: then each rank that passes a piece on
// has used it itself.
void leave_out_masked(const Facts& facts, const Op& op, StepPiece& piece);

}  // namespace tessera
