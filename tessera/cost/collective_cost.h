// Predicts the cost of one collective or message on a cluster. docs/reference/collective-costs.md
// says which rule is used for which collective.
//
//   const CollectiveCosts costs(cluster, style);
//   const GroupPlacement where = place_group(cluster, {0, 8, 16, 24}, /*groups_a_node=*/8);
//   costs.collective(CollectiveKind::kAllReduce, where, bytes).seconds();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/figure.h"
#include "tessera/cost/style.h"

namespace tessera {

// A `GroupPlacement` describes how the members of a group are spread over nodes and switches.
// Groups with equal placements have equal costs, whichever devices their members are.
struct GroupPlacement {
  int64_t members = 1;
  int64_t nodes = 1;           // number of nodes with at least one member
  int64_t members_a_node = 1;  // largest number of members in one node
  // Number of groups of the same axes that communicate on a node at the same time. They share the
  // NICs of the node, and its inner link if that is not switched.
  int64_t groups_a_node = 1;
  int64_t sockets = 1;  // largest number of sockets of one node that have a member
  // Latency that the switches and lines of the network add to a message between the members that
  // are farthest apart.
  double fabric_s = 0;
  // The narrowest way that messages of the group take between switches: its rate in bytes/s in each
  // direction (0: no way is narrower than the network cards), the number of nodes that send through
  // it at the same time, and the number of the group's nodes below it. In a ring the nodes below a
  // switch are neighbours, so that only one message of the group at a time passes its way up.
  double uplink_rate = 0;
  int64_t nodes_an_uplink = 1;
  int64_t nodes_below = 1;
  // A device of the slowest part of the cluster with members; gives the node type.
  int64_t device = 0;
  friend auto operator<=>(const GroupPlacement&, const GroupPlacement&) = default;
};
// Returns the placement of a group of devices. `groups_a_node` becomes the member of this name.
// `at_work`: by node of the cluster, whether it takes part when such groups communicate, which says
// how many nodes share a way between switches. Null: all nodes take part.
GroupPlacement place_group(const Cluster& cluster, const std::vector<int64_t>& devices,
                           int64_t groups_a_node, const std::vector<bool>* at_work = nullptr);

// Returns the number of the lowest switch above a node: of the first tier, or of the switches.
int64_t lowest_switch(const Cluster& cluster, int64_t node);

// An `ExchangeLoad` says how many bytes of an exchange stay inside a node and how many leave it.
// These differ from exchange to exchange: in an all-to-all every member sends equally much to all
// others, but in a halo exchange members send only to neighbours, few of which are in other nodes.
// The bytes are those sent or those received, whichever are more.
struct ExchangeLoad {
  int64_t inside = 0;          // bytes of the busiest member, to or from members of its own node
  int64_t leaving = 0;         // bytes of the busiest member, to or from other nodes
  int64_t leaving_a_node = 0;  // bytes of the busiest node, to or from other nodes
  int64_t nodes_reached = 0;   // largest number of other nodes to which one node sends
  int64_t peers = 0;           // largest number of members of other nodes to which one member sends
  // Compares the fields. If all fields are 0, the load is not known, and the exchange costs as much
  // as an all-to-all.
  friend auto operator<=>(const ExchangeLoad&, const ExchangeLoad&) = default;
};

struct CollectiveCost {
  double latency_s = 0;   // time before the first bytes arrive
  double transfer_s = 0;  // time of the bytes, if nothing else uses the links
  // The next two are shares, 0 to 1, of a member's links that the collective uses while it runs.
  double inner_fraction = 0;  // share of the device's link inside the node
  double nic_fraction = 0;    // share of the device's part of the NIC rate
  double units = 0;           // number of the device's units that communication kernels take
  std::string algorithm;      // "ring/simple", "nvls", "hierarchical", "measured"
  CostSource source = CostSource::kConstant;
  double uncertainty = 0;
  double seconds() const { return latency_s + transfer_s; }
};

class CollectiveCosts {
 public:
  CollectiveCosts(const Cluster& cluster, const Style& style);
  // Returns the cost of a collective. `bytes`, at least 0, is the size of the full array on one
  // member. For all-reduce this is the input or the output, for all-gather the output, for
  // reduce-scatter the input, for all-to-all the input. `load` describes an exchange over several
  // nodes; for other kinds it is ignored.
  CollectiveCost collective(CollectiveKind kind, const GroupPlacement& where, int64_t bytes,
                            const ExchangeLoad& load = {}) const;
  // Returns the cost of a message between two devices. `share`: the number of such messages that
  // leave the node at the same time.
  CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share = 1) const;
  // Returns the cost of a message between the two members of a placed pair, whose groups_a_node is
  // the number of such messages that leave the node at the same time.
  CollectiveCost message(int64_t from, int64_t to, const GroupPlacement& pair, int64_t bytes) const;
  // Returns the cost of a copy between memory tiers of one device. The copy uses the host link. If
  // `to_disk` or `from_disk`, it also uses the disk of the node, which all its devices share.
  CollectiveCost copy(int64_t device, bool to_disk, bool from_disk, int64_t bytes) const;

 private:
  CollectiveCost price(CollectiveKind kind, const GroupPlacement& where, int64_t bytes,
                       const ExchangeLoad& load) const;

  const Cluster* cluster_;  // both pointers: the objects must outlive this one
  const Style* style_;
};

}  // namespace tessera
