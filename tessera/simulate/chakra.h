// Execution traces in the format of MLCommons Chakra (schema et_def.proto), which network
// simulators replay: one file a rank, GlobalMetadata and then a Node for each computation, copy,
// collective and message, each message behind its length (varint). docs/reference/traces.md says
// what becomes what.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/program/program.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

struct ChakraOptions {
  // Attribute num_ops of a computation; unset: none is written.
  std::function<double(const Compute&)> flops;
};

// One step of `program`. Durations are those of the simulation's events of rank
// `representative` (program.rank, or the rank that was simulated in its place); an instruction
// whose micro-batch was counted, not played, has the duration of an earlier one; without events all
// are 0.
std::string to_chakra(const Program& program, const Simulation& simulation, int32_t representative,
                      const ChakraOptions& options = {});

// Name of a process group, the same on all its members: "0+4x8" for 8 ranks from 0 in steps of 4,
// else the ranks, "0,3,5".
std::string process_group_name(const Group& group);

}  // namespace tessera
