// What one collective or message costs on a cluster. docs/reference/collective-costs.md says which
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

// Where the members of a group sit. Equal placements cost the same, whoever the members are.
struct GroupPlacement {
  int64_t members = 1;
  int64_t nodes = 1;           // that hold at least one member
  int64_t members_a_node = 1;  // the most in one node
  // Groups of the same axes that are active at the same time on a node and share its NICs (and, if
  // not switched, its inner link).
  int64_t groups_a_node = 1;
  int64_t sockets = 1;  // of a node, that hold a member, at most
  int64_t tier = -1;    // highest tier of the fabric that is crossed; -1: inside a node
  // The most nodes of the group under one switch of the tier below: neighbours in a ring that need
  // not cross `tier`.
  int64_t nodes_a_switch = 1;
  int64_t device = 0;  // whose node type counts: the first of the part with the slowest links
  friend auto operator<=>(const GroupPlacement&, const GroupPlacement&) = default;
};
// Of a group of devices, of whose kind `groups_a_node` are active at the same time on a node.
GroupPlacement place_group(const Cluster& cluster, const std::vector<int64_t>& devices,
                           int64_t groups_a_node);

// How many bytes of an exchange stay inside a node and how many leave it. In an all-to-all every member
// sends equally much to all others; the members of a halo exchange send to neighbours only, few of
// which sit in other nodes. Bytes are those of the busier direction.
struct ExchangeLoad {
  int64_t inside = 0;          // of the busiest member, to or from members of its own node
  int64_t leaving = 0;         // of the busiest member, to or from other nodes
  int64_t leaving_a_node = 0;  // of the busiest node, all its members together
  int64_t nodes_reached = 0;   // other nodes that one node sends to, at most
  int64_t peers = 0;           // members of other nodes that one member sends to, at most
  // All zero: nothing is known, and the exchange is priced as an all-to-all.
  friend auto operator<=>(const ExchangeLoad&, const ExchangeLoad&) = default;
};

struct CollectiveCost {
  double latency_s = 0;   // before bytes flow
  double transfer_s = 0;  // alone on its links
  // Share of a member's links that it uses while it runs, 0..1.
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
  // `bytes`: >= 0, of the whole array on one member: what all-reduce has in and out, what
  // all-gather has out, reduce-scatter has in, all-to-all has in on one member. `load`: of an
  // exchange over several nodes; nothing for other kinds.
  CollectiveCost collective(CollectiveKind kind, const GroupPlacement& where, int64_t bytes,
                            const ExchangeLoad& load = {}) const;
  // A message between two devices. `share`: messages of the same kind that leave the node at the
  // same time.
  CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share = 1) const;
  // Between memory tiers of one device (host link; disk: of the node, shared by its devices).
  CollectiveCost copy(int64_t device, bool to_disk, bool from_disk, int64_t bytes) const;

 private:
  CollectiveCost price(CollectiveKind kind, const GroupPlacement& where, int64_t bytes,
                       const ExchangeLoad& load) const;

  const Cluster* cluster_;  // both outlive this
  const Style* style_;
};

}  // namespace tessera
