// Writes a simulated or a real step as a trace that chrome://tracing and ui.perfetto.dev can open,
// and reads such a trace back (docs/reference/traces.md).
//
// In the trace pid is the rank, and tid is the lane and channel. An arrow goes from each send to
// its receive, and through the members of each collective. A counter shows live memory. Each slice
// has the id of its instruction as an argument. The id of an instruction is the same in the
// simulator and in the runtime. Times are written to the nanosecond.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Returns the id of an instruction, "forward@1:3:17": block, micro-batch, index in the block.
std::string instruction_id(const TraceEvent& event);
// Sets block, micro_batch and instruction of the event. Returns false if the text is no id.
bool parse_instruction_id(std::string_view id, TraceEvent& event);

// Writes the simulation's events, labels, step time, ranks, tokens, and each role's ranks and
// memory timeline. Equal simulations give equal bytes.
std::string to_chrome_trace(const Simulation& simulation);
// Reads a text that to_chrome_trace has written. Events are in the order of (rank, start), with the
// starts rounded to nanoseconds. Errors: the text is no JSON, is not written by this program, or
// has an entry that this program does not write. `file`: the file's name, for messages.
Result<Simulation> parse_chrome_trace(std::string_view json, std::string_view file);

}  // namespace tessera
