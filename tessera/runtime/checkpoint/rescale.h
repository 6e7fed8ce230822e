// Changes the plan of a run between two steps: the state moves from the executor of the old plan to
// the executor of the new plan, through the communicator and without a file. state/move.h computes
// which bytes move.
//
// All ranks of the world take part. A rank that one of the plans does not use runs an idle
// program under that plan, which holds no tensors and has no instructions. The residuals of
// codecs with error feedback are not tensors of the graph and are not moved; they begin at zero
// after the change.
//
//   const Program idle = idle_program(world.rank(), world.size());
//   auto next = RankExecutor::create(graph, program_of_the_new_plan, world, options);
//   (*next)->initialise(moved);  // constant tables
//   move_state(world, move, *executor, program_of_the_old_plan, **next, program_of_the_new_plan);
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/state/move.h"

namespace tessera {

Program idle_program(int rank, int64_t ranks);

// Moves the state. A fault is thrown as comm::CommFault. Values in memory are copied from the arena
// of one plan to the arena of the other. In addition to both arenas a rank needs memory for tensors
// that rest on disk and, if ranks are processes, for messages: 256 MiB at a time, or the size of
// the largest tensor if that is more.
void move_state(comm::Communicator& world, const StateMove& move, const RankExecutor& from,
                const Program& before, RankExecutor& to, const Program& after);

}  // namespace tessera
