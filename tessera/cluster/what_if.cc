// apply_what_if: multiplies figures of a cluster by a factor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cluster/profile.h"

namespace tessera {
namespace {

// A figure that can be changed, by its name. `part` changes it in a part, `fabric` in the network. `measured` says which measured times change with it: those of kernels bound by
// arithmetic, of kernels bound by memory, or of collectives, either their share of bytes
// (kTransfer) or of latency.
enum class Measured : uint8_t { kNone, kArithmetic, kMemory, kTransfer, kLatency };
struct Change {
  std::string name;
  bool may_be_zero = false;  // true for times; rates must be larger than zero
  Measured measured = Measured::kNone;
  std::function<void(NodeType&, double)> part;
  std::function<void(Cluster&, double)> fabric;
};

void scale(int64_t& bytes, double factor) {
  bytes = std::llround(static_cast<double>(bytes) * factor);
}

const std::vector<Change>& changes() {
  static const std::vector<Change> all{
      {"link:inner",
       false,
       Measured::kTransfer,
       [](NodeType& t, double f) { t.inner.rate *= f; },
       {}},
      {"link:bridge",
       false,
       Measured::kNone,
       [](NodeType& t, double f) { t.bridge.rate *= f; },
       {}},
      {"link:nic", false, Measured::kNone, [](NodeType& t, double f) { t.nic.rate *= f; }, {}},
      {"link:ib", false, Measured::kNone, [](NodeType& t, double f) { t.nic.rate *= f; }, {}},
      {"link:host", false, Measured::kNone, [](NodeType& t, double f) { t.host.rate *= f; }, {}},
      {"link:disk",
       false,
       Measured::kNone,
       [](NodeType& t, double f) {
         t.disk_read_rate *= f;
         t.disk_write_rate *= f;
       },
       {}},
      {"device:peak",
       false,
       Measured::kArithmetic,
       [](NodeType& t, double f) {
         for (auto& [name, rate] : t.device.peak) rate *= f;
       },
       {}},
      {"device:memory",
       false,
       Measured::kNone,
       [](NodeType& t, double f) { scale(t.device.memory_bytes, f); },
       {}},
      {"device:memory_rate",
       false,
       Measured::kMemory,
       [](NodeType& t, double f) { t.device.memory_rate *= f; },
       {}},
      {"device:launch",
       true,
       Measured::kNone,
       [](NodeType& t, double f) { t.device.launch_s *= f; },
       {}},
      {"device:host_issue",
       true,
       Measured::kNone,
       [](NodeType& t, double f) { t.device.host_issue_s *= f; },
       {}},
      {"host:memory",
       false,
       Measured::kNone,
       [](NodeType& t, double f) { scale(t.host_bytes, f); },
       {}},
      {"host:slowness",
       false,
       Measured::kNone,
       [](NodeType& t, double f) { t.host_slowness *= f; },
       {}},
      {"latency:inner",
       true,
       Measured::kLatency,
       [](NodeType& t, double f) { t.inner.latency_s *= f; },
       {}},
      {"latency:nic",
       true,
       Measured::kNone,
       [](NodeType& t, double f) { t.nic.latency_s *= f; },
       {}},
      {"latency:ib",
       true,
       Measured::kNone,
       [](NodeType& t, double f) { t.nic.latency_s *= f; },
       {}},
      {"latency:host",
       true,
       Measured::kNone,
       [](NodeType& t, double f) { t.host.latency_s *= f; },
       {}},
      {"latency:fabric",
       true,
       Measured::kNone,
       {},
       [](Cluster& c, double f) {
         for (FabricTier& tier : c.tiers) tier.latency_s *= f;
         for (FabricSwitch& one : c.switches) one.latency_s *= f;
         for (FabricPath& path : c.paths) path.latency_s *= f;
       }},
      {"fabric:oversubscription",
       false,
       Measured::kNone,
       {},
       [](Cluster& c, double f) {
         for (FabricTier& tier : c.tiers) tier.oversubscription *= f;
       }},
      {"fabric:uplink",
       false,
       Measured::kNone,
       {},
       [](Cluster& c, double f) {
         for (FabricSwitch& one : c.switches) one.uplink_rate *= f;
         for (FabricPath& path : c.paths) path.rate *= f;
       }},
  };
  return all;
}

bool starts_with_one_of(const std::string& name, std::initializer_list<std::string_view> heads) {
  for (const std::string_view head : heads) {
    if (name.starts_with(head)) return true;
  }
  return false;
}

// Scales the samples of a collective. For each number of ranks, the least time of all its samples
// is taken as the latency, and the rest of a sample's time as the time of its bytes.
void scale_collective(Family& family, Measured what, double factor) {
  for (size_t first = 0; first < family.samples.size();) {
    const double ranks = family.samples[first].size.front();
    double latency = family.samples[first].seconds;
    size_t end = first;
    for (; end < family.samples.size() && family.samples[end].size.front() == ranks; ++end) {
      latency = std::min(latency, family.samples[end].seconds);
    }
    for (; first < end; ++first) {
      double& seconds = family.samples[first].seconds;
      const double bytes = seconds - latency;
      seconds = what == Measured::kLatency ? latency * factor + bytes : latency + bytes / factor;
    }
  }
}

// Scales the measured tables. They are used in place of constants, so a change of a constant must
// change them too.
void scale_profile(Cluster& cluster, Measured what, double factor) {
  if (cluster.profile == nullptr || what == Measured::kNone) return;
  auto profile = std::make_shared<Profile>(*cluster.profile);
  for (auto& [name, family] : profile->families) {
    const bool collective = family.sizes.size() == 2 && family.sizes.front() == "ranks";
    const bool arithmetic = starts_with_one_of(name, {"matmul", "attention"});
    if (collective && (what == Measured::kTransfer || what == Measured::kLatency)) {
      scale_collective(family, what, factor);
    } else if (!collective &&
               (arithmetic ? what == Measured::kArithmetic : what == Measured::kMemory)) {
      for (Sample& sample : family.samples) sample.seconds /= factor;
    }
  }
  cluster.profile = std::move(profile);
}

Status apply_one(Cluster& cluster, std::string_view text) {
  const size_t star = text.find('*');
  const std::string name(trim(text.substr(0, star)));
  std::vector<std::string> names;
  const Change* found = nullptr;
  for (const Change& change : changes()) {
    names.push_back(change.name);
    if (change.name == name) found = &change;
  }
  if (found == nullptr) {
    return invalid_input(fmt::format("what-if '{}': expected one of {}, found '{}'{}", text,
                                     join(names, ", "), name, did_you_mean(name, names)));
  }
  const auto factor =
      star == std::string_view::npos ? parse_double("") : parse_double(text.substr(star + 1));
  if (!factor || *factor < 0 || (*factor == 0 && !found->may_be_zero)) {
    return invalid_input(
        fmt::format("what-if '{}': expected '{}*' and a factor {}, found '{}'", text, name,
                    found->may_be_zero ? "of at least 0" : "above 0",
                    star == std::string_view::npos ? "" : trim(text.substr(star + 1))));
  }
  if (found->part) {
    for (ClusterPart& part : cluster.parts) found->part(part.type, *factor);
  }
  if (found->fabric) found->fabric(cluster, *factor);
  scale_profile(cluster, found->measured, *factor);
  return {};
}

}  // namespace

Status apply_what_if(Cluster& cluster, std::string_view changes_text) {
  Cluster changed = cluster;  // a copy, so that either all changes are applied or none
  for (const std::string& change : split_text(changes_text, ',')) {
    TESSERA_TRY_VOID(apply_one(changed, change));
  }
  cluster = std::move(changed);
  return {};
}

}  // namespace tessera
