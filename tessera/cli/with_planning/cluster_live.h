// The actions of `tessera cluster` that need a live controller (orchestrate/live/service.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cli/cli.h"

namespace tessera::cli {

struct LiveOptions {
  std::string action, target;  // target: a run file, job, node or journal
  std::string folder = ".tessera-cluster";
  std::string backend = "processes", cluster, policy;
  uint64_t seed = 1;
  double round_s = 5;
  std::string listen, token;  // HOST:PORT, and the file with its token
  bool until_idle = false;
  std::string name;
  std::vector<std::string> plans;  // at most one
  std::vector<int64_t> gpus;       // at most one; none: 1
  std::optional<int64_t> least, most;
  std::optional<double> deadline_s;
  bool json = false;
};

const std::vector<std::string>& live_actions();
void add_live_options(Command& command, LiveOptions& options);
Result<int> run_live(const LiveOptions& options);

}  // namespace tessera::cli
