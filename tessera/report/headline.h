// Names a machine in a few words, for the top of a page: machine_headline(cluster) is "8 A100". The
// short name of a model is that of models/model_title.h.
#pragma once

#include <string>

#include "tessera/cluster/cluster.h"

namespace tessera {

// Returns the number and the names of the devices: "64 H100"; "8 A100, 8 V100" for a cluster of
// two kinds of nodes.
std::string machine_headline(const Cluster& cluster);

}  // namespace tessera
