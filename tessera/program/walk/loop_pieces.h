// Pieces of a time loop: whose a rank starts with, how far a ring goes, and which pieces a rank
// leaves out. Private to tessera/program.
#pragma once

#include "tessera/program/walk/facts.h"

namespace tessera {

// Is the piece of step 0 the rank's own shard over `axes`?
bool starts_at_home(const StepPiece& piece, const Axes& axes, const Mesh& mesh);

// Of a nested loop: how many steps its inner rings have.
int64_t inner_steps(const StepPiece& piece, const Mesh& mesh);

// Keys that none of a rank's queries sees stay where they are. In a ring this needs a falling skew
// by the very axes that cut the queries: then whoever passes a piece on has used it himself.
void leave_out_masked(const Facts& facts, const Op& op, StepPiece& piece);

}  // namespace tessera
