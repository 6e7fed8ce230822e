#include "tessera/cluster/cluster.h"

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/cluster/profile.h"

namespace tessera {

std::string_view link_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvlink: return "nvlink";
    case LinkKind::kDirect: return "direct";
    case LinkKind::kPcie: return "pcie";
    case LinkKind::kQpi: return "qpi";
    case LinkKind::kNic: return "nic";
    case LinkKind::kHost: return "host";
    case LinkKind::kMemory: return "memory";
  }
  return "";
}

int64_t Cluster::devices() const {
  int64_t count = 0;
  for (const ClusterPart& part : parts) count += part.nodes * part.type.devices;
  return count;
}

int64_t Cluster::nodes() const {
  int64_t count = 0;
  for (const ClusterPart& part : parts) count += part.nodes;
  return count;
}

Location Cluster::locate(int64_t device) const {
  TESSERA_CHECK(device >= 0, "device {}", device);
  Location at;
  int64_t rest = device;
  for (const ClusterPart& part : parts) {
    if (const int64_t here = part.nodes * part.type.devices; rest >= here) {
      rest -= here;
      at.node += part.nodes;
      ++at.part;
      continue;
    }
    at.node += rest / part.type.devices;
    at.local = rest % part.type.devices;
    return at;
  }
  TESSERA_CHECK(false, "device {} of a cluster with {}", device, devices());
  return at;
}

const NodeType& Cluster::type_of(int64_t device) const {
  return parts[static_cast<size_t>(locate(device).part)].type;
}

bool operator==(const Cluster& a, const Cluster& b) {
  const bool measured = a.profile != nullptr && b.profile != nullptr;
  return a.name == b.name && a.parts == b.parts && a.tiers == b.tiers && a.switches == b.switches &&
         a.paths == b.paths && a.hosts == b.hosts && a.one_machine == b.one_machine &&
         a.exchange_share == b.exchange_share && a.rail_aligned == b.rail_aligned &&
         a.profile_file == b.profile_file &&
         (measured ? *a.profile == *b.profile : a.profile == b.profile);
}

}  // namespace tessera
