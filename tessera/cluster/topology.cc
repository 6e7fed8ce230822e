#include "tessera/cluster/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Devices of a node that share a NIC, as paths see them: min(devices, NICs) groups.
int64_t nic_groups(const NodeType& type) { return std::min(type.nics, type.devices); }
double group_rate(const NodeType& type) {
  return type.nic.rate * static_cast<double>(type.nics) / static_cast<double>(nic_groups(type));
}
int64_t group_of(const NodeType& type, int64_t local) {
  return local * nic_groups(type) / type.devices;
}
int64_t socket_of(const NodeType& type, int64_t local) {
  return local * type.sockets / type.devices;
}
// Links of a node's bridge: from socket a to socket b, a != b.
int64_t bridge_index(const NodeType& type, int64_t a, int64_t b) {
  return a * (type.sockets - 1) + (b < a ? b : b - 1);
}

}  // namespace

Topology::Topology(const Cluster& cluster) : cluster_(cluster) {
  add_nodes();
  add_tiers();
}

int64_t Topology::add(double capacity, Name name) {
  capacities_.push_back(capacity);
  names_.push_back(name);
  return static_cast<int64_t>(capacities_.size()) - 1;
}

void Topology::add_nodes() {
  int64_t device = 0;
  nodes_.reserve(static_cast<size_t>(cluster_.nodes()));
  for (size_t p = 0; p < cluster_.parts.size(); ++p) {
    const NodeType& type = cluster_.parts[p].type;
    for (int64_t i = 0; i < cluster_.parts[p].nodes; ++i, device += type.devices) {
      const auto index = static_cast<int64_t>(nodes_.size());
      Node node;
      node.part = static_cast<int64_t>(p);
      node.inner = static_cast<int64_t>(capacities_.size());
      if (!type.inner.switched) {
        add(type.inner.rate, {Kind::kInnerShared, index});
      } else {
        for (int64_t d = 0; d < type.devices; ++d) {
          add(type.inner.rate, {Kind::kInnerOut, device + d});
          add(type.inner.rate, {Kind::kInnerIn, device + d});
        }
      }
      node.bridge = static_cast<int64_t>(capacities_.size());
      for (int64_t a = 0; a < type.sockets; ++a) {
        for (int64_t b = 0; b < type.sockets; ++b) {
          if (a != b) add(type.bridge.rate, {Kind::kBridge, index, a, b});
        }
      }
      node.nic = static_cast<int64_t>(capacities_.size());
      node.nics = nic_groups(type);
      for (int64_t n = 0; n < node.nics; ++n) {
        add(group_rate(type), {Kind::kNicOut, index, n});
        add(group_rate(type), {Kind::kNicIn, index, n});
      }
      nodes_.push_back(node);
    }
  }
}

// Index of the switch of `tier` above a NIC of `rail` of a node. Only the first tier of a
// rail-aligned fabric has one for each rail.
int64_t Topology::switches_above(int64_t node, int64_t rail, size_t tier) const {
  return node / tiers_[tier].nodes * tiers_[tier].rails + rail % tiers_[tier].rails;
}

void Topology::add_tiers() {
  // The last tier joins everything: nothing is above it.
  const size_t count = cluster_.tiers.empty() ? 0 : cluster_.tiers.size() - 1;
  const auto nodes = static_cast<int64_t>(nodes_.size());
  int64_t covered = 1;
  std::vector<double> below;
  for (size_t t = 0; t < count; ++t) {
    covered *= cluster_.tiers[t].radix;
    int64_t rails = 1;
    if (t == 0 && cluster_.rail_aligned) {
      for (const Node& node : nodes_) rails = std::max(rails, node.nics);
    }
    tiers_.push_back({static_cast<int64_t>(capacities_.size()), covered, rails});
    std::vector<double> above(static_cast<size_t>((nodes + covered - 1) / covered * rails), 0);
    if (t == 0) {
      for (int64_t node = 0; node < nodes; ++node) {
        const Node& from = nodes_[static_cast<size_t>(node)];
        for (int64_t n = 0; n < from.nics; ++n) {
          above[static_cast<size_t>(switches_above(node, n, t))] +=
              capacities_[static_cast<size_t>(from.nic + 2 * n)];
        }
      }
    } else {
      const int64_t radix_of_all = tiers_[t - 1].rails * cluster_.tiers[t].radix;
      for (size_t i = 0; i < below.size(); ++i) {
        above[static_cast<size_t>(static_cast<int64_t>(i) / radix_of_all)] += below[i];
      }
    }
    for (size_t i = 0; i < above.size(); ++i) {
      above[i] /= cluster_.tiers[t].oversubscription;
      const auto index = static_cast<int64_t>(i);
      add(above[i], {Kind::kUp, static_cast<int64_t>(t), index});
      add(above[i], {Kind::kDown, static_cast<int64_t>(t), index});
    }
    below = std::move(above);
  }
}

std::string Topology::link_text(int64_t link) const {
  const Name& name = names_[static_cast<size_t>(link)];
  switch (name.kind) {
    case Kind::kInnerOut: return fmt::format("device {} out", name.owner);
    case Kind::kInnerIn: return fmt::format("device {} in", name.owner);
    case Kind::kInnerShared: return fmt::format("node {} inner", name.owner);
    case Kind::kBridge:
      return fmt::format("node {} socket {} to {}", name.owner, name.index, name.target);
    case Kind::kNicOut: return fmt::format("node {} nic {} out", name.owner, name.index);
    case Kind::kNicIn: return fmt::format("node {} nic {} in", name.owner, name.index);
    case Kind::kUp: return fmt::format("tier {} switch {} up", name.owner, name.index);
    case Kind::kDown: return fmt::format("tier {} switch {} down", name.owner, name.index);
  }
  return "";
}

// Between two devices of a node, given by their numbers in it.
void Topology::inner_path(const Node& node, int64_t from, int64_t to, Path& path) const {
  const NodeType& type = cluster_.parts[static_cast<size_t>(node.part)].type;
  const int64_t a = socket_of(type, from);
  const int64_t b = socket_of(type, to);
  path.latency_s += type.inner.latency_s;
  path.links.push_back(type.inner.switched ? node.inner + 2 * from : node.inner);
  if (a != b) {
    path.links.push_back(node.bridge + bridge_index(type, a, b));
    path.latency_s += type.bridge.latency_s;
  }
  if (type.inner.switched) path.links.push_back(node.inner + 2 * to + 1);
}

Path Topology::path(int64_t from, int64_t to) const {
  Path path;
  if (from == to) return path;
  const Location a = cluster_.locate(from);
  const Location b = cluster_.locate(to);
  const Node& sender = nodes_[static_cast<size_t>(a.node)];
  const Node& receiver = nodes_[static_cast<size_t>(b.node)];
  path.tier = cluster_.tier_between(a.node, b.node);
  if (a.node == b.node) {
    inner_path(sender, a.local, b.local, path);
    return path;
  }
  const NodeType& from_type = cluster_.parts[static_cast<size_t>(a.part)].type;
  const NodeType& to_type = cluster_.parts[static_cast<size_t>(b.part)].type;
  TESSERA_CHECK(sender.nics > 0 && receiver.nics > 0, "nodes {} and {} have no network", a.node,
                b.node);
  const int64_t rail = group_of(to_type, b.local);
  int64_t nic = group_of(from_type, a.local);
  if (cluster_.rail_aligned && nic != rail && rail < sender.nics) {
    // The first device on that rail is the forwarding peer.
    const int64_t peer = (rail * from_type.devices + sender.nics - 1) / sender.nics;
    inner_path(sender, a.local, peer, path);
    nic = rail;
  }
  path.links.push_back(sender.nic + 2 * nic);
  path.latency_s += std::max(from_type.nic.latency_s, to_type.nic.latency_s);
  const auto top = static_cast<size_t>(path.tier);
  for (size_t t = 0; t < std::min(top, tiers_.size()); ++t) {
    path.links.push_back(tiers_[t].first + 2 * switches_above(a.node, nic, t));
    path.latency_s += 2 * cluster_.tiers[t].latency_s;  // on the way up and down
  }
  if (top < cluster_.tiers.size()) path.latency_s += cluster_.tiers[top].latency_s;
  for (size_t t = std::min(top, tiers_.size()); t-- > 0;) {
    path.links.push_back(tiers_[t].first + 2 * switches_above(b.node, rail, t) + 1);
  }
  path.links.push_back(receiver.nic + 2 * rail + 1);
  return path;
}

std::vector<double> fair_shares(std::span<const double> capacities, std::span<const Flow> flows) {
  // Links in use, by their number among the uses.
  std::vector<int64_t> used;
  for (const Flow& flow : flows) {
    for (const LinkUse& use : flow.uses) used.push_back(use.link);
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  const auto slot = [&](int64_t link) {
    return static_cast<size_t>(std::lower_bound(used.begin(), used.end(), link) - used.begin());
  };
  std::vector<double> room(used.size());    // left by the flows that are settled
  std::vector<double> weight(used.size());  // of the flows that still grow
  for (size_t i = 0; i < used.size(); ++i) room[i] = capacities[static_cast<size_t>(used[i])];
  std::vector<double> rates(flows.size(), kInfinity);
  std::vector<size_t> growing;
  for (size_t f = 0; f < flows.size(); ++f) growing.push_back(f);
  while (!growing.empty()) {
    std::fill(weight.begin(), weight.end(), 0.0);
    double level = kInfinity;
    for (const size_t f : growing) {
      for (const LinkUse& use : flows[f].uses) weight[slot(use.link)] += use.weight;
      level = std::min(level, flows[f].cap);
    }
    for (size_t i = 0; i < used.size(); ++i) {
      if (weight[i] > 0) level = std::min(level, std::max(room[i], 0.0) / weight[i]);
    }
    if (level == kInfinity) break;  // neither links nor caps bind the rest
    std::vector<size_t> rest;
    for (const size_t f : growing) {
      const bool full =
          std::any_of(flows[f].uses.begin(), flows[f].uses.end(), [&](const LinkUse& use) {
            const size_t i = slot(use.link);
            return use.weight > 0 && std::max(room[i], 0.0) / weight[i] <= level;
          });
      if (!full && flows[f].cap > level) {
        rest.push_back(f);
        continue;
      }
      rates[f] = level;
    }
    for (const size_t f : growing) {
      if (rates[f] == kInfinity) continue;
      for (const LinkUse& use : flows[f].uses) room[slot(use.link)] -= use.weight * level;
    }
    growing = std::move(rest);
  }
  return rates;
}

}  // namespace tessera
