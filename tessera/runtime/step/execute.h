// Executes an instruction of a rank's step (rank_step.h), on the thread or the stream that calls.
// Private to tessera/runtime.
#pragma once

#include "tessera/runtime/step/rank_step.h"

namespace tessera {

void execute(RankStep& r, const StepRun& run, const Instruction& instruction,
             PreparedInstruction& made);
// Loads an input. An input that is marked as one of the next step gets the data of the next step.
// When fill_ahead() executes only the part that works ahead, `load` already gives the data of that
// next step.
void load_values(RankStep& r, const Load& one, const Box& region, const kernels::Array& to);

}  // namespace tessera
