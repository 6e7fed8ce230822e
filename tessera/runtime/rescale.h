// Live change of plan between two steps: the state of a run moves from the executor of one plan to
// that of another, over the communicator and without a file. Which bytes move: state/move.h.
//
// All ranks of the world take part. A rank that one of the plans does not use runs an idle program:
// it keeps nothing and does nothing. The residuals of codecs with error feedback are no tensors of
// the graph; they begin at zero after the change.
//
//   const Program idle = idle_program(world.rank(), world.size());
//   auto next = RankExecutor::create(graph, program_of_the_new_plan, world, options);
//   (*next)->initialise(moved);  // constant tables
//   move_state(world, move, *executor, program_of_the_old_plan, **next, program_of_the_new_plan);
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/state/move.h"

namespace tessera {

Program idle_program(int rank, int64_t ranks);

// Moves the state. A fault is thrown as comm::CommFault. Values in memory go from one arena into
// the other; beside the arenas of both plans a rank needs room for tensors that rest on disk, and,
// if ranks are processes, for messages: 256 MiB at a time, or the largest tensor.
void move_state(comm::Communicator& world, const StateMove& move, const RankExecutor& from,
                const Program& before, RankExecutor& to, const Program& after);

}  // namespace tessera
