// A part of a cluster as a cluster of its own: some of its nodes, with the switches above them.
//
//   const std::vector<std::vector<int64_t>> sites = sites_of(cluster);   // nodes, by site
//   const Cluster first = only_nodes(cluster, sites[0]);
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/cluster/cluster.h"

namespace tessera {

// Returns the nodes of each site: what is below a switch that a line (Cluster::paths) joins to
// another one. A node that is below no such switch is a site of its own. A cluster without lines is
// one site.
std::vector<std::vector<int64_t>> sites_of(const Cluster& cluster);

// Returns the cluster that has only these nodes, which are ascending. Switches without one of the
// nodes below them, and the lines to them, are left out. Tiers stay as they are.
Cluster only_nodes(const Cluster& cluster, const std::vector<int64_t>& nodes);

}  // namespace tessera
