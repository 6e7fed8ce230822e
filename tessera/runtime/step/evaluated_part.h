// The part of a program that an evaluation executes: its forward pass. Private to tessera/runtime.
#pragma once

#include <vector>

#include "tessera/program/program.h"

namespace tessera {

// Returns for each instruction whether an evaluation executes it. These are the instructions of
// forward ops. They are also, except in blocks of the backward pass, the collectives and copies that
// move results of forward ops; these are needed because the loss becomes complete only at the end of
// the step, perhaps in one collective with sums of the update. All ranks that take part in a
// collective or a message decide in the same way. All waits are executed too, so that nothing is in
// flight when a later micro-batch uses the slots of an earlier one; a wait for something that was
// not issued does nothing.
//
// An evaluation runs these instructions in the same order as the step. So no value lives longer than
// in the step, and the evaluation needs no other offsets of buffers.
ByBlock<std::vector<bool>> evaluated_part(const Program& program, const Graph& graph);

}  // namespace tessera
