// Parts of making a rank's program (place_text.h) that programs made of other programs need, too
// (alike_programs.h). Private to tessera/program.
#pragma once

#include "tessera/program/program.h"

namespace tessera {

// The runs of the rank's row, of blocks that the program names by its own stages.
void write_schedule(Program& program, const ResolvedPlan& plan);

// As plan_memory, of a program that has its frees already, where buffers have as many copies as
// lowering has given them, and lie nowhere.
void plan_memory_again(Program& program, bool offsets);

}  // namespace tessera
