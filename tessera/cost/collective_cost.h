// Prices of one collective or message on a cluster. docs/reference/collective-costs.md says which
// rule decides.
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

// A `GroupPlacement` says where the members of a group sit. Equal placements cost the same, whoever
// the members are.
struct GroupPlacement {
  int64_t members = 1;
  int64_t nodes = 1;           // that hold at least one member
  int64_t members_a_node = 1;  // the most in one node
  // Groups of the same axes that are active at the same time on a node and share its NICs (and, if
  // it is not switched, its inner link).
  int64_t groups_a_node = 1;
  int64_t sockets = 1;  // of a node, that hold a member, at most
  int64_t tier = -1;    // highest tier of the fabric that is crossed; -1: inside a node
  // The most nodes of the group under one switch of the tier below `tier`. In a ring these nodes
  // are neighbours and need not cross `tier` to one another.
  int64_t nodes_a_switch = 1;
  int64_t device = 0;  // gives the node type: the first device of the part with the slowest links
  friend auto operator<=>(const GroupPlacement&, const GroupPlacement&) = default;
};
// Returns the placement of a group of devices, where `groups_a_node` groups of the same axes are
// active at the same time on a node.
GroupPlacement place_group(const Cluster& cluster, const std::vector<int64_t>& devices,
                           int64_t groups_a_node);

// An `ExchangeLoad` says how many bytes of an exchange stay inside a node and how many leave it. In
// an all-to-all every member sends equally much to all others; in a halo exchange members send to
// neighbours only, few of which sit in other nodes. Bytes are those of the busier direction.
struct ExchangeLoad {
  int64_t inside = 0;          // of the busiest member, to or from members of its own node
  int64_t leaving = 0;         // of the busiest member, to or from other nodes
  int64_t leaving_a_node = 0;  // of the busiest node, all its members together
  int64_t nodes_reached = 0;   // other nodes that one node sends to, at most
  int64_t peers = 0;           // members of other nodes that one member sends to, at most
  // Compares the fields. All zero: the load is unknown; the price is that of an all-to-all.
  friend auto operator<=>(const ExchangeLoad&, const ExchangeLoad&) = default;
};

struct CollectiveCost {
  double latency_s = 0;   // before bytes flow
  double transfer_s = 0;  // alone on its links
  // Shares, 0..1, of a member's links that the collective uses while it runs.
  double inner_fraction = 0;  // of the device's link inside the node
  double nic_fraction = 0;    // of the NIC rate that falls to the device
  double units = 0;           // of the device's units taken by communication kernels
  std::string algorithm;      // "ring/simple", "nvls", "hierarchical", "measured"
  CostSource source = CostSource::kConstant;
  double uncertainty = 0;
  double seconds() const { return latency_s + transfer_s; }
};

class CollectiveCosts {
 public:
  CollectiveCosts(const Cluster& cluster, const Style& style);
  // Returns the cost of a collective. `bytes`, >= 0, is the size of the whole array on one member:
  // the input and output of all-reduce, the output of all-gather, the input of reduce-scatter, the
  // input of all-to-all on one member. `load` is for an exchange over several nodes; other kinds
  // ignore it.
  CollectiveCost collective(CollectiveKind kind, const GroupPlacement& where, int64_t bytes,
                            const ExchangeLoad& load = {}) const;
  // Returns the cost of a message between two devices. `share`: messages of the same kind that
  // leave the node at the same time.
  CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share = 1) const;
  // Returns the cost of a copy between memory tiers of one device, over the host link or to or from
  // the node's disk, which its devices share.
  CollectiveCost copy(int64_t device, bool to_disk, bool from_disk, int64_t bytes) const;

 private:
  CollectiveCost price(CollectiveKind kind, const GroupPlacement& where, int64_t bytes,
                       const ExchangeLoad& load) const;

  const Cluster* cluster_;  // both outlive this
  const Style* style_;
};

}  // namespace tessera
