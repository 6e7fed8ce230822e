// The links of a cluster one by one: which directed links a message between two devices uses, and
// how flows on shared links divide them.
//
//   const Topology topology(cluster);
//   const Path path = topology.path(/*from=*/0, /*to=*/9);
//   for (const int64_t link : path.links) fmt::print("{}\n", topology.link_text(link));
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tessera/cluster/cluster.h"

namespace tessera {

// The way of a message from one device to another.
struct Path {
  std::vector<int64_t> links;  // directed, in order, each once
  // The latency of one message. Inside a node: that of `inner`, and of the bridge where it passes
  // one. Between nodes: the larger of both NICs' latencies, that of `inner` where a device forwards
  // the message, and that of every switch on the way.
  double latency_s = 0;
  int64_t tier = -1;  // highest tier of the fabric; -1: inside a node
};

// Numbers the directed links of a cluster from 0:
//   - Inside a node: if `inner` is switched, an outgoing and an incoming link for each device, else
//     one link that all devices share; and one for each ordered pair of sockets.
//   - For each NIC an outgoing and an incoming link. Device i of d uses NIC i*n/d of n. With more
//     NICs than devices, a device has n/d of them as one link.
//   - Above each switch of a tier an upward and a downward link. Its rate is the sum of the rates
//     below it over the tier's oversubscription. On a rail-aligned fabric the first tier has a
//     switch for each NIC of a node, and a message to a device on another rail first goes to the
//     device on that rail in the sender's node (docs/theory/cost-model.md section 4.4).
// The cluster is copied, so it need not outlive the topology.
class Topology {
 public:
  explicit Topology(const Cluster& cluster);

  std::span<const double> capacities() const { return capacities_; }  // bytes/s
  std::string link_text(int64_t link) const;                          // "node 3 nic 1 out"
  Path path(int64_t from, int64_t to) const;  // no links if they are the same device

 private:
  enum class Kind : uint8_t {
    kInnerOut,
    kInnerIn,
    kInnerShared,
    kBridge,
    kNicOut,
    kNicIn,
    kUp,
    kDown
  };
  struct Name {
    Kind kind = Kind::kInnerShared;
    int64_t owner = 0;   // device, node, or tier of a switch
    int64_t index = 0;   // NIC, switch of the tier; of a bridge the sending socket
    int64_t target = 0;  // of a bridge: the receiving socket
  };
  struct Node {
    int64_t part = 0;
    int64_t inner = 0, bridge = 0, nic = 0;  // its first links of each kind
    int64_t nics = 0;                        // groups of NICs, as paths see them
  };
  int64_t add(double capacity, Name name);
  void add_nodes();
  void add_tiers();
  int64_t switches_above(int64_t node, int64_t rail, size_t tier) const;
  void inner_path(const Node& node, int64_t from, int64_t to, Path& path) const;

  Cluster cluster_;
  std::vector<Node> nodes_;
  // Of each tier but the last: the first of its upward links, and how many nodes a switch covers.
  struct Tier {
    int64_t first = 0, nodes = 1, rails = 1;
  };
  std::vector<Tier> tiers_;
  std::vector<double> capacities_;
  std::vector<Name> names_;
};

// One flow on shared links: at rate r (bytes/s) it takes weight * r of each link.
struct LinkUse {
  int64_t link = 0;
  double weight = 1;
};
struct Flow {
  std::vector<LinkUse> uses;
  double cap = std::numeric_limits<double>::infinity();  // of its own rate
};

// Max-min fair rates by progressive filling: all rates grow together until a link is full or a flow
// reaches its cap; the flows concerned stay as they are and the others go on. O(rounds * uses), at
// most as many rounds as flows. A flow without links and without cap gets infinity.
std::vector<double> fair_shares(std::span<const double> capacities, std::span<const Flow> flows);

}  // namespace tessera
