// Writes a simulated or a real step as a trace that chrome://tracing and ui.perfetto.dev open, and
// reads it back: docs/reference/traces.md.
//
// pid = rank, tid = lane and channel; an arrow goes from a send to its receive and through the
// members of a collective; a counter shows live memory. Each slice has the id of its instruction as
// argument: the same id names the same instruction of a program in the simulator and in the
// runtime. Times are written to the nanosecond.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Returns the id of an instruction, "forward@1:3:17": block, micro-batch, index in the block.
std::string instruction_id(const TraceEvent& event);
// Sets block, micro_batch and instruction; false if the text is no id.
bool parse_instruction_id(std::string_view id, TraceEvent& event);

// Writes the simulation's events, labels, step time, ranks, tokens, and each role's ranks and
// memory timeline. Equal simulations give equal bytes.
std::string to_chrome_trace(const Simulation& simulation);
// Reads the text of to_chrome_trace. Events are in the order of (rank, start), as far as the
// nanosecond tells. Errors: no JSON, not written by this program, an entry that it does not write.
Result<Simulation> parse_chrome_trace(std::string_view json, std::string_view file);

}  // namespace tessera
