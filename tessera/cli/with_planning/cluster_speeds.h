// tessera cluster speeds: the step times of a model's plans by placement, as a table that
// `cluster simulate` reads (plan_speeds.h).
#pragma once

#include "tessera/cli/cli.h"

namespace tessera::cli {

// Adds the command `speeds` to `cluster`.
void add_cluster_speeds(Command& cluster);

}  // namespace tessera::cli
