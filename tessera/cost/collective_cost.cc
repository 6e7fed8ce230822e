#include "tessera/cost/collective_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/small_vector.h"
#include "tessera/cost/collective_curves.h"
#include "tessera/cost/collective_profile.h"
#include "tessera/cost/nccl_tuner.h"

namespace tessera {
namespace {

// Latency of the NIC that is contained in the tuner's constants. The difference of a cluster's NIC
// from it is added.
constexpr double kTunerNicSeconds = 12e-6;
constexpr double kTunerError = .25, kRuleError = .3;
constexpr int64_t kMeasuredDevices = 8;  // devices of a node on which all-to-alls were measured
constexpr double kDiskRate = 1e9;        // bytes/s of the disk of a node whose description has none
// Least members for reduction in the switch; fewer use a ring (H200: 4).
constexpr int64_t kSwitchSumMembers = 5;

struct Machine {
  const Cluster& cluster;
  const NodeType& type;
  const Style& style;
  const GroupPlacement& where;
};

bool is_direct(const Link& link) {
  return link.kind == LinkKind::kNvlink || link.kind == LinkKind::kDirect;
}

// Returns the bus rate of one group inside the node.
double inner_bus(const Machine& at) {
  const Link& inner = at.type.inner;
  const int64_t active = std::max<int64_t>(at.where.members_a_node, 1) * at.where.groups_a_node;
  double rate = inner.rate * at.style.inner_efficiency;
  if (!inner.switched && !is_direct(inner)) rate /= static_cast<double>(active);
  if (is_direct(inner)) rate *= at.type.device.generation->ring_share;
  if (inner.kind == LinkKind::kPcie && inner.switched) rate *= pcie_share(active);
  return rate;
}

// Returns whether members are on several sockets and communicate through the host, so that they
// share the link between the sockets.
bool bridged(const Machine& at) {
  return at.where.sockets > 1 && !is_direct(at.type.inner) && at.type.bridge.rate > 0;
}
double bridge_rate(const Machine& at) {
  return at.type.bridge.rate * at.style.inner_efficiency /
         static_cast<double>(at.where.groups_a_node);
}
// Returns the bus rate of rings inside the node. If the members are on several sockets, an edge
// of the ring crosses the link between them in each direction, so that the rate of this link is
// a limit.
double ring_bus(const Machine& at) {
  return bridged(at) ? std::min(inner_bus(at), bridge_rate(at)) : inner_bus(at);
}

// Returns the latency of a message in the network minus the latency that is contained in the
// tuner's constants; may be negative.
double network_lag(const Machine& at) {
  return at.where.fabric_s + at.type.nic.latency_s - kTunerNicSeconds;
}

// nics_near returns the number of NICs that belong to the group's members in a node, at least 1.
// nics_of_group returns how many NICs the group may use at most if the groups of a node share
// its NICs.
double nics_near(const Machine& at) {
  const auto near = static_cast<double>(at.where.members_a_node * at.type.nics) /
                    static_cast<double>(at.type.devices);
  return std::max(1., std::ceil(near));
}
double nics_of_group(const Machine& at) {
  return std::min(nics_near(at),
                  static_cast<double>(at.type.nics) / static_cast<double>(at.where.groups_a_node));
}

// Returns the rate at which one node of the group can send through the narrowest way between
// switches while all nodes and groups that share the way do so; infinite if there is none.
double node_across(const Machine& at) {
  if (at.where.uplink_rate <= 0) return std::numeric_limits<double>::infinity();
  return at.where.uplink_rate /
         static_cast<double>(at.where.nodes_an_uplink * at.where.groups_a_node);
}

// Returns the bus rate of one group between nodes. This is the rate of its NICs, which a narrow way
// between switches may limit. With q nodes of the group below the way, only 1 in q edges of the
// ring passes it, so the limit is q times the rate of one node through it.
double network_bus(const Machine& at) {
  const double rate = std::min(nics_of_group(at) * at.type.nic.rate,
                               static_cast<double>(at.where.nodes_below) * node_across(at));
  return rate * at.type.device.generation->nic_share * at.style.network_efficiency;
}

TunerGroup tuner_group(CollectiveKind kind, const Machine& at) {
  TunerGroup group;
  group.kind = kind;
  group.nodes = at.where.nodes;
  group.ranks_a_node = (at.where.members + at.where.nodes - 1) / at.where.nodes;
  group.generation = at.type.device.generation;
  group.nvlink = at.type.inner.kind == LinkKind::kNvlink;
  const double inner = ring_bus(at);
  double bus = inner, network = inner;
  if (group.nodes > 1) {
    network = network_bus(at);
    bus = std::min(inner, network);
    group.network_lag_s = network_lag(at);
  }
  group.channels =
      std::max<int64_t>(2, static_cast<int64_t>(std::ceil(bus / group.generation->channel_rate)));
  const auto channels = static_cast<double>(group.channels);
  group.ring = {bus / channels, bus / channels};
  group.nvls = {inner / channels, network / channels};
  group.switch_sum = group.nvlink && at.type.inner.switched && group.generation->switch_sum &&
                     group.ranks_a_node >= kSwitchSumMembers;
  return group;
}

// Returns a lower bound on the time that the bytes need between nodes, for every algorithm. It
// assumes that the members of a node first reduce-scatter among themselves.
double network_floor(const TunerGroup& group, double bytes) {
  if (group.nodes == 1) return 0;
  const double rate = static_cast<double>(group.channels) * group.nvls.network_rate;
  return collective_volume(group.kind, group.nodes, bytes) / rate;
}

// Returns the quickest legal pair of algorithm and protocol. If the group is on several nodes, the
// tuner's times are corrected by measurements: rings get kRingNodeSeconds of latency for each node,
// and the transfer times of kNvlsTree and of rings (except with the protocol kLl) are divided by
// ring_ramp(). Between nodes a transfer takes at least network_floor().
std::optional<TunerChoice> tuned(const TunerGroup& group, int64_t bytes) {
  std::optional<TunerChoice> best;
  const auto size = static_cast<double>(bytes);
  const auto ranks = static_cast<double>(group.ranks());
  const double volume = collective_volume(group.kind, group.ranks(), size);
  for (const TunerAlgorithm algorithm : kTunerAlgorithms) {
    for (const TunerProtocol protocol : kTunerProtocols) {
      auto found = tuner_time(group, algorithm, protocol, bytes, SizeSteps::kSmooth);
      if (!found) continue;
      if (group.nodes > 1) {
        const bool ring = algorithm == TunerAlgorithm::kRing;
        if (ring) found->latency_s += static_cast<double>(group.nodes) * kRingNodeSeconds;
        found->transfer_s = std::max(found->transfer_s, network_floor(group, size));
        if ((ring && protocol != TunerProtocol::kLl) || algorithm == TunerAlgorithm::kNvlsTree) {
          const double rate = volume / found->transfer_s / static_cast<double>(group.ranks_a_node);
          found->transfer_s /= ring_ramp(size / ranks, rate);
        }
      }
      if (!best || found->seconds() < best->seconds()) best = found;
    }
  }
  return best;
}

void set_fractions(CollectiveCost& cost, CollectiveKind kind, const Machine& at, double bytes,
                   const ExchangeLoad& load) {
  const double seconds = cost.seconds();
  if (seconds <= 0) return;
  const double volume = collective_volume(kind, at.where.members, bytes);
  cost.inner_fraction = std::min(1., volume / (seconds * at.type.inner.rate));
  if (at.where.nodes > 1) {
    // For an all-to-all or exchange, these are the bytes of all members that leave the node. For
    // other kinds they are the bytes over one edge of the ring.
    const auto nodes = static_cast<double>(at.where.nodes);
    const double leaving =
        load != ExchangeLoad{} ? static_cast<double>(load.leaving_a_node)
        : kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kExchange
            ? bytes * (nodes - 1) / nodes * static_cast<double>(at.where.members_a_node)
            : volume;
    cost.nic_fraction = std::min(1., leaving / (seconds * nics_of_group(at) * at.type.nic.rate));
  }
}

// Prices a permute, in which each member sends its whole array to one other member. Over several
// nodes all members of a node send to other nodes.
CollectiveCost permute(const Machine& at, double bytes) {
  CollectiveCost cost;
  cost.algorithm = "direct";
  cost.uncertainty = kRuleError;
  const Link& inner = at.type.inner;
  const Generation generation = at.type.device.generation;
  cost.latency_s = inner.latency_s;
  double rate = inner.rate * message_share(generation, inner.kind) * at.style.inner_efficiency;
  const auto active = static_cast<double>(at.where.members_a_node * at.where.groups_a_node);
  if (!inner.switched && !is_direct(inner)) rate /= active;
  if (at.where.nodes > 1) {
    const Link& nic = at.type.nic;
    cost.latency_s = nic.latency_s + at.where.fabric_s;
    rate = std::min(rate, network_bus(at) / static_cast<double>(at.where.members_a_node));
  }
  cost.transfer_s = bytes / rate;
  return cost;
}

// An `Away` has the bytes that an exchange over nodes moves in its busier direction, and
// its latency.
struct Away {
  double leaving = 0, leaving_a_node = 0, inside = 0;  // as in ExchangeLoad
  int64_t nodes = 0;                                   // number of nodes that send to one another
  double latency_s = 0;
};
// Returns the load of an all-to-all, in which each of n members sends bytes / n to each
// other member.
Away alike(const Machine& at, double bytes) {
  const auto members = static_cast<double>(at.where.members);
  const auto nodes = static_cast<double>(at.where.nodes);
  const auto k = static_cast<double>(at.where.members_a_node);
  const double leaving = bytes * (nodes - 1) / nodes;
  return {leaving, leaving * k, bytes * (k - 1) / members, at.where.nodes,
          all_to_all_latency(at.where.nodes)};
}
// Returns the bytes of the load, with the latency of an all-to-all on measured machines. The
// number of nodes of that all-to-all is chosen so that a member has as many peers in other nodes
// as in the load.
Away away_of(const ExchangeLoad& load) {
  const int64_t nodes = load.nodes_reached + 1;
  const int64_t as_many = 1 + (load.peers + kMeasuredDevices - 1) / kMeasuredDevices;
  return {static_cast<double>(load.leaving), static_cast<double>(load.leaving_a_node),
          static_cast<double>(load.inside), nodes, all_to_all_latency(std::min(nodes, as_many))};
}

// Prices an exchange over nodes. The time is that of the slowest of three parts that run at the
// same time: the bytes through the NICs (a member uses only the NICs that belong to it), the bytes
// up through oversubscribed switches, and the bytes inside a node. On a rail-aligned fabric a
// message first goes inside the node to the device on the receiver's rail.
CollectiveCost direct_over_nodes(const Machine& at, const Away& away) {
  const auto nodes = static_cast<double>(at.where.nodes);
  const auto k = static_cast<double>(at.where.members_a_node);
  const double one = at.type.nic.rate * at.style.network_efficiency;
  const double nics = nics_of_group(at) * one;
  const double own =
      std::max(1., static_cast<double>(at.type.nics) / static_cast<double>(at.type.devices)) * one;
  const double share = std::min(kNicShare, all_to_all_nic_share(away.nodes));
  const double network = std::max(away.leaving_a_node / nics, away.leaving / own) / share;
  const auto below = static_cast<double>(at.where.nodes_below);
  const double up = away.leaving_a_node * (nodes - below) / (nodes - 1) /
                    (node_across(at) * at.style.network_efficiency * kNicShare);
  double inside = away.inside;
  if (at.cluster.rail_aligned) inside += away.leaving * (k - 1) / k;
  CollectiveCost cost;
  cost.algorithm = "direct";
  cost.uncertainty = kTunerError;
  cost.latency_s = std::max(0., away.latency_s + network_lag(at));
  cost.transfer_s = std::max({network, up, inside / inner_bus(at)});
  return cost;
}

// Returns the bus rate of one group between nodes if each member sends to every other member what
// that one takes, all at once, as our own communicators do. All messages of a member to nodes that are
// not below the narrowest way pass it.
double direct_bus(const Machine& at) {
  const auto nodes = static_cast<double>(at.where.nodes);
  const auto beyond = static_cast<double>(at.where.nodes - at.where.nodes_below);
  double rate = nics_of_group(at) * at.type.nic.rate;
  if (beyond > 0) rate = std::min(rate, node_across(at) * (nodes - 1) / beyond);
  return rate * at.cluster.exchange_share * at.type.device.generation->nic_share *
         at.style.network_efficiency;
}

// Prices collectives of host processors, and all-to-alls inside a node without measurements. The
// latency is that of one message for each step of a ring, or for each other member in an
// all-to-all. The transfer time is the volume of docs/theory/cost-model.md section 4.1 over the
// rate of the slowest link.
CollectiveCost by_steps(CollectiveKind kind, const Machine& at, double bytes) {
  const bool exchange = kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kExchange;
  const bool direct = exchange || at.type.device.synchronous;
  const auto members = static_cast<double>(at.where.members);
  const double steps = kind == CollectiveKind::kAllReduce ? 2 * (members - 1) : members - 1;
  double step = at.type.inner.latency_s;
  double rate = exchange ? inner_bus(at) : ring_bus(at);
  if (at.where.nodes > 1) {
    step = at.type.nic.latency_s + at.where.fabric_s;
    rate = std::min(rate, direct ? direct_bus(at) : network_bus(at));
  }
  CollectiveCost cost;
  cost.algorithm = direct ? "direct" : "ring";
  cost.uncertainty = kRuleError;
  cost.latency_s = steps * step;
  cost.transfer_s = collective_volume(kind, at.where.members, bytes) / rate;
  if (exchange && bridged(at)) {
    // Half of the members send half of their bytes to the other socket, so a quarter of all bytes
    // crosses the link in each direction.
    const auto k = static_cast<double>(at.where.members_a_node);
    cost.transfer_s = std::max(cost.transfer_s, k * bytes / 4 / bridge_rate(at));
  }
  return cost;
}

// Prices collectives of other makers' accelerators. The transfer time is that of by_steps(). The
// latency is that of a hierarchical ring, which has one step for each further member of a node and
// one for each further node, because the members of a node work side by side. An all-reduce uses a
// tree over the nodes if its latency is lower.
CollectiveCost by_hierarchy(CollectiveKind kind, const Machine& at, double bytes) {
  CollectiveCost cost = by_steps(kind, at, bytes);
  if (kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kExchange) return cost;
  const bool reduces_all = kind == CollectiveKind::kAllReduce;
  const auto nodes = static_cast<double>(at.where.nodes);
  double hops = nodes - 1;
  if (reduces_all) hops = std::min(hops, std::ceil(std::log2(nodes)));
  const double hop = at.type.nic.latency_s + at.where.fabric_s;
  const double inside = static_cast<double>(at.where.members_a_node - 1) * at.type.inner.latency_s;
  cost.latency_s = (reduces_all ? 2 : 1) * (inside + hops * hop);
  cost.algorithm = at.where.nodes > 1 ? "hierarchical" : "ring";
  return cost;
}

CollectiveCost from_curve(const CurvePoint& point, const Machine& at) {
  CollectiveCost cost;
  cost.latency_s = point.latency_s;
  cost.transfer_s = point.transfer_s / at.style.inner_efficiency;
  cost.source = CostSource::kCurve;
  cost.uncertainty = point.uncertainty;
  return cost;
}

}  // namespace

CollectiveCosts::CollectiveCosts(const Cluster& cluster, const Style& style)
    : cluster_(&cluster), style_(&style) {}

CollectiveCost CollectiveCosts::price(CollectiveKind kind, const GroupPlacement& where,
                                      int64_t bytes, const ExchangeLoad& load) const {
  const Machine at{*cluster_, cluster_->type_of(where.device), *style_, where};
  TESSERA_CHECK(where.nodes == 1 || at.type.nics > 0, "no network between {} nodes of {}",
                where.nodes, at.type.name);
  const auto size = static_cast<double>(bytes);
  const bool exchange = kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kExchange;
  if (kind == CollectiveKind::kPermute) return permute(at, size);
  switch (at.type.device.generation->collectives) {
    case GenerationData::Collectives::kSteps: return by_steps(kind, at, size);
    case GenerationData::Collectives::kHierarchy:
      if (where.nodes == 1 || !exchange) return by_hierarchy(kind, at, size);
      break;
    case GenerationData::Collectives::kTuner: break;
  }
  if (where.nodes == 1) {
    if (const auto point =
            inner_curve(kind, at.type.device.generation, at.type.inner, where.members, bytes)) {
      CollectiveCost cost = from_curve(*point, at);
      const auto choice = tuner_choice(tuner_group(kind, at), bytes, SizeSteps::kSmooth);
      cost.algorithm = choice ? choice->name() : "direct";
      return cost;
    }
    if (exchange) return by_steps(kind, at, size);
  } else if (exchange) {
    if (load == ExchangeLoad{}) return direct_over_nodes(at, alike(at, size));
    if (load.leaving > 0) return direct_over_nodes(at, away_of(load));
    // No bytes leave a node, so the cost is that of an exchange inside one node.
    GroupPlacement in_node = where;
    in_node.members = where.members_a_node;
    in_node.nodes = 1;
    in_node.fabric_s = in_node.uplink_rate = 0;
    const int64_t others = std::max<int64_t>(1, where.members_a_node - 1);
    return price(kind, in_node, load.inside * where.members_a_node / others, {});
  }
  const auto choice = tuned(tuner_group(kind, at), bytes);
  TESSERA_CHECK(choice.has_value(), "no algorithm for {}", collective_name(kind));
  CollectiveCost cost;
  cost.latency_s = choice->latency_s;
  cost.transfer_s = choice->transfer_s;
  cost.algorithm = choice->name();
  cost.uncertainty = kTunerError;
  return cost;
}

CollectiveCost CollectiveCosts::collective(CollectiveKind kind, const GroupPlacement& where,
                                           int64_t bytes, const ExchangeLoad& load) const {
  CollectiveCost cost;
  cost.algorithm = "none";
  if (where.members < 2 || bytes <= 0) return cost;
  const Machine at{*cluster_, cluster_->type_of(where.device), *style_, where};
  std::optional<Figure> measured;
  if (cluster_->profile != nullptr) {
    measured = profiled_collective(*cluster_->profile, collective_name(kind), where.nodes,
                                   where.members, bytes, style_->transport);
  }
  if (measured) {
    // The latency is the measured time of an array of one byte; the rest of the time is
    // the transfer.
    const auto least = profiled_collective(*cluster_->profile, collective_name(kind), where.nodes,
                                           where.members, 1, style_->transport);
    cost.latency_s = std::min(least->seconds, measured->seconds);
    cost.transfer_s = measured->seconds - cost.latency_s;
    cost.algorithm = "measured";
    cost.source = measured->source;
    cost.uncertainty = measured->uncertainty;
  } else {
    cost = price(kind, where, bytes, load);
  }
  cost.latency_s += style_->collective_gap_s;
  cost.units = std::min(at.type.device.generation->collective_units,
                        static_cast<double>(at.type.device.units));
  set_fractions(cost, kind, at, static_cast<double>(bytes), load);
  return cost;
}

CollectiveCost CollectiveCosts::message(int64_t from, int64_t to, int64_t bytes,
                                        int64_t share) const {
  return message(from, to, place_group(*cluster_, {from, to}, std::max<int64_t>(share, 1)), bytes);
}

CollectiveCost CollectiveCosts::message(int64_t from, int64_t to, const GroupPlacement& pair,
                                        int64_t bytes) const {
  CollectiveCost cost;
  cost.algorithm = "none";
  if (from == to || bytes <= 0) return cost;
  const Location a = cluster_->locate(from), b = cluster_->locate(to);
  const NodeType& type = cluster_->type_of(from);
  const NodeType& other = cluster_->type_of(to);
  const Link& inner = type.inner;
  const auto sharing = static_cast<double>(pair.groups_a_node);
  const double inside =
      inner.rate * message_share(type.device.generation, inner.kind) * style_->inner_efficiency;
  cost.algorithm = "message";
  cost.uncertainty = kRuleError;
  double rate = inside;
  if (a.node == b.node && cluster_->profile != nullptr) {
    const auto measured = profiled_message(*cluster_->profile, bytes, style_->transport);
    if (measured) {
      cost.latency_s = profiled_message(*cluster_->profile, 1, style_->transport)->seconds;
      cost.transfer_s = std::max(0., measured->seconds - cost.latency_s);
      cost.algorithm = "measured";
      cost.source = measured->source;
      cost.uncertainty = measured->uncertainty;
      cost.inner_fraction = std::min(1., rate / inner.rate);
      return cost;
    }
  }
  if (a.node == b.node) {
    cost.latency_s = inner.latency_s;
    if (!inner.switched && !is_direct(inner)) rate /= sharing;
    if (const Machine at{*cluster_, type, *style_, pair}; bridged(at)) {
      cost.latency_s += type.bridge.latency_s;
      rate = std::min(rate, bridge_rate(at));
    }
    cost.inner_fraction = rate / inner.rate;
  } else {
    const Machine at{*cluster_, type, *style_, pair};
    const auto node_rate = [&](const NodeType& end) {
      const double all = static_cast<double>(end.nics) * end.nic.rate;
      return std::min({end.nic.rate, all / sharing, node_across(at)});
    };
    rate = std::min(node_rate(type), node_rate(other)) * kNicShare * style_->network_efficiency;
    cost.latency_s = std::max(type.nic.latency_s, other.nic.latency_s) + pair.fabric_s;
    if (cluster_->rail_aligned && a.local != b.local) {
      // The message goes in chunks through the device of this node that is on the receiver's rail.
      cost.latency_s += inner.latency_s;
      cost.inner_fraction = std::min(1., rate / inner.rate);
    }
    rate = std::min(rate, inside);
    cost.nic_fraction = std::min(1., rate / node_rate(type));
  }
  cost.transfer_s = static_cast<double>(bytes) / rate;
  return cost;
}

CollectiveCost CollectiveCosts::copy(int64_t device, bool to_disk, bool from_disk,
                                     int64_t bytes) const {
  CollectiveCost cost;
  cost.algorithm = "copy";
  cost.uncertainty = kRuleError;
  if (bytes <= 0) return cost;
  const NodeType& type = cluster_->type_of(device);
  const auto sharing = static_cast<double>(type.devices);
  double rate = type.host.rate * message_share(type.device.generation, type.host.kind);
  if (!type.host.switched) rate /= sharing;
  const auto disk = [&](double stated) { return (stated > 0 ? stated : kDiskRate) / sharing; };
  if (to_disk) rate = std::min(rate, disk(type.disk_write_rate));
  if (from_disk) rate = std::min(rate, disk(type.disk_read_rate));
  cost.latency_s = type.host.latency_s;
  cost.transfer_s = static_cast<double>(bytes) / rate;
  return cost;
}

}  // namespace tessera
