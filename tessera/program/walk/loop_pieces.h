// Pieces of a time loop: which piece a rank starts with, how many steps an inner ring has, and
// which pieces a rank leaves out. Private to tessera/program.
#pragma once

#include "tessera/program/walk/facts.h"

namespace tessera {

// Returns whether each rank's piece in step 0 is the shard that the rank holds if the looped dim is
// cut over `axes`.
bool starts_at_home(const StepPiece& piece, const Axes& axes, const Mesh& mesh);

// Returns the number of steps after which the inner rings of a nested loop have gone around once.
int64_t inner_steps(const StepPiece& piece, const Mesh& mesh);

// Sets up `piece` so that a rank leaves out keys that none of its queries sees. In a ring this is
// done only if the loop has a falling skew by exactly the axes that cut the queries, because then
// each rank that passes a piece on has used the piece itself.
void leave_out_masked(const Facts& facts, const Op& op, StepPiece& piece);

}  // namespace tessera
