// The commands of `tessera cluster` that need a live controller (orchestrate/live/service.h).
#pragma once

#include <cstdint>
#include <string>

#include "tessera/cli/cli.h"

namespace tessera::cli {

// Adds the commands of a live controller to `cluster`: serve, submit, status, explain, cancel, drain
// and replay.
void add_cluster_live(Command& cluster);

// Adds --policy and --seed.
void add_policy(Command& command, std::string& policy, uint64_t& seed);
// Returns the list of policies for a help text.
std::string policies_text();

}  // namespace tessera::cli
