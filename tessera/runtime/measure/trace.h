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

#include <cstdint>
#include <vector>

#include "tessera/program/lower.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// One execution of a wait instruction. The wait has two parts: until `ready_s` the rank waits for
// another rank, and from then on bytes are on their way.
struct RecordedWait {
  double start_s = 0, ready_s = 0, end_s = 0;
  // The communication that was ready last, of those that the wait completes. The names are indices
  // into Simulation::labels, -1: the wait completes none.
  int32_t label = -1, what = -1;
  int64_t bytes = 0;             // the most that a member sends
  std::vector<int32_t> members;  // the ranks that take part; empty: only this rank
  int32_t last = -1;             // the member that was ready last
};

// A recorded step as a trace, with what the trace does not say about waiting.
struct RecordedStep {
  Simulation trace;
  std::vector<std::vector<RecordedWait>>
      waits;  // by rank, in the order in which they were executed
};

// Returns the trace. `recorded[r]` is the record of rank r; all records use the same clock.
// `programs[r]` is the program that rank r executed.
RecordedStep recorded_step(const Lowering& lowering, const std::vector<Program>& programs,
                           const std::vector<std::vector<Executed>>& recorded);
// Returns the trace alone.
Simulation trace_of(const Lowering& lowering, const std::vector<Program>& programs,
                    const std::vector<std::vector<Executed>>& recorded);

}  // namespace tessera
