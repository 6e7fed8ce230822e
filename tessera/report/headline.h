// Names a model and a machine in a few words, for the top of a page.
//
//   model_headline("llama:layers=32,hidden=4096,...", 8'030'261'248)
//       "Llama, 32 layers, 8.03 B parameters"
//   machine_headline(cluster)  "8 A100"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/cluster/cluster.h"

namespace tessera {

// Returns the family, the number of layers if the text of the model has one, and the number of
// parameters if it is not 0. The text of a model that belongs to no family is shown as it is, up to
// its first colon.
std::string model_headline(std::string_view model, int64_t parameters);

// Returns the number and the names of the devices: "64 H100"; "8 A100, 8 V100" for a cluster of
// two kinds of nodes.
std::string machine_headline(const Cluster& cluster);

}  // namespace tessera
