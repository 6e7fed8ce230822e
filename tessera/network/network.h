// A `Network` is what is known of a network: which nodes there are, by host name, the switches above
// them, and the rates and latencies of what joins them. Readers (readers.h) and the probe (probe.h) make such
// values, merge() joins what several sources know, and to_cluster() writes the sum as a cluster,
// which is what `plan`, `simulate` and `order` take.
//
//   TESSERA_TRY(Network known, read_network("topology.conf"));
//   TESSERA_TRY(const Network more, read_network("instances.json"));
//   TESSERA_TRY_VOID(merge(more, "instances.json", "topology.conf", known));
//   TESSERA_TRY(const Cluster cluster, to_cluster(known, "ours", node_type));
//
// Rates are bytes a second in each direction, times are seconds, and errors are relative standard
// errors. A figure of 0 is not known. The order of the nodes is that of the sources; nothing depends
// on the order of the switches. check() says what must hold.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/cluster.h"

namespace tessera::network {

struct NetworkNode {
  std::string name;   // of the host
  std::string below;  // name of the switch that it hangs on; empty: not known
  double rate = 0;    // of all its network cards together
  double rate_error = 0;
  double latency_s = 0;  // of a message to another node below the same switch
  std::string domain;    // the accelerator domain (NVLink) that it is a part of; empty: not known
  friend bool operator==(const NetworkNode&, const NetworkNode&) = default;
};

struct NetworkSwitch {
  std::string name;
  std::string above;  // name of the next switch upwards; empty: none is known
  double uplink = 0;  // of all links upwards together
  double uplink_error = 0;
  double latency_s = 0;  // that crossing the switch adds
  friend bool operator==(const NetworkSwitch&, const NetworkSwitch&) = default;
};

// A line between two switches, as two sites; its latency replaces that of the switch above both.
struct NetworkPath {
  std::array<std::string, 2> between;
  double rate = 0;
  double latency_s = 0;
  friend bool operator==(const NetworkPath&, const NetworkPath&) = default;
};

// The inside of each node, as far as it is known.
struct NodeInside {
  int64_t devices = 0;
  int64_t sockets = 0;
  int64_t compute_capability = 0;  // 90: of the GPUs, as NVIDIA counts
  double nvlink = 0;               // of a device, all its links together
  double pcie = 0;                 // of a device
  int64_t nics = 0;
  double nic = 0;  // of one network card
  friend bool operator==(const NodeInside&, const NodeInside&) = default;
};

struct Network {
  std::vector<NetworkNode> nodes;
  std::vector<NetworkSwitch> switches;
  std::vector<NetworkPath> paths;
  std::optional<NodeInside> inside;

  const NetworkNode* node(std::string_view name) const;  // null if there is none
  const NetworkSwitch* find_switch(std::string_view name) const;
  friend bool operator==(const Network&, const Network&) = default;
};

// Checks that names are unique, that each switch that is named exists, and that no switch is above
// itself. `source` names the network in messages.
Status check(const Network& network, std::string_view source);

// Adds to `into` what `from` knows besides. A switch may have different names in two
// sources: two switches are the same if they have the same nodes below them; `into` keeps its names. Returns a
// one-line error if the sources contradict each other: two nodes that hang on one switch here and on
// two there, a switch with two switches above it, or figures that differ by more than a tenth and
// more than their errors.
Status merge(const Network& from, std::string_view from_source, std::string_view into_source,
             Network& into);

// Keeps these nodes only, in this order, and the switches above them. Returns an error that names
// the first host that the network does not have.
Result<Network> only_hosts(const Network& network, const std::vector<std::string>& hosts,
                           std::string_view source);

// Returns the network as a cluster, with the rates and the inside that the network knows. `types` has
// the type of each node, or one type for all. A way up that is not known has no limit.
Result<Cluster> to_cluster(const Network& network, const std::string& name,
                           const std::vector<NodeType>& types);
// Returns what a cluster file says of its network. Nodes without host names are called node0, ...
Network network_of(const Cluster& cluster);

}  // namespace tessera::network
