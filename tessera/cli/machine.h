// Loads the cluster that an option names, and says first (output.h) what people's words were taken
// for: "8xH100 is dgx-h100:1".
#pragma once

#include <string>

#include "tessera/base/result.h"
#include "tessera/cluster/cluster.h"

namespace tessera::cli {

// Returns the errors of load_cluster().
Result<Cluster> load_machine(const std::string& text);

// Returns the short name of the machine for the first line of an answer: "8 devices of dgx-a100",
// "2 x dgx-a100 (16 devices)".
std::string machine_title(const Cluster& cluster);

}  // namespace tessera::cli
