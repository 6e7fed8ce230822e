// Parts of instantiation (place_text.h) that also serve programs made of other programs
// (alike_programs.h). Private to tessera/program.
#pragma once

#include "tessera/program/program.h"

namespace tessera {

// Writes the runs of the rank's row; the blocks are named by the program's own stages.
void write_schedule(Program& program, const ResolvedPlan& plan);

// Fixes lifetimes and offsets as plan_memory does, for a program that already has its frees, whose
// buffers have as many copies as lowering has given them and no offsets yet.
void plan_memory_again(Program& program, bool offsets);

}  // namespace tessera
