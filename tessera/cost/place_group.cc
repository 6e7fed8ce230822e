// Places groups in the network of a cluster (place_group() of collective_cost.h).
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/small_vector.h"
#include "tessera/cost/collective_cost.h"

namespace tessera {

int64_t lowest_switch(const Cluster& cluster, int64_t node) {
  for (size_t s = 0; s < cluster.switches.size(); ++s) {
    const auto& nodes = cluster.switches[s].nodes;
    if (std::binary_search(nodes.begin(), nodes.end(), node)) return static_cast<int64_t>(s);
  }
  const int64_t radix = cluster.tiers.empty() ? 0 : cluster.tiers.front().radix;
  return radix > 0 ? node / radix : 0;
}

namespace {

// Returns the device that gives a group its node type. It is the first device of the slowest part
// of the cluster with members of the group. If the group spans nodes, the slowest part is that
// with the lowest NIC rate, and the inner rate decides between equal ones. If not, the inner rate
// comes first.
int64_t slowest_part(const Cluster& cluster, const SmallVector<int64_t, 4>& parts,
                     bool spans_nodes) {
  std::optional<std::pair<double, double>> slowest;
  int64_t found = 0, first = 0;
  for (size_t p = 0; p < cluster.parts.size(); ++p) {
    const auto& [type, nodes] = cluster.parts[p];
    if (std::find(parts.begin(), parts.end(), static_cast<int64_t>(p)) != parts.end()) {
      const double nics = static_cast<double>(type.nics) * type.nic.rate;
      const auto rates =
          spans_nodes ? std::pair{nics, type.inner.rate} : std::pair{type.inner.rate, nics};
      if (!slowest || rates < *slowest) {
        slowest = rates;
        found = first;
      }
    }
    first += nodes * type.devices;
  }
  return found;
}

struct MembersOfNode {
  int64_t node = 0, count = 0;
  friend auto operator<=>(const MembersOfNode&, const MembersOfNode&) = default;
};
using NodeMembers = SmallVector<MembersOfNode, 8>;

// A way up from a switch that the messages of a group pass: the nodes of the group below it, its
// rate, and all nodes below it.
struct WayUp {
  int64_t group_nodes = 0;
  double rate = 0;
  int64_t sharing = 1;
};

// Makes the way the narrowest of the placement, if it leaves a ring of the group a lower rate.
void narrow(const WayUp& way, GroupPlacement& out) {
  if (way.rate <= 0) return;
  const auto ring_rate = [](double rate, int64_t below, int64_t sharing) {
    return rate * static_cast<double>(below) / static_cast<double>(sharing);
  };
  if (out.uplink_rate > 0 && ring_rate(way.rate, way.group_nodes, way.sharing) >=
                                 ring_rate(out.uplink_rate, out.nodes_below, out.nodes_an_uplink)) {
    return;
  }
  out.uplink_rate = way.rate;
  out.nodes_an_uplink = way.sharing;
  out.nodes_below = way.group_nodes;
}

// Sets how the group lies in a network of tiers. Goes from tier to tier upwards until one switch is
// above all nodes of the group. `members`: the entries of the nodes, in ascending order of nodes.
void climb_tiers(const Cluster& cluster, const NodeMembers& members, double node_rate,
                 const std::vector<bool>* at_work, GroupPlacement& out) {
  NodeMembers below;  // nodes of the group below each switch; at first each node by itself
  for (const MembersOfNode& one : members) below.push_back({one.node, 1});
  int64_t span = 1;  // nodes below a switch of the tier below
  double oversubscription = 1;
  for (const FabricTier& tier : cluster.tiers) {
    out.fabric_s += tier.latency_s;
    span = tier.radix > 0 ? span * tier.radix : cluster.nodes();
    size_t above = 0;  // index of the switch to which the entries so far belong
    for (size_t i = 0; i < below.size(); ++i) {
      const int64_t id = tier.radix > 0 ? below[i].node / tier.radix : 0;
      if (i > 0 && below[above].node == id) {
        below[above].count += below[i].count;
      } else {
        above = i > 0 ? above + 1 : 0;
        below[above] = {id, below[i].count};
      }
    }
    below.resize(above + 1);
    if (below.size() == 1) return;
    oversubscription *= tier.oversubscription;
    if (oversubscription <= 1) continue;
    // All switches of a tier are alike. The one with the most nodes of the group decides how many
    // messages go up, and the one with the most nodes at work how many share a way: of a message,
    // that of the sender.
    int64_t most = 1, sharing = 1, nodes = 1;
    for (const MembersOfNode& one : below) {
      const int64_t first = one.node * span, end = std::min(first + span, cluster.nodes());
      int64_t working = end - first;
      if (at_work != nullptr) {
        working = std::count(at_work->begin() + first, at_work->begin() + end, true);
      }
      most = std::max(most, one.count);
      sharing = std::max({sharing, working, one.count});
      nodes = std::max(nodes, end - first);
    }
    narrow({most, node_rate * static_cast<double>(nodes) / oversubscription, sharing}, out);
  }
}

// The switches of a network and what is below each of them.
class SwitchTree {
 public:
  explicit SwitchTree(const Cluster& cluster, const std::vector<bool>* at_work)
      : cluster_(cluster), switches_(cluster.switches), paths_(cluster.paths), at_work_(at_work) {}

  // Sets how the group lies in the tree. `members`: the entries of its nodes.
  void climb(const NodeMembers& members, GroupPlacement& out) const {
    const size_t n = switches_.size();
    std::vector<int64_t> below(n, 0);  // by switch: nodes of the group below it
    std::vector<double> way_s(n, 0);   // by switch: the longest latency from a node up to it
    std::vector<size_t> touched;
    for (const MembersOfNode& one : members) {
      double latency = 0;
      for (int64_t s = lowest_switch(cluster_, one.node); s >= 0; s = at(s).above) {
        const auto i = static_cast<size_t>(s);
        if (below[i]++ == 0) touched.push_back(i);
        way_s[i] = std::max(way_s[i], latency);
        latency += at(s).latency_s;
      }
    }
    const auto all = static_cast<int64_t>(members.size());
    // The lowest switch that has the whole group below it; without one, the ideal core.
    int64_t top = -1;
    for (const size_t s : touched) {
      if (below[s] == all && (top < 0 || is_below(static_cast<int64_t>(s), top))) {
        top = static_cast<int64_t>(s);
      }
    }
    std::vector<size_t> parts;  // the switches directly below `top` that have nodes of the group
    int64_t most = 1;
    for (const size_t s : touched) {
      if (switches_[s].above != top || below[s] == all) continue;
      parts.push_back(s);
      most = std::max(most, below[s]);
    }
    std::sort(parts.begin(), parts.end());
    for (const size_t s : touched) {
      if (below[s] == all) continue;
      const int64_t working = std::max<int64_t>(1, sharing(s));
      narrow({std::max(most, below[s]), switches_[s].uplink_rate, working}, out);
    }
    if (parts.empty()) {
      out.fabric_s = top < 0 ? 0 : way_s[static_cast<size_t>(top)] + at(top).latency_s;
      return;
    }
    // A ring goes from part to part and back to the first.
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t a = parts[i], b = parts[(i + 1) % parts.size()];
      double latency = top < 0 ? 0 : at(top).latency_s;
      if (const FabricPath* path = path_between(a, b)) {
        latency = path->latency_s;
        // While a message moves, only the sender's side has nodes at work.
        const auto [fewer, more] = std::minmax({sharing(a), sharing(b)});
        narrow({most, path->rate, std::max<int64_t>(1, fewer > 0 ? fewer : more)}, out);
      }
      for (const size_t end : {a, b}) latency += way_s[end] + switches_[end].latency_s;
      out.fabric_s = std::max(out.fabric_s, latency);
    }
  }

 private:
  const FabricSwitch& at(int64_t s) const { return switches_[static_cast<size_t>(s)]; }
  bool is_below(int64_t s, int64_t other) const {
    while (s >= 0 && s != other) s = at(s).above;
    return s == other;
  }
  // Returns how many nodes at work are below a switch.
  int64_t sharing(size_t s) const {
    int64_t count = 0;
    for (size_t leaf = 0; leaf < switches_.size(); ++leaf) {
      if (!is_below(static_cast<int64_t>(leaf), static_cast<int64_t>(s))) continue;
      for (const int64_t node : switches_[leaf].nodes) {
        count += at_work_ == nullptr || (*at_work_)[static_cast<size_t>(node)] ? 1 : 0;
      }
    }
    return count;
  }
  const FabricPath* path_between(size_t a, size_t b) const {
    const auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
    for (const FabricPath& path : paths_) {
      if ((path.from == x && path.to == y) || (path.from == y && path.to == x)) return &path;
    }
    return nullptr;
  }

  const Cluster& cluster_;
  const std::vector<FabricSwitch>& switches_;
  const std::vector<FabricPath>& paths_;
  const std::vector<bool>* at_work_;
};
}  // namespace

GroupPlacement place_group(const Cluster& cluster, const std::vector<int64_t>& devices,
                           int64_t groups_a_node, const std::vector<bool>* at_work) {
  TESSERA_CHECK(!devices.empty(), "a group without members");
  GroupPlacement out;
  out.members = static_cast<int64_t>(devices.size());
  out.groups_a_node = groups_a_node;
  NodeMembers members;
  SmallVector<int64_t, 4> parts;
  // Sockets with a member: (node, number in the node).
  SmallVector<std::array<int64_t, 2>, 8> sockets;
  for (const int64_t device : devices) {
    const Location location = cluster.locate(device);
    if (members.empty() || members.back().node != location.node) {
      members.push_back({location.node, 0});
      if (std::find(parts.begin(), parts.end(), location.part) == parts.end())
        parts.push_back(location.part);
    }
    ++members.back().count;
    const NodeType& type = cluster.parts[static_cast<size_t>(location.part)].type;
    if (type.sockets > 1)
      sockets.push_back({location.node, location.local * type.sockets / type.devices});
  }
  // Joins entries of the same node. A node has several entries if its members do not follow each
  // other in the group.
  std::sort(members.begin(), members.end());
  size_t kept = 0;
  for (size_t i = 1; i < members.size(); ++i) {
    if (members[i].node == members[kept].node) {
      members[kept].count += members[i].count;
    } else {
      members[++kept] = members[i];
    }
  }
  members.resize(kept + 1);
  out.nodes = static_cast<int64_t>(members.size());
  for (const MembersOfNode& one : members)
    out.members_a_node = std::max(out.members_a_node, one.count);
  std::sort(sockets.begin(), sockets.end());
  sockets.erase(std::unique(sockets.begin(), sockets.end()), sockets.end());
  int64_t of_node = 0;
  for (size_t i = 0; i < sockets.size(); ++i) {
    of_node = i > 0 && sockets[i][0] == sockets[i - 1][0] ? of_node + 1 : 1;
    out.sockets = std::max(out.sockets, of_node);
  }
  out.device = slowest_part(cluster, parts, out.nodes > 1);
  if (out.nodes > 1) {
    const NodeType& type = cluster.type_of(out.device);
    const double node_rate = static_cast<double>(type.nics) * type.nic.rate;
    if (!cluster.switches.empty()) {
      SwitchTree(cluster, at_work).climb(members, out);
    } else {
      climb_tiers(cluster, members, node_rate, at_work, out);
    }
  }
  return out;
}

}  // namespace tessera
