// What one collective or message costs on a cluster (cost-model.md section 4).
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
  // not switched, its inner link): section 4.4.
  int64_t groups_a_node = 1;
  int64_t tier = -1;   // highest tier of the fabric that is crossed; -1: inside a node
  int64_t device = 0;  // one member, whose node type counts
  friend auto operator<=>(const GroupPlacement&, const GroupPlacement&) = default;
};
// Of a group of devices among `all` groups of its kind (all ranks of the mesh, by the same axes).
GroupPlacement place_group(const Cluster& cluster, const std::vector<int64_t>& devices,
                           int64_t groups_a_node);

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
  // `bytes`: of the whole array on one member: what all-reduce has in and out, what all-gather has
  // out, reduce-scatter has in, all-to-all has in on one member (S in section 4.1).
  CollectiveCost collective(CollectiveKind kind, const GroupPlacement& where, int64_t bytes) const;
  // A message between two devices. `share`: messages of the same kind that leave the node at the
  // same time.
  CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share = 1) const;
  // Between memory tiers of one device (host link; disk: of the node, shared by its devices).
  CollectiveCost copy(int64_t device, bool to_disk, bool from_disk, int64_t bytes) const;

 private:
  const Cluster* cluster_;
  const Style* style_;
};

}  // namespace tessera
