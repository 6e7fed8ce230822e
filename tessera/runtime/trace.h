// A recorded step as a Simulation (simulate/simulation.h): the same instruction ids, lanes and
// labels as the simulator gives, so that `tessera diff` can align the two.
//
// What a rank does itself is an event from its start to its end. A collective or a message is one
// event a member: from when the last of those that must meet was ready (waited for it; a sender:
// had issued it) to when this member's wait was over. Its channel is that of the simulator.
#pragma once

#include <vector>

#include "tessera/program/lower.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// `recorded[r]`: of rank r, by one clock; `programs[r]`: what it executed.
Simulation trace_of(const Lowering& lowering, const std::vector<Program>& programs,
                    const std::vector<std::vector<Executed>>& recorded);

}  // namespace tessera
