#include "tessera/network/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tessera/base/text.h"
#include "tessera/base/units.h"

namespace tessera::network {
namespace {

constexpr double kMostDifference = 0.1;  // of two figures that are taken for the same

std::string rate_text(double rate) { return short_quantity(rate, Quantity::kBytesPerSecond); }

// Returns whether two figures with relative errors may be the same.
bool agree(double a, double a_error, double b, double b_error) {
  const double most = std::max(kMostDifference, 3 * std::hypot(a_error, b_error));
  return std::abs(a - b) <= most * std::max(std::abs(a), std::abs(b));
}

// The names of two sources in messages.
struct Sources {
  std::string_view from, into;
};

// Takes over a rate with its error, or checks that both sources agree on it. If both know the rate,
// the one with the smaller error stays, and with equal errors that of `into`.
Status merge_rate(const Sources& sources, const std::string& whose, double rate, double error,
                  double& into, double& into_error) {
  if (rate == 0) return {};
  if (into == 0) {
    into = rate;
    into_error = error;
    return {};
  }
  if (!agree(rate, error, into, into_error)) {
    return invalid_input(fmt::format("{} of {} in {}, but {} in {}", whose, rate_text(into),
                                     sources.into, rate_text(rate), sources.from));
  }
  if (error > 0 && error < into_error) {
    into = rate;
    into_error = error;
  }
  return {};
}

Status merge_text(const Sources& sources, const std::string& whose, const std::string& from,
                  std::string& into) {
  if (from.empty() || from == into) return {};
  if (into.empty()) {
    into = from;
    return {};
  }
  return invalid_input(fmt::format("{} is '{}' in {}, but '{}' in {}", whose, into, sources.into,
                                   from, sources.from));
}

// Joins two networks. A switch of `from` gets the name that it has in `into`, which is found by the
// nodes below it and then upwards, level by level.
class Merger {
 public:
  Merger(const Network& from, const Sources& sources, Network& into)
      : from_(from), sources_(sources), into_(into) {
    for (size_t i = 0; i < into.nodes.size(); ++i) nodes_[into.nodes[i].name] = i;
    for (size_t i = 0; i < into.switches.size(); ++i) switches_[into.switches[i].name] = i;
    for (const NetworkSwitch& one : from.switches) theirs_[one.name] = &one;
  }

  Status run() {
    TESSERA_TRY_VOID(match_leaves());
    TESSERA_TRY_VOID(match_upwards());
    name_the_others();
    TESSERA_TRY_VOID(add_switches());
    TESSERA_TRY_VOID(add_nodes());
    TESSERA_TRY_VOID(add_paths());
    return add_inside();
  }

 private:
  // Says that switch `theirs` of `from` is switch `ours` of `into`. `why` names what is below.
  Status same(const std::string& theirs, const std::string& ours, const std::string& why) {
    const auto [name, is_new] = name_of_.try_emplace(theirs, ours);
    const auto [back, is_new_back] = back_.try_emplace(ours, theirs);
    if (name->second != ours) {
      return invalid_input(fmt::format(
          "{} is below switch '{}' in {}, but what is below '{}' there is below '{}' in {}", why,
          theirs, sources_.from, theirs, name->second, sources_.into));
    }
    if (back->second != theirs) {
      return invalid_input(fmt::format(
          "{} is below switch '{}' in {}, but what is below '{}' there is below '{}' in {}", why,
          ours, sources_.into, ours, back->second, sources_.from));
    }
    return {};
  }

  Status match_leaves() {
    for (const NetworkNode& node : from_.nodes) {
      const auto ours = nodes_.find(node.name);
      if (ours == nodes_.end() || node.below.empty()) continue;
      const std::string& below = into_.nodes[ours->second].below;
      if (below.empty()) continue;
      TESSERA_TRY_VOID(same(node.below, below, fmt::format("node '{}'", node.name)));
    }
    return {};
  }

  Status match_upwards() {
    std::vector<std::string> level;
    for (const auto& [theirs, ours] : name_of_) level.push_back(theirs);
    while (!level.empty()) {
      std::vector<std::string> next;
      for (const std::string& theirs : level) {
        const std::string& ours = name_of_.at(theirs);
        const std::string& above = theirs_.at(theirs)->above;
        const std::string& our_above = into_.switches[switches_.at(ours)].above;
        if (above.empty() || our_above.empty()) continue;
        const bool was_known = name_of_.contains(above);
        TESSERA_TRY_VOID(same(above, our_above, fmt::format("switch '{}'", theirs)));
        if (!was_known) next.push_back(above);
      }
      level = std::move(next);
    }
    return {};
  }

  // Gives each switch that only `from` has a name that `into` does not have.
  void name_the_others() {
    for (const NetworkSwitch& one : from_.switches) {
      if (name_of_.contains(one.name)) continue;
      std::string name = one.name;
      // Two switches of one name without a node in common are two switches.
      name_of_[one.name] = back_.contains(name) ? unused(name) : name;
    }
  }
  std::string unused(const std::string& name) const {
    for (int i = 2;; ++i) {
      std::string one = fmt::format("{}#{}", name, i);
      if (!switches_.contains(one) && !theirs_.contains(one)) return one;
    }
  }
  std::string renamed(const std::string& name) const {
    return name.empty() ? "" : name_of_.at(name);
  }

  Status add_switches() {
    for (const NetworkSwitch& one : from_.switches) {
      const std::string& name = name_of_.at(one.name);
      const auto [place, is_new] = switches_.try_emplace(name, into_.switches.size());
      if (is_new) into_.switches.emplace_back().name = name;
      NetworkSwitch& ours = into_.switches[place->second];
      TESSERA_TRY_VOID(merge_text(sources_, fmt::format("what is above switch '{}'", name),
                                  renamed(one.above), ours.above));
      TESSERA_TRY_VOID(merge_rate(sources_, fmt::format("switch '{}' has an uplink", name),
                                  one.uplink, one.uplink_error, ours.uplink, ours.uplink_error));
      if (ours.latency_s == 0) ours.latency_s = one.latency_s;
    }
    return {};
  }

  Status add_nodes() {
    for (const NetworkNode& node : from_.nodes) {
      const auto [place, is_new] = nodes_.try_emplace(node.name, into_.nodes.size());
      if (is_new) into_.nodes.emplace_back().name = node.name;
      NetworkNode& ours = into_.nodes[place->second];
      const std::string whose = fmt::format("node '{}'", node.name);
      TESSERA_TRY_VOID(merge_text(sources_, fmt::format("what is above {}", whose),
                                  renamed(node.below), ours.below));
      TESSERA_TRY_VOID(merge_text(sources_, fmt::format("the accelerator domain of {}", whose),
                                  node.domain, ours.domain));
      TESSERA_TRY_VOID(merge_rate(sources_, fmt::format("{} has network cards", whose), node.rate,
                                  node.rate_error, ours.rate, ours.rate_error));
      if (ours.latency_s == 0) ours.latency_s = node.latency_s;
    }
    return {};
  }

  Status add_paths() {
    for (const NetworkPath& path : from_.paths) {
      const std::string a = renamed(path.between[0]), b = renamed(path.between[1]);
      NetworkPath* found = nullptr;
      for (NetworkPath& ours : into_.paths) {
        if (ours.between == std::array{a, b} || ours.between == std::array{b, a}) found = &ours;
      }
      if (found == nullptr) {
        into_.paths.push_back({{a, b}, path.rate, path.latency_s});
        continue;
      }
      double no_error = 0;
      TESSERA_TRY_VOID(merge_rate(sources_, fmt::format("'{}' and '{}' are joined by a path", a, b),
                                  path.rate, 0, found->rate, no_error));
      if (found->latency_s == 0) found->latency_s = path.latency_s;
    }
    return {};
  }

  Status merge_count(std::string_view what, int64_t from, int64_t& into) const {
    if (from == 0 || from == into) return {};
    if (into != 0) {
      return invalid_input(fmt::format("a node has {} {} in {}, but {} in {}", into, what,
                                       sources_.into, from, sources_.from));
    }
    into = from;
    return {};
  }

  Status add_inside() {
    if (!from_.inside) return {};
    if (!into_.inside) {
      into_.inside = from_.inside;
      return {};
    }
    const NodeInside& from = *from_.inside;
    NodeInside& into = *into_.inside;
    TESSERA_TRY_VOID(merge_count("devices", from.devices, into.devices));
    TESSERA_TRY_VOID(merge_count("sockets", from.sockets, into.sockets));
    TESSERA_TRY_VOID(
        merge_count("as compute capability", from.compute_capability, into.compute_capability));
    TESSERA_TRY_VOID(merge_count("network cards", from.nics, into.nics));
    double no_error = 0;
    TESSERA_TRY_VOID(
        merge_rate(sources_, "a device has NVLinks", from.nvlink, 0, into.nvlink, no_error));
    TESSERA_TRY_VOID(
        merge_rate(sources_, "a device has a PCIe link", from.pcie, 0, into.pcie, no_error));
    return merge_rate(sources_, "a node has network cards", from.nic, 0, into.nic, no_error);
  }

  const Network& from_;
  const Sources sources_;
  Network& into_;
  std::map<std::string, size_t> nodes_, switches_;      // of `into`, by name
  std::map<std::string, const NetworkSwitch*> theirs_;  // of `from`, by name
  std::map<std::string, std::string> name_of_;          // by the name of a switch in `from`
  std::map<std::string, std::string> back_;             // by the name of a switch in `into`
};

// Puts what is known of a node's inside into its type.
void put_inside(const NodeInside& inside, NodeType& type) {
  if (inside.devices > 0) type.devices = inside.devices;
  if (inside.sockets > 0) type.sockets = inside.sockets;
  if (type.devices % type.sockets != 0) type.sockets = 1;
  if (inside.nvlink > 0 || inside.pcie > 0) {
    const bool nvlink = inside.nvlink > 0;
    type.inner.kind = nvlink ? LinkKind::kNvlink : LinkKind::kPcie;
    type.inner.rate = nvlink ? inside.nvlink : inside.pcie;
  }
  if (type.sockets > 1 && type.bridge.rate == 0) {
    type.bridge = type.inner;
    type.bridge.kind = LinkKind::kQpi;
  }
  if (inside.pcie > 0) type.host.rate = inside.pcie;
  if (inside.nics > 0) {
    type.nics = inside.nics;
    type.nic.kind = LinkKind::kNic;
    type.nic.rate = inside.nic;
  }
}

constexpr double kUnknownNicRate = 100e9 / 8;
constexpr double kUnknownNicLatency = 5e-6;

NodeType type_of(const NetworkNode& node, const Network& network, const NodeType& base) {
  NodeType type = base;
  if (network.inside) put_inside(*network.inside, type);
  if (type.nics == 0) {
    type.nics = 1;
    type.nic = {LinkKind::kNic, kUnknownNicRate, kUnknownNicLatency};
  }
  if (node.rate > 0) type.nic.rate = node.rate / static_cast<double>(type.nics);
  if (node.latency_s > 0) type.nic.latency_s = node.latency_s;
  return type;
}

}  // namespace

const NetworkNode* Network::node(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name, &NetworkNode::name);
  return found == nodes.end() ? nullptr : &*found;
}

const NetworkSwitch* Network::find_switch(std::string_view name) const {
  const auto found = std::ranges::find(switches, name, &NetworkSwitch::name);
  return found == switches.end() ? nullptr : &*found;
}

Status check(const Network& network, std::string_view source) {
  std::set<std::string> nodes;
  std::map<std::string, std::string> above;
  for (const NetworkSwitch& one : network.switches) {
    if (!above.emplace(one.name, one.above).second) {
      return invalid_input(
          fmt::format("{}: expected each switch once, found '{}' twice", source, one.name));
    }
  }
  for (const NetworkNode& node : network.nodes) {
    if (!nodes.insert(node.name).second) {
      return invalid_input(
          fmt::format("{}: expected each node once, found '{}' twice", source, node.name));
    }
    if (!node.below.empty() && !above.contains(node.below)) {
      return invalid_input(fmt::format("{}: expected a switch above node '{}', found no '{}'",
                                       source, node.name, node.below));
    }
  }
  std::set<std::string> done;  // switches from which the top is reached
  for (const auto& [name, next] : above) {
    std::set<std::string> seen;
    for (std::string at = name; !at.empty() && !done.contains(at); at = above.at(at)) {
      if (!seen.insert(at).second) {
        return invalid_input(
            fmt::format("{}: expected a tree of switches, found '{}' above itself", source, at));
      }
      if (const std::string& up = above.at(at); !up.empty() && !above.contains(up)) {
        return invalid_input(
            fmt::format("{}: expected a switch above '{}', found no '{}'", source, at, up));
      }
    }
    done.insert(seen.begin(), seen.end());
  }
  for (const NetworkPath& path : network.paths) {
    for (const std::string& end : path.between) {
      if (!above.contains(end)) {
        return invalid_input(
            fmt::format("{}: expected a path between two switches, found no '{}'", source, end));
      }
    }
  }
  return {};
}

Status merge(const Network& from, std::string_view from_source, std::string_view into_source,
             Network& into) {
  TESSERA_TRY_VOID(Merger(from, {from_source, into_source}, into).run());
  return check(into, fmt::format("{} and {}", into_source, from_source));
}

Result<Network> only_hosts(const Network& network, const std::vector<std::string>& hosts,
                           std::string_view source) {
  std::map<std::string, const NetworkNode*> nodes;
  for (const NetworkNode& node : network.nodes) nodes[node.name] = &node;
  std::map<std::string, std::string> above;
  for (const NetworkSwitch& one : network.switches) above[one.name] = one.above;
  Network out;
  out.inside = network.inside;
  std::set<std::string> used;
  for (const std::string& host : hosts) {
    const auto found = nodes.find(host);
    if (found == nodes.end()) {
      std::vector<std::string> names;
      for (const auto& [name, node] : nodes) names.push_back(name);
      return invalid_input(
          fmt::format("host '{}': expected a node of {}, found none, did you mean '{}'?", host,
                      source, nearest(host, names)));
    }
    out.nodes.push_back(*found->second);
    for (std::string at = found->second->below; !at.empty() && used.insert(at).second;)
      at = above.at(at);
  }
  for (const NetworkSwitch& one : network.switches) {
    if (used.contains(one.name)) out.switches.push_back(one);
  }
  for (const NetworkPath& path : network.paths) {
    if (used.contains(path.between[0]) && used.contains(path.between[1])) out.paths.push_back(path);
  }
  return out;
}

Result<Cluster> to_cluster(const Network& network, const std::string& name,
                           const std::vector<NodeType>& types) {
  Cluster out;
  out.name = name;
  std::map<std::string, int64_t> index;
  for (const NetworkSwitch& one : network.switches) {
    index[one.name] = static_cast<int64_t>(out.switches.size());
    out.switches.push_back({one.name, {}, -1, one.uplink, one.uplink_error, one.latency_s});
  }
  for (size_t i = 0; i < network.switches.size(); ++i) {
    if (const std::string& above = network.switches[i].above; !above.empty())
      out.switches[i].above = index.at(above);
  }
  for (const NetworkNode& one : network.nodes) {
    const NodeType& start = types.size() == 1 ? types.front() : types.at(out.hosts.size());
    const NodeType type = type_of(one, network, start);
    if (out.parts.empty() || !(out.parts.back().type == type)) out.parts.push_back({type, 0});
    ++out.parts.back().nodes;
    if (!out.switches.empty()) {
      if (one.below.empty()) {
        return invalid_input(fmt::format(
            "node '{}': expected a switch above each node or above none, found none", one.name));
      }
      out.switches[static_cast<size_t>(index.at(one.below))].nodes.push_back(
          static_cast<int64_t>(out.hosts.size()));
    }
    out.hosts.push_back(one.name);
  }
  for (const NetworkPath& path : network.paths) {
    out.paths.push_back(
        {index.at(path.between[0]), index.at(path.between[1]), path.rate, path.latency_s});
  }
  if (out.parts.empty()) return invalid_input("expected nodes in the network, found none");
  return out;
}

Network network_of(const Cluster& cluster) {
  Network out;
  for (const ClusterPart& part : cluster.parts) {
    for (int64_t i = 0; i < part.nodes; ++i) {
      const size_t number = out.nodes.size();
      NetworkNode node;
      node.name =
          number < cluster.hosts.size() ? cluster.hosts[number] : fmt::format("node{}", number);
      node.rate = part.type.nic.rate * static_cast<double>(part.type.nics);
      node.latency_s = part.type.nics > 0 ? part.type.nic.latency_s : 0;
      out.nodes.push_back(std::move(node));
    }
  }
  for (const FabricSwitch& one : cluster.switches) {
    const std::string above =
        one.above < 0 ? "" : cluster.switches[static_cast<size_t>(one.above)].name;
    out.switches.push_back({one.name, above, one.uplink_rate, one.uplink_error, one.latency_s});
    for (const int64_t node : one.nodes) out.nodes[static_cast<size_t>(node)].below = one.name;
  }
  const auto name_of = [&](int64_t i) { return cluster.switches[static_cast<size_t>(i)].name; };
  for (const FabricPath& path : cluster.paths)
    out.paths.push_back({{name_of(path.from), name_of(path.to)}, path.rate, path.latency_s});
  return out;
}

}  // namespace tessera::network
