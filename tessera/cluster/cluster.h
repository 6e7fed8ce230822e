// A machine as text and as a value: devices in nodes, the links inside a node, the network between
// nodes. Rates are bytes a second and direction (links) or FLOP a second (arithmetic), sizes bytes,
// times seconds. The text form (TOML, every figure with its unit) is
// docs/reference/cluster-format.md; each preset names the sources of its constants.
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
  Generation generation;  // cpu
  // FLOP/s of dense products by arithmetic: fp64 fp32 tf32 fp16 bf16 fp8 fp4.
  std::map<std::string, double> peak;
  // Share of the peak that is left under full load (power limit); nominal peaks stay in `peak`.
  double sustained = 1;
  int64_t memory_bytes = 0;
  double memory_rate = 0;
  int64_t cache_bytes = 0;  // last level
  int64_t units = 1;        // streaming multiprocessors; cores
  double clock_hz = 0;
  double launch_s = 0;      // from the host's issue of a kernel to its earliest start
  double host_issue_s = 0;  // the host's time for one kernel issued by a compiled program
  // If true, the rank itself does the communication while it waits for it. Then nothing overlaps,
  // and the host's time for a kernel is time of the device. So it is where ranks are threads or
  // processes.
  bool synchronous = false;
  int64_t context_bytes = 0;  // taken by the driver and the libraries' code
  friend bool operator==(const Device&, const Device&) = default;
};

// kDirect: links of other makers from device to device (Infinity Fabric, inter-chip interconnects).
enum class LinkKind : uint8_t { kNvlink, kDirect, kPcie, kQpi, kNic, kHost, kMemory };
std::string_view link_name(LinkKind kind);

struct Link {
  LinkKind kind = LinkKind::kPcie;
  double rate = 0;       // bytes/s, one direction, of one device (of one NIC)
  double latency_s = 0;  // one message
  // If true, all devices run at full rate at once (a switch); otherwise they share one link of this
  // rate.
  bool switched = true;
  friend bool operator==(const Link&, const Link&) = default;
};

struct NodeType {
  std::string name;  // "dgx-a100"
  Device device;
  int64_t devices = 1;  // in a node, all equal
  // Number of the node's devices that can work at the same time; if more have work, they take
  // turns. 0: all can.
  int64_t cores = 0;
  Link inner;  // between devices of the node
  // Devices are spread evenly over the sockets; traffic from socket to socket shares `bridge` (one
  // direction between two sockets), beside the two devices' own `inner`. 1: no bridge.
  int64_t sockets = 1;
  Link bridge;
  Link nic;          // one network card
  int64_t nics = 0;  // of a node; 0: no network
  Link host;         // device memory <-> host memory, of one device
  int64_t host_bytes = 0;
  double host_memory_rate = 0;
  double disk_read_rate = 0, disk_write_rate = 0;  // of a node
  int64_t disk_bytes = 0;
  // Time that the host needs for a given piece of work, relative to the machine on which the host
  // costs of the styles were found (cost/style.h).
  double host_slowness = 1;
  friend bool operator==(const NodeType&, const NodeType&) = default;
};

// One level of the network between nodes, from the nodes upwards. Without tiers all nodes hang on
// one ideal switch.
struct FabricTier {
  int64_t radix = 0;            // nodes (or switches of the tier below) under one switch; 0: all
  double oversubscription = 1;  // rate of all that is below / rate upwards
  double latency_s = 0;         // a hop through this tier adds
  friend bool operator==(const FabricTier&, const FabricTier&) = default;
};

struct ClusterPart {
  NodeType type;
  int64_t nodes = 1;
  friend bool operator==(const ClusterPart&, const ClusterPart&) = default;
};

// A `Location` is the place of a device. Devices are numbered node by node, in the order of the
// parts.
struct Location {
  int64_t part = 0;
  int64_t node = 0;   // over all parts
  int64_t local = 0;  // in its node
};

struct Cluster {
  std::string name;
  std::vector<ClusterPart> parts;  // at least one; more: heterogeneous
  std::vector<FabricTier> tiers;
  bool rail_aligned = false;  // NIC i of every node hangs on switch i of the first tier
  std::shared_ptr<const Profile> profile;  // measured tables; null: constants only
  std::string profile_file;                // where they came from

  int64_t devices() const;
  int64_t nodes() const;
  Location locate(int64_t device) const;  // 0 <= device < devices()
  const NodeType& type_of(int64_t device) const;
  friend bool operator==(const Cluster& a, const Cluster& b);  // profiles by their contents
};

// Loads a cluster: "dgx-a100:8" (preset and nodes), "local" or "local:4" (this machine, with a rank
// for each core or with four ranks), or the path of a TOML file. Errors: unknown preset, key or
// unit, in one line with the nearest name.
Result<Cluster> load_cluster(std::string_view what);
// Reads a cluster's text. `file` names it in messages; a profile in it is looked for in that file's
// folder.
Result<Cluster> parse_cluster(std::string_view toml, std::string_view file);
// Writes a cluster's text: parse_cluster(to_toml(c)) == c.
std::string to_toml(const Cluster& cluster);

// Presets: tessera/cluster/presets/*.toml, which are part of the program, and "local".
struct Preset {
  std::string name, summary;
  std::string text;  // of the file; empty: local
};
const std::vector<Preset>& presets();  // in the order of their names
std::vector<std::string> preset_names();
// Returns whether load_cluster would look for a preset of this name: "dgx-a100:8", but not
// "gpt:layers=2".
bool names_preset(std::string_view what);

// Returns this machine, with `ranks` devices (0: one a core), from constants, or from the figures
// that the profile holds: docs/reference/cluster-format.md names its scalars. More ranks than cores
// share the cores.
Cluster local_cluster(int64_t ranks, std::shared_ptr<const Profile> profile);

// Applies a change to try: "link:nic*2", "link:inner*0.5", "device:peak*1.2", "device:memory*2",
// "latency:nic*0", several separated by commas. docs/reference/cluster-format.md lists them.
Status apply_what_if(Cluster& cluster, std::string_view changes);

}  // namespace tessera
