// Parts of instantiation (place_text.h) that are also used to make a program out of another program
// (alike_programs.h). Private to tessera/program.
#pragma once

#include "tessera/program/program.h"

namespace tessera {

// Sets the program's schedule to the runs of the rank's row in the plan's schedule. Blocks are
// named by the index of the stage in Program::stages.
void write_schedule(Program& program, const ResolvedPlan& plan);

// Sets lifetimes and offsets as plan_memory (place_text.h) does, and adds no frees. The program
// must already have its frees, and its buffers must have no offsets yet and as many slots as
// lowering gave them.
void plan_memory_again(Program& program, bool offsets);

}  // namespace tessera
