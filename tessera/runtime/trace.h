// Turns a recorded step into a Simulation (simulate/simulation.h), with the instruction ids, lanes
// and labels that the simulator gives, so that `tessera diff` can align the two.
//
// The work of a rank alone is an event from its start to its end. A collective or a message is one
// event a member: from the moment when the last of the members that must meet was ready (a member:
// had waited for it; a sender: had issued it) to the end of this member's wait. It has the
// simulator's channel.
#pragma once

#include <vector>

#include "tessera/program/lower.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Returns the trace. `recorded[r]` is the record of rank r, all by one clock; `programs[r]` is what
// rank r executed.
Simulation trace_of(const Lowering& lowering, const std::vector<Program>& programs,
                    const std::vector<std::vector<Executed>>& recorded);

}  // namespace tessera
