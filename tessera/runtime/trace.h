// Turns a recorded step into a Simulation (simulate/simulation.h), with the same instruction ids,
// lanes and labels as the simulator gives, so that `tessera diff` can align the recorded step with
// the simulated one.
//
// An instruction that concerns one rank is an event from its start to its end. A collective or a
// message is one event on each member. This event begins when the last of the members was ready,
// and ends when this member's wait ends. A member of a collective and a receiver are ready when
// they begin to wait; a sender is ready when it issues the message. The event has the channel that
// the simulator gives it.
#pragma once

#include <vector>

#include "tessera/program/lower.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Returns the trace. `recorded[r]` is the record of rank r; all records use the same clock.
// `programs[r]` is the program that rank r executed.
Simulation trace_of(const Lowering& lowering, const std::vector<Program>& programs,
                    const std::vector<std::vector<Executed>>& recorded);

}  // namespace tessera
