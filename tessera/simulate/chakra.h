// Writes execution traces in the format of MLCommons Chakra (schema et_def.proto), which network
// simulators replay: one file a rank, GlobalMetadata and then a Node for each computation, copy,
// collective and message, each message behind its length (varint). docs/reference/traces.md says
// which instruction becomes which node.
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

// Numbers process groups from 1 in the order in which they are asked for: simulators read `pg_name`
// as a number. All ranks use one object, so that all members of a group name it alike.
class ProcessGroups {
 public:
  int64_t number(const Group& group);
  // Returns the members by number: {"1": [0, 1], "2": [0, 8]}.
  std::string to_json() const;

 private:
  std::map<std::vector<int>, int64_t> numbers_;  // by members
};

struct ChakraOptions {
  // Returns the attribute num_ops of a computation; unset: none is written.
  std::function<double(const Compute&)> flops;
};

// Returns the trace of one step of `program`. Durations are those of the simulation's events of
// rank `representative` (program.rank, or the rank that was simulated in its place); an instruction
// whose micro-batch was counted, not played, has the duration of an earlier micro-batch; without
// events all are 0.
std::string to_chakra(const Program& program, const Simulation& simulation, int32_t representative,
                      ProcessGroups& groups, const ChakraOptions& options = {});

// Writes PREFIX.<rank>.et for every rank of the lowering that has a program, and PREFIX.groups.json
// with the members of the process groups. `simulation`: of this lowering, with events. Returns the
// number of ranks that were written. Errors: a file that cannot be written.
Result<int64_t> write_chakra(const Lowering& lowering, const Simulation& simulation,
                             const std::string& prefix);

}  // namespace tessera
