#include "tessera/cluster/subcluster.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

// Returns the switch directly above each node; -1: none.
std::vector<int64_t> switch_of_node(const Cluster& cluster) {
  std::vector<int64_t> out(static_cast<size_t>(cluster.nodes()), -1);
  for (size_t s = 0; s < cluster.switches.size(); ++s) {
    for (const int64_t node : cluster.switches[s].nodes)
      out[static_cast<size_t>(node)] = static_cast<int64_t>(s);
  }
  return out;
}

}  // namespace

std::vector<std::vector<int64_t>> sites_of(const Cluster& cluster) {
  std::vector<bool> has_line(cluster.switches.size(), false);
  for (const FabricPath& path : cluster.paths)
    has_line[static_cast<size_t>(path.from)] = has_line[static_cast<size_t>(path.to)] = true;
  std::vector<std::vector<int64_t>> sites;
  std::map<int64_t, size_t> site_of;  // by switch
  const std::vector<int64_t> lowest = switch_of_node(cluster);
  for (int64_t node = 0; node < cluster.nodes(); ++node) {
    int64_t at = lowest[static_cast<size_t>(node)];
    while (at >= 0 && !has_line[static_cast<size_t>(at)])
      at = cluster.switches[static_cast<size_t>(at)].above;
    if (cluster.paths.empty()) at = 0;
    const auto [known, fresh] = site_of.emplace(at, sites.size());
    if (fresh || at < 0) {
      sites.push_back({node});
    } else {
      sites[known->second].push_back(node);
    }
  }
  return sites;
}

Cluster only_nodes(const Cluster& cluster, const std::vector<int64_t>& nodes) {
  Cluster out = cluster;
  out.parts.clear();
  out.switches.clear();
  out.paths.clear();
  out.hosts.clear();
  std::vector<int64_t> number(static_cast<size_t>(cluster.nodes()), -1);  // in the new cluster
  int64_t first = 0;
  for (const ClusterPart& part : cluster.parts) {
    const auto end = std::lower_bound(nodes.begin(), nodes.end(), first + part.nodes);
    const auto begin = std::lower_bound(nodes.begin(), nodes.end(), first);
    for (auto node = begin; node != end; ++node)
      number[static_cast<size_t>(*node)] = node - nodes.begin();
    if (begin != end) out.parts.push_back({part.type, end - begin});
    first += part.nodes;
  }
  if (!cluster.hosts.empty()) {
    for (const int64_t node : nodes) out.hosts.push_back(cluster.hosts[static_cast<size_t>(node)]);
  }
  const std::vector<int64_t> lowest = switch_of_node(cluster);
  std::vector<bool> kept(cluster.switches.size(), false);
  for (const int64_t node : nodes) {
    for (int64_t at = lowest[static_cast<size_t>(node)]; at >= 0;
         at = cluster.switches[static_cast<size_t>(at)].above)
      kept[static_cast<size_t>(at)] = true;
  }
  std::vector<int64_t> renumbered(cluster.switches.size(), -1);
  for (size_t s = 0; s < cluster.switches.size(); ++s) {
    if (!kept[s]) continue;
    renumbered[s] = std::ssize(out.switches);
    out.switches.push_back(cluster.switches[s]);
    out.switches.back().nodes.clear();
    for (const int64_t node : cluster.switches[s].nodes) {
      if (number[static_cast<size_t>(node)] >= 0)
        out.switches.back().nodes.push_back(number[static_cast<size_t>(node)]);
    }
  }
  for (FabricSwitch& one : out.switches) {
    if (one.above >= 0) one.above = renumbered[static_cast<size_t>(one.above)];
  }
  for (FabricPath path : cluster.paths) {
    path.from = renumbered[static_cast<size_t>(path.from)];
    path.to = renumbered[static_cast<size_t>(path.to)];
    if (path.from >= 0 && path.to >= 0) out.paths.push_back(path);
  }
  return out;
}

}  // namespace tessera
