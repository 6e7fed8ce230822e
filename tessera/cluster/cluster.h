// A machine as text and as a value: devices in nodes, the links inside a node, and the network
// between nodes. Rates of links are bytes a second in each direction, rates of arithmetic are FLOP
// a second, sizes are bytes, and times are seconds. docs/reference/cluster-format.md describes the
// text form (TOML, every figure with its unit). Each preset names the sources of its constants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/generation.h"

namespace tessera {

struct Profile;

struct Device {
  std::string name;       // "a100-80"
  Generation generation;  // "cpu" by default
  // FLOP/s of dense matrix products, by the name of the arithmetic: fp64 fp32 tf32 fp16 bf16 fp8
  // fp4.
  std::map<std::string, double> peak;
  // The share of the nominal peak that is reached under full load (power limit). The values in
  // `peak` are nominal and do not contain this factor.
  double sustained = 1;
  int64_t memory_bytes = 0;
  double memory_rate = 0;
  int64_t cache_bytes = 0;  // size of the last-level cache
  int64_t units = 1;        // streaming multiprocessors of a GPU, cores of a processor
  double clock_hz = 0;
  double launch_s = 0;      // time from the host's issue of a kernel to the kernel's earliest start
  double host_issue_s = 0;  // host time to issue one kernel of a compiled program
  // True: the rank itself does its communication while it waits, as threads and processes on CPUs
  // do. Then no communication overlaps with computation, and the host time of a kernel is time of
  // the device.
  bool synchronous = false;
  int64_t context_bytes = 0;  // device memory that the driver and the libraries' code take
  friend bool operator==(const Device&, const Device&) = default;
};

// The kind of a link. kDirect is a link from device to device that is not NVLink (Infinity Fabric,
// inter-chip interconnects).
enum class LinkKind : uint8_t { kNvlink, kDirect, kPcie, kQpi, kNic, kHost, kMemory };
std::string_view link_name(LinkKind kind);

struct Link {
  LinkKind kind = LinkKind::kPcie;
  double rate = 0;       // bytes/s of one device (or one NIC) in one direction
  double latency_s = 0;  // latency of one message
  // True: all devices can use the full rate at the same time (a switch). False: all devices share
  // one link of this rate.
  bool switched = true;
  friend bool operator==(const Link&, const Link&) = default;
};

struct NodeType {
  std::string name;  // "dgx-a100"
  Device device;
  int64_t devices = 1;  // devices of a node, which are equal
  // The number of the node's devices that can work at the same time. If more devices have work,
  // they take turns. 0: all can work at the same time.
  int64_t cores = 0;
  Link inner;  // link between the devices of a node
  // The devices are spread evenly over the sockets. A transfer between devices of different sockets
  // uses `bridge` in addition to the `inner` links of both devices. All transfers from one socket
  // to another share one bridge. If `sockets` is 1, there is no bridge.
  int64_t sockets = 1;
  Link bridge;
  Link nic;          // one network card of a node
  int64_t nics = 0;  // network cards of a node; 0: no network
  Link host;         // link of one device between its memory and host memory
  int64_t host_bytes = 0;
  double host_memory_rate = 0;
  double disk_read_rate = 0, disk_write_rate = 0;  // rates of a node's disk
  int64_t disk_bytes = 0;
  // The time that this host needs for a piece of work, divided by the time of the machine on which
  // the host costs of the styles were found (cost/style.h).
  double host_slowness = 1;
  friend bool operator==(const NodeType&, const NodeType&) = default;
};

// One level of switches in the network between nodes; tier 0 is next to the nodes. Without tiers
// all nodes are connected to one ideal switch.
struct FabricTier {
  int64_t radix = 0;            // nodes (or switches of the next lower tier) per switch; 0: all
  double oversubscription = 1;  // rate of all links down / rate of all links up
  double latency_s = 0;         // latency that a hop through this tier adds
  friend bool operator==(const FabricTier&, const FabricTier&) = default;
};

// A switch of a network whose switches differ, as racks of a cloud or sites that
// are joined by slow lines. A cluster has tiers or switches, not both. Each node is below exactly
// one switch. The switches that have none above them are joined by an ideal switch.
struct FabricSwitch {
  std::string name;
  std::vector<int64_t> nodes;  // numbers of the nodes directly below it, ascending
  int64_t above = -1;          // index of the switch above; -1: none
  // Bytes/s in each direction between this switch and the one above, which all nodes below share.
  // 0: the way up has no limit of its own.
  double uplink_rate = 0;
  double uplink_error = 0;  // relative uncertainty of a rate that was measured
  double latency_s = 0;     // latency that a hop through this switch adds
  friend bool operator==(const FabricSwitch&, const FabricSwitch&) = default;
};
// A line between two switches that have the same switch above. Messages between what is below them
// pass this line and no other, so that its rate and its latency replace those of the switch above.
struct FabricPath {
  int64_t from = 0, to = 0;  // indices of switches; the line is equal in both directions
  double rate = 0;           // bytes/s in each direction; 0: only the uplinks limit it
  double latency_s = 0;
  friend bool operator==(const FabricPath&, const FabricPath&) = default;
};

struct ClusterPart {
  NodeType type;
  int64_t nodes = 1;
  friend bool operator==(const ClusterPart&, const ClusterPart&) = default;
};

// Where a device is in a cluster. Devices are numbered node by node, in the order of the parts.
struct Location {
  int64_t part = 0;
  int64_t node = 0;   // number of the node, counted over all parts
  int64_t local = 0;  // number of the device in its node
};

struct Cluster {
  std::string name;
  std::vector<ClusterPart> parts;  // at least one; a heterogeneous cluster has several
  std::vector<FabricTier> tiers;
  std::vector<FabricSwitch> switches;  // instead of tiers
  std::vector<FabricPath> paths;       // between switches
  std::vector<std::string> hosts;      // names of the nodes, in their order; empty: not known
  // The nodes are containers or network namespaces of one machine, whose `NodeType::cores` all of
  // them share; every part has the same number of cores.
  bool one_machine = false;
  // The share of the rates of cards and ways up that an exchange reaches in which each node sends to
  // all others at once. Single messages reach the whole. Measured by `tessera probe`.
  double exchange_share = 1;
  bool rail_aligned = false;               // NIC i of every node is connected to switch i of tier 0
  std::shared_ptr<const Profile> profile;  // measured tables; null: there are only constants
  std::string profile_file;                // the file from which `profile` was read

  int64_t devices() const;
  int64_t nodes() const;
  Location locate(int64_t device) const;  // 0 <= device < devices()
  const NodeType& type_of(int64_t device) const;
  friend bool operator==(const Cluster& a, const Cluster& b);  // compares profiles by content
};

// Loads a cluster: "dgx-a100:8" (preset, nodes), "8xA100" (devices in people's words, words.h),
// "local" or "local:4" (this machine, with a rank for each core or with four ranks), or the path of
// a TOML file. Returns a one-line error with the nearest name for an unknown preset, key or unit.
Result<Cluster> load_cluster(std::string_view what);
// Reads a cluster's text. Messages name the text by `file`. The path of a profile in the text is
// relative to the folder of `file`.
Result<Cluster> parse_cluster(std::string_view toml, std::string_view file);
// Writes a cluster as text, so that parse_cluster(to_toml(c)) == c.
std::string to_toml(const Cluster& cluster);

// A preset: a file tessera/cluster/presets/*.toml, which is part of the program, or "local".
struct Preset {
  std::string name, summary;
  std::string text;  // text of the file; empty for "local"
};
const std::vector<Preset>& presets();  // in the order of their names
std::vector<std::string> preset_names();
// Returns whether load_cluster() would take the text as a preset with a number of nodes
// ("dgx-a100:8") or as words ("8xA100"), and not as something else ("gpt:layers=2").
bool names_preset(std::string_view what);

// Returns a cluster for this machine with `ranks` devices (0: one for each core). Figures come from
// the profile's scalars (listed in docs/reference/cluster-format.md) if the profile has them, else
// from constants. If there are more ranks than cores, the ranks share the cores.
Cluster local_cluster(int64_t ranks, std::shared_ptr<const Profile> profile);

// Changes figures of a cluster to try another machine. `changes` is a list of changes separated by
// commas, such as "link:nic*2", "link:inner*0.5", "device:peak*1.2", "device:memory*2" or
// "latency:nic*0". docs/reference/cluster-format.md lists all of them.
Status apply_what_if(Cluster& cluster, std::string_view changes);

}  // namespace tessera
