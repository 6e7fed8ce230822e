// tessera cluster speeds: the step times of a model's plans by placement, as a table that
// `cluster simulate` reads (plan_speeds.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/with_planning/pricing.h"

namespace tessera::cli {

struct SpeedsOptions {
  std::string model, cluster, optimizer = "adamw", plans_file, out;
  std::vector<std::string> plans, placements;  // NAME=PLAN; as "233"
  std::vector<int64_t> gpus;
  PricingOptions pricing;
  int64_t batch = 0;
  bool json = false;
};

// Adds the options that no other action of the command has.
void add_speeds_options(Command& command, SpeedsOptions& options);
Result<int> run_speeds(const SpeedsOptions& options);

}  // namespace tessera::cli
