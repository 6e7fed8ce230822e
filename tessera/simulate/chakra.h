// Writes execution traces in the format of MLCommons Chakra (schema et_def.proto), which network
// simulators replay. Each rank has a file of protobuf messages, each preceded by its length
// (varint): first a GlobalMetadata, then a Node for each computation, copy, collective, send and
// receive. docs/reference/traces.md says which instruction becomes which node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/program/lower.h"
#include "tessera/program/program.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Gives process groups numbers from 1, in the order in which they are asked for, because simulators
// read the attribute `pg_name` as a number. All ranks must use the same object, so that all members
// of a group use the same number.
class ProcessGroups {
 public:
  int64_t number(const Group& group);
  // Returns the members of each group by the group's number: {"1": [0, 1], "2": [0, 8]}.
  std::string to_json() const;

 private:
  std::map<std::vector<int>, int64_t> numbers_;  // by members
};

struct ChakraOptions {
  // Returns the value of the attribute num_ops of a computation. If unset, the attribute is not
  // written.
  std::function<double(const Compute&)> flops;
};

// Returns the trace of one step of `program`. Durations are those of the simulation's events of
// rank `representative`, which is program.rank or the rank that was simulated instead. If an
// instruction has no event because its micro-batch was counted and not played, it has the duration
// of an earlier micro-batch. If the simulation has no events, all durations are 0.
std::string to_chakra(const Program& program, const Simulation& simulation, int32_t representative,
                      ProcessGroups& groups, const ChakraOptions& options = {});

// Writes a file PREFIX.<rank>.et for every rank of the lowering that has a program, and
// PREFIX.groups.json with the members of the process groups. `simulation` must be of this lowering
// and have events. Returns the number of ranks that were written. Errors: a file cannot be written.
Result<int64_t> write_chakra(const Lowering& lowering, const Simulation& simulation,
                             const std::string& prefix);

}  // namespace tessera
