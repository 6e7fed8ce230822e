// Reads and writes the texts of clusters (parse_cluster() and to_toml()).
// docs/reference/cluster-format.md describes the keys.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cluster/profile.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

const Names kClusterKeys{"name",         "part",        "tier",           "switch",  "path",
                         "rail_aligned", "one_machine", "exchange_share", "profile", "hosts"};
const Names kPartKeys{"name",  "nodes",   "like",   "devices", "cores", "device",
                      "inner", "sockets", "bridge", "nic",     "host",  "disk"};
const Names kDeviceKeys{"name",        "generation",  "peak",   "sustained", "memory",
                        "memory_rate", "cache",       "units",  "clock",     "launch",
                        "host_issue",  "synchronous", "context"};
const Names kInnerKeys{"kind", "rate", "latency", "switched"};
const Names kBridgeKeys{"kind", "rate", "latency"};
const Names kNicKeys{"count", "rate", "latency"};
const Names kHostKeys{"memory", "memory_rate", "rate", "latency", "slowness"};
const Names kDiskKeys{"size", "read", "write"};
const Names kTierKeys{"radix", "oversubscription", "latency"};
const Names kSwitchKeys{"name", "nodes", "above", "uplink", "uplink_error", "latency"};
const Names kPathKeys{"between", "rate", "latency"};
const Names kArithmeticTypes{"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};
constexpr std::array kInnerKinds{LinkKind::kNvlink, LinkKind::kDirect, LinkKind::kPcie,
                                 LinkKind::kMemory};
constexpr std::array kBridgeKinds{LinkKind::kQpi, LinkKind::kNvlink, LinkKind::kPcie};

using Sign = TomlReader::Sign;

template <class Enum, size_t N, class NameOf>
Status read_choice(const TomlReader& reader, std::string_view key,
                   const std::array<Enum, N>& choices, NameOf name_of, Enum& value) {
  if (!reader.has(key)) return {};
  std::string text;
  TESSERA_TRY_VOID(reader.string(key, text));
  Names names;
  for (const Enum choice : choices) {
    if (name_of(choice) == text) {
      value = choice;
      return {};
    }
    names.emplace_back(name_of(choice));
  }
  return reader.error(
      reader.line_of(key),
      fmt::format("'{}' in {}: expected one of {}, found '{}'{}", key, reader.where(),
                  join(names, ", "), text, did_you_mean(text, names)));
}

Status read_generation(const TomlReader& reader, Generation& value) {
  if (!reader.has("generation")) return {};
  std::string text;
  TESSERA_TRY_VOID(reader.string("generation", text));
  if (const auto found = Generation::find(text)) {
    value = *found;
    return {};
  }
  const Names names = generation_names();
  return reader.error(
      reader.line_of("generation"),
      fmt::format("'generation' in {}: expected one of {}, found '{}'{}", reader.where(),
                  join(names, ", "), text, did_you_mean(text, names)));
}

Status require_all(const TomlReader& reader, const Names& keys) {
  for (const std::string& key : keys) TESSERA_TRY_VOID(reader.require(key));
  return {};
}

// Makes a reader for the inner table `key` of `reader`, which messages name "[prefix.key]". Leaves
// `out` empty if the table has no such key.
Status subtable(const TomlReader& reader, const std::string& prefix, std::string_view key,
                std::optional<TomlReader>& out) {
  const toml::node* node = reader.find(key);
  if (node == nullptr) return {};
  const auto* table = node->as_table();
  if (table == nullptr) return reader.wrong_type(key, "a table", *node);
  out.emplace(*table, fmt::format("[{}.{}]", prefix, key), reader.file(), reader.line_of(*node));
  return {};
}

Status read_peak(const TomlReader& device, std::map<std::string, double>& peak) {
  std::optional<TomlReader> reader;
  TESSERA_TRY_VOID(subtable(device, "part.device", "peak", reader));
  if (!reader) return {};
  TESSERA_TRY_VOID(reader->allow(kArithmeticTypes));
  peak.clear();
  for (const std::string& name : kArithmeticTypes) {
    if (!reader->has(name)) continue;
    TESSERA_TRY_VOID(reader->quantity(name, Quantity::kFlops, Sign::kPositive, peak[name]));
  }
  if (peak.count("fp32") == 0) return reader->require("fp32");
  return {};
}

Status read_device(const TomlReader& part, bool complete, Device& device) {
  std::optional<TomlReader> found;
  TESSERA_TRY_VOID(subtable(part, "part", "device", found));
  if (!found) return {};
  const TomlReader& reader = *found;
  TESSERA_TRY_VOID(reader.allow(kDeviceKeys));
  if (complete) {
    TESSERA_TRY_VOID(require_all(reader, {"name", "generation", "peak", "memory", "memory_rate"}));
  }
  TESSERA_TRY_VOID(reader.string("name", device.name));
  TESSERA_TRY_VOID(read_generation(reader, device.generation));
  TESSERA_TRY_VOID(read_peak(reader, device.peak));
  TESSERA_TRY_VOID(reader.positive("sustained", device.sustained));
  if (device.sustained > 1) {
    return reader.error(reader.line_of("sustained"),
                        fmt::format("'sustained' in [part.device]: expected a share from 0 to 1, "
                                    "found {}",
                                    device.sustained));
  }
  TESSERA_TRY_VOID(reader.bytes("memory", 1, device.memory_bytes));
  TESSERA_TRY_VOID(reader.quantity("memory_rate", Quantity::kBytesPerSecond, Sign::kPositive,
                                   device.memory_rate));
  TESSERA_TRY_VOID(reader.bytes("cache", 0, device.cache_bytes));
  TESSERA_TRY_VOID(reader.integer("units", 1, device.units));
  TESSERA_TRY_VOID(reader.quantity("clock", Quantity::kHertz, Sign::kNotNegative, device.clock_hz));
  TESSERA_TRY_VOID(
      reader.quantity("launch", Quantity::kSeconds, Sign::kNotNegative, device.launch_s));
  TESSERA_TRY_VOID(
      reader.quantity("host_issue", Quantity::kSeconds, Sign::kNotNegative, device.host_issue_s));
  TESSERA_TRY_VOID(reader.boolean("synchronous", device.synchronous));
  return reader.bytes("context", 0, device.context_bytes);
}

Status read_link(const TomlReader& reader, bool complete, Link& link) {
  if (complete) TESSERA_TRY_VOID(require_all(reader, {"rate", "latency"}));
  TESSERA_TRY_VOID(reader.quantity("rate", Quantity::kBytesPerSecond, Sign::kPositive, link.rate));
  return reader.quantity("latency", Quantity::kSeconds, Sign::kNotNegative, link.latency_s);
}

Status read_inner(const TomlReader& part, Link& inner) {
  std::optional<TomlReader> reader;
  TESSERA_TRY_VOID(subtable(part, "part", "inner", reader));
  if (!reader) return {};
  TESSERA_TRY_VOID(reader->allow(kInnerKeys));
  if (inner.rate == 0) TESSERA_TRY_VOID(reader->require("kind"));
  TESSERA_TRY_VOID(read_choice(*reader, "kind", kInnerKinds, link_name, inner.kind));
  TESSERA_TRY_VOID(reader->boolean("switched", inner.switched));
  return read_link(*reader, inner.rate == 0, inner);
}

Status read_bridge(const TomlReader& part, NodeType& type) {
  TESSERA_TRY_VOID(part.integer("sockets", 1, type.sockets));
  if (type.sockets > type.devices || type.devices % type.sockets != 0) {
    return part.error(part.line_of("sockets"),
                      fmt::format("'sockets' in [[part]]: expected a divisor of devices = {}, "
                                  "found {}",
                                  type.devices, type.sockets));
  }
  if (type.sockets == 1) type.bridge = Link{};
  if (type.sockets > 1 && type.bridge.rate == 0) TESSERA_TRY_VOID(part.require("bridge"));
  std::optional<TomlReader> reader;
  TESSERA_TRY_VOID(subtable(part, "part", "bridge", reader));
  if (!reader) return {};
  if (type.sockets == 1) {
    return part.error(reader->line(), "[part.bridge] needs 'sockets' of at least 2");
  }
  TESSERA_TRY_VOID(reader->allow(kBridgeKeys));
  const bool complete = type.bridge.rate == 0;
  if (complete) type.bridge.kind = LinkKind::kQpi;
  TESSERA_TRY_VOID(read_choice(*reader, "kind", kBridgeKinds, link_name, type.bridge.kind));
  return read_link(*reader, complete, type.bridge);
}

Status read_nic(const TomlReader& part, NodeType& type) {
  std::optional<TomlReader> reader;
  TESSERA_TRY_VOID(subtable(part, "part", "nic", reader));
  if (!reader) return {};
  TESSERA_TRY_VOID(reader->allow(kNicKeys));
  const bool complete = type.nics == 0;
  if (complete) type.nic.kind = LinkKind::kNic;
  if (complete) TESSERA_TRY_VOID(reader->require("count"));
  TESSERA_TRY_VOID(reader->integer("count", 1, type.nics));
  return read_link(*reader, complete, type.nic);
}

Status read_host(const TomlReader& part, NodeType& type) {
  std::optional<TomlReader> reader;
  TESSERA_TRY_VOID(subtable(part, "part", "host", reader));
  if (!reader) return {};
  TESSERA_TRY_VOID(reader->allow(kHostKeys));
  const bool complete = type.host.rate == 0;
  if (complete) TESSERA_TRY_VOID(require_all(*reader, {"memory", "memory_rate"}));
  type.host.kind = LinkKind::kHost;
  TESSERA_TRY_VOID(read_link(*reader, complete, type.host));
  TESSERA_TRY_VOID(reader->bytes("memory", 1, type.host_bytes));
  TESSERA_TRY_VOID(reader->quantity("memory_rate", Quantity::kBytesPerSecond, Sign::kPositive,
                                    type.host_memory_rate));
  return reader->positive("slowness", type.host_slowness);
}

Status read_disk(const TomlReader& part, NodeType& type) {
  std::optional<TomlReader> reader;
  TESSERA_TRY_VOID(subtable(part, "part", "disk", reader));
  if (!reader) return {};
  TESSERA_TRY_VOID(reader->allow(kDiskKeys));
  if (type.disk_bytes == 0) TESSERA_TRY_VOID(require_all(*reader, {"size", "read", "write"}));
  TESSERA_TRY_VOID(reader->bytes("size", 1, type.disk_bytes));
  TESSERA_TRY_VOID(
      reader->quantity("read", Quantity::kBytesPerSecond, Sign::kPositive, type.disk_read_rate));
  return reader->quantity("write", Quantity::kBytesPerSecond, Sign::kPositive,
                          type.disk_write_rate);
}

// Returns the node type of the preset that the key `like` names, or an empty node type if the key
// is absent.
Result<NodeType> start_of(const TomlReader& reader) {
  std::string like;
  TESSERA_TRY_VOID(reader.string("like", like));
  if (like.empty()) return NodeType{};
  const Names names = preset_names();
  if (std::find(names.begin(), names.end(), like) == names.end()) {
    return reader.error(reader.line_of("like"),
                        fmt::format("'like' in [[part]]: expected a preset, found '{}'{}", like,
                                    did_you_mean(like, names)));
  }
  TESSERA_TRY(const Cluster cluster, load_cluster(like));
  return cluster.parts.front().type;
}

Result<ClusterPart> read_part(const TomlReader& reader) {
  TESSERA_TRY_VOID(reader.allow(kPartKeys));
  ClusterPart part;
  TESSERA_TRY(part.type, start_of(reader));
  NodeType& type = part.type;
  const bool complete = !reader.has("like");
  if (complete) TESSERA_TRY_VOID(require_all(reader, {"name", "devices", "device", "host"}));
  TESSERA_TRY_VOID(reader.string("name", type.name));
  TESSERA_TRY_VOID(reader.integer("nodes", 1, part.nodes));
  TESSERA_TRY_VOID(reader.integer("devices", 1, type.devices));
  TESSERA_TRY_VOID(reader.integer("cores", 0, type.cores));
  if (complete && type.devices > 1) TESSERA_TRY_VOID(reader.require("inner"));
  TESSERA_TRY_VOID(read_device(reader, complete, type.device));
  TESSERA_TRY_VOID(read_inner(reader, type.inner));
  TESSERA_TRY_VOID(read_bridge(reader, type));
  TESSERA_TRY_VOID(read_nic(reader, type));
  TESSERA_TRY_VOID(read_host(reader, type));
  TESSERA_TRY_VOID(read_disk(reader, type));
  return part;
}

Result<FabricTier> read_tier(const TomlReader& reader) {
  FabricTier tier;
  TESSERA_TRY_VOID(reader.allow(kTierKeys));
  TESSERA_TRY_VOID(require_all(reader, {"latency"}));
  TESSERA_TRY_VOID(reader.integer("radix", 0, tier.radix));
  TESSERA_TRY_VOID(reader.positive("oversubscription", tier.oversubscription));
  TESSERA_TRY_VOID(
      reader.quantity("latency", Quantity::kSeconds, Sign::kNotNegative, tier.latency_s));
  return tier;
}

// Calls `read` with a reader for each table [[key]].
template <class Read>
Status each(const TomlReader& top, std::string_view key, Read read) {
  const toml::node* node = top.find(key);
  if (node == nullptr) return {};
  const auto* list = node->as_array();
  if (list == nullptr || list->empty()) {
    return top.wrong_type(key, fmt::format("tables [[{}]]", key), *node);
  }
  for (const toml::node& item : *list) {
    const auto* table = item.as_table();
    if (table == nullptr) return top.wrong_type(key, fmt::format("tables [[{}]]", key), item);
    TESSERA_TRY_VOID(
        read(TomlReader(*table, fmt::format("[[{}]]", key), top.file(), top.line_of(item))));
  }
  return {};
}

// Reads "0-3,7", numbers of nodes below `nodes` in ascending order.
Status read_node_numbers(const TomlReader& reader, int64_t nodes, std::vector<int64_t>& out) {
  std::string text;
  TESSERA_TRY_VOID(reader.string("nodes", text));
  for (const std::string& listed : split_text(text, ',')) {
    const std::string_view piece = listed;
    const size_t dash = piece.find('-');
    const auto first = parse_int(trim(piece.substr(0, dash)));
    const auto last =
        dash == std::string_view::npos ? first : parse_int(trim(piece.substr(dash + 1)));
    if (!first || !last || *first < 0 || *last < *first || *last >= nodes) {
      return reader.error(
          reader.line_of("nodes"),
          fmt::format("'nodes' in {}: expected numbers of nodes from 0 to {}, such as \"0-3,7\", "
                      "found '{}'",
                      reader.where(), nodes - 1, trim(piece)));
    }
    for (int64_t node = *first; node <= *last; ++node) out.push_back(node);
  }
  std::sort(out.begin(), out.end());
  return {};
}

// Reads one [[switch]]. `above`: receives the name of the switch above.
Result<FabricSwitch> read_switch(const TomlReader& reader, int64_t nodes, std::string& above) {
  FabricSwitch one;
  TESSERA_TRY_VOID(reader.allow(kSwitchKeys));
  TESSERA_TRY_VOID(reader.require("name"));
  TESSERA_TRY_VOID(reader.string("name", one.name));
  if (reader.has("nodes")) TESSERA_TRY_VOID(read_node_numbers(reader, nodes, one.nodes));
  TESSERA_TRY_VOID(reader.string("above", above));
  TESSERA_TRY_VOID(
      reader.quantity("uplink", Quantity::kBytesPerSecond, Sign::kPositive, one.uplink_rate));
  TESSERA_TRY_VOID(reader.positive("uplink_error", one.uplink_error));
  TESSERA_TRY_VOID(
      reader.quantity("latency", Quantity::kSeconds, Sign::kNotNegative, one.latency_s));
  return one;
}

// Returns the index of the switch of this name. `key` names the place in messages.
Result<int64_t> switch_named(const TomlReader& reader, std::string_view key,
                             const std::string& name, const std::vector<FabricSwitch>& switches) {
  Names names;
  for (size_t i = 0; i < switches.size(); ++i) {
    if (switches[i].name == name) return static_cast<int64_t>(i);
    names.push_back(switches[i].name);
  }
  return reader.not_one_of(key, "[[switch]]", name, names);
}

Status read_switches(const TomlReader& top, Cluster& cluster) {
  Names above;
  std::vector<int64_t> below(static_cast<size_t>(cluster.nodes()), -1);  // by node: its switch
  TESSERA_TRY_VOID(each(top, "switch", [&](const TomlReader& reader) -> Status {
    TESSERA_TRY(FabricSwitch one, read_switch(reader, cluster.nodes(), above.emplace_back()));
    for (const FabricSwitch& other : cluster.switches) {
      if (other.name != one.name) continue;
      return reader.error(
          reader.line_of("name"),
          fmt::format("expected one [[switch]] of each name, found '{}' twice", one.name));
    }
    for (const int64_t node : one.nodes) {
      int64_t& here = below[static_cast<size_t>(node)];
      if (here >= 0) {
        return reader.error(
            reader.line_of("nodes"),
            fmt::format("expected each node below one switch, found node {} below '{}' and '{}'",
                        node,
                        here < static_cast<int64_t>(cluster.switches.size())
                            ? cluster.switches[static_cast<size_t>(here)].name
                            : one.name,
                        one.name));
      }
      here = static_cast<int64_t>(cluster.switches.size());
    }
    cluster.switches.push_back(std::move(one));
    return {};
  }));
  if (cluster.switches.empty()) return {};
  if (!cluster.tiers.empty()) {
    return top.error(top.line_of("switch"), "expected [[tier]] or [[switch]], found both");
  }
  if (const auto it = std::find(below.begin(), below.end(), -1); it != below.end()) {
    return top.error(
        top.line_of("switch"),
        fmt::format("expected each node below one [[switch]], found node {} below none",
                    it - below.begin()));
  }
  size_t index = 0;
  TESSERA_TRY_VOID(each(top, "switch", [&](const TomlReader& reader) -> Status {
    FabricSwitch& one = cluster.switches[index];
    const std::string& name = above[index++];
    if (name.empty()) return {};
    TESSERA_TRY(one.above, switch_named(reader, "above", name, cluster.switches));
    return {};
  }));
  for (const FabricSwitch& one : cluster.switches) {
    size_t steps = 0;
    for (int64_t at = one.above; at >= 0; at = cluster.switches[static_cast<size_t>(at)].above) {
      if (++steps <= cluster.switches.size()) continue;
      return top.error(
          top.line_of("switch"),
          fmt::format("expected a tree of switches, found '{}' above itself", one.name));
    }
  }
  return {};
}

Status read_paths(const TomlReader& top, Cluster& cluster) {
  return each(top, "path", [&](const TomlReader& reader) -> Status {
    TESSERA_TRY_VOID(reader.allow(kPathKeys));
    TESSERA_TRY_VOID(require_all(reader, {"between", "latency"}));
    FabricPath path;
    Names ends;
    TESSERA_TRY_VOID(reader.strings("between", ends));
    if (ends.size() != 2 || ends[0] == ends[1]) {
      return reader.error(reader.line_of("between"),
                          fmt::format("'between' in [[path]]: expected the names of two switches, "
                                      "found {}",
                                      join(ends, ", ")));
    }
    TESSERA_TRY(path.from, switch_named(reader, "between", ends[0], cluster.switches));
    TESSERA_TRY(path.to, switch_named(reader, "between", ends[1], cluster.switches));
    const auto above = [&](int64_t s) { return cluster.switches[static_cast<size_t>(s)].above; };
    if (above(path.from) != above(path.to)) {
      return reader.error(reader.line_of("between"),
                          fmt::format("'between' in [[path]]: expected two switches below the same "
                                      "switch, found {} and {}",
                                      ends[0], ends[1]));
    }
    for (const FabricPath& other : cluster.paths) {
      if (std::minmax(other.from, other.to) != std::minmax(path.from, path.to)) continue;
      return reader.error(reader.line(),
                          fmt::format("expected one [[path]] between two switches, found two "
                                      "between {} and {}",
                                      ends[0], ends[1]));
    }
    TESSERA_TRY_VOID(
        reader.quantity("rate", Quantity::kBytesPerSecond, Sign::kPositive, path.rate));
    TESSERA_TRY_VOID(
        reader.quantity("latency", Quantity::kSeconds, Sign::kNotNegative, path.latency_s));
    cluster.paths.push_back(path);
    return {};
  });
}

Status read_hosts(const TomlReader& top, Cluster& cluster) {
  TESSERA_TRY_VOID(top.strings("hosts", cluster.hosts));
  if (cluster.hosts.empty()) return {};
  if (static_cast<int64_t>(cluster.hosts.size()) != cluster.nodes()) {
    return top.error(top.line_of("hosts"),
                     fmt::format("expected as many hosts as nodes, {}, found {}", cluster.nodes(),
                                 cluster.hosts.size()));
  }
  Names sorted = cluster.hosts;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return top.error(top.line_of("hosts"),
                     fmt::format("expected each host once, found '{}' twice", *twice));
  }
  return {};
}

// Checks the tiers, and that they fit the parts.
Status check_fabric(const TomlReader& top, const Cluster& cluster) {
  for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i) {
    if (cluster.tiers[i].radix > 0) continue;
    return top.error(top.line_of("tier"),
                     "expected radix >= 1 in every [[tier]] but the last: a tier without radix "
                     "joins all nodes");
  }
  if (!cluster.tiers.empty() && cluster.tiers.back().radix > 0) {
    return top.error(top.line_of("tier"),
                     fmt::format("expected no radix in the last [[tier]], which joins all nodes, "
                                 "found {}",
                                 cluster.tiers.back().radix));
  }
  for (const ClusterPart& part : cluster.parts) {
    if (cluster.nodes() > 1 && part.type.nics == 0) {
      return top.error(top.line_of("part"),
                       fmt::format("part '{}' needs [part.nic]: the cluster has {} nodes",
                                   part.type.name, cluster.nodes()));
    }
    if (cluster.rail_aligned && part.type.nics != cluster.parts.front().type.nics) {
      return top.error(top.line_of("rail_aligned"),
                       fmt::format("expected as many NICs in the nodes of every part for "
                                   "rail_aligned, found {} and {}",
                                   cluster.parts.front().type.nics, part.type.nics));
    }
    if (cluster.exchange_share > 1) {
      return top.error(
          top.line_of("exchange_share"),
          fmt::format("expected at most 1 for exchange_share, found {}", cluster.exchange_share));
    }
    if (cluster.one_machine && part.type.cores != cluster.parts.front().type.cores) {
      return top.error(top.line_of("one_machine"),
                       fmt::format("expected the same number of cores in every part for "
                                   "one_machine, found {} and {}",
                                   cluster.parts.front().type.cores, part.type.cores));
    }
  }
  return {};
}

Status read_profile(const TomlReader& top, Cluster& cluster) {
  std::string file;
  TESSERA_TRY_VOID(top.string("profile", file));
  if (file.empty()) return {};
  const auto folder = std::filesystem::path(top.file()).parent_path();
  cluster.profile_file = std::filesystem::absolute(folder / file).lexically_normal().string();
  auto profile = load_profile(cluster.profile_file);
  if (!profile) {
    return top.error(top.line_of("profile"), fmt::format("profile {}", profile.error().message));
  }
  cluster.profile = std::make_shared<const Profile>(*std::move(profile));
  return {};
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view toml, std::string_view file) {
  const std::string name(file);
  TESSERA_TRY(const toml::table table, parse_toml(toml, file));
  const TomlReader top(table, "the cluster", name, 1);
  TESSERA_TRY_VOID(top.allow(kClusterKeys));
  TESSERA_TRY_VOID(require_all(top, {"name", "part"}));
  Cluster cluster;
  TESSERA_TRY_VOID(top.string("name", cluster.name));
  TESSERA_TRY_VOID(each(top, "part", [&](const TomlReader& reader) -> Status {
    TESSERA_TRY(ClusterPart part, read_part(reader));
    if (part.nodes > (kMostRanks - cluster.devices()) / part.type.devices) {
      return reader.error(
          reader.line(),
          fmt::format("expected a cluster of at most {} devices, found {} nodes of {} devices{}",
                      kMostRanks, part.nodes, part.type.devices,
                      cluster.parts.empty() ? "" : " beside other parts"));
    }
    cluster.parts.push_back(std::move(part));
    return {};
  }));
  TESSERA_TRY_VOID(each(top, "tier", [&](const TomlReader& reader) -> Status {
    TESSERA_TRY(const FabricTier tier, read_tier(reader));
    cluster.tiers.push_back(tier);
    return {};
  }));
  TESSERA_TRY_VOID(read_switches(top, cluster));
  TESSERA_TRY_VOID(read_paths(top, cluster));
  TESSERA_TRY_VOID(read_hosts(top, cluster));
  TESSERA_TRY_VOID(top.boolean("rail_aligned", cluster.rail_aligned));
  TESSERA_TRY_VOID(top.boolean("one_machine", cluster.one_machine));
  TESSERA_TRY_VOID(top.positive("exchange_share", cluster.exchange_share));
  TESSERA_TRY_VOID(check_fabric(top, cluster));
  TESSERA_TRY_VOID(read_profile(top, cluster));
  return cluster;
}

namespace {

// Returns the text as a TOML basic string.
std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string figure(double value, Quantity what) { return toml_text(format_quantity(value, what)); }
std::string size(int64_t bytes) { return figure(static_cast<double>(bytes), Quantity::kBytes); }
std::string link_figures(const Link& link) {
  return fmt::format("rate = {}\nlatency = {}\n", figure(link.rate, Quantity::kBytesPerSecond),
                     figure(link.latency_s, Quantity::kSeconds));
}

std::string device_text(const Device& device) {
  std::string peaks;
  for (const std::string& name : kArithmeticTypes) {
    const auto it = device.peak.find(name);
    if (it == device.peak.end()) continue;
    peaks += fmt::format("{}{} = {}", peaks.empty() ? "" : ", ", name,
                         figure(it->second, Quantity::kFlops));
  }
  return fmt::format(
      "[part.device]\nname = {}\ngeneration = \"{}\"\npeak = {{ {} }}\nsustained = {}\n"
      "memory = {}\nmemory_rate = {}\ncache = {}\nunits = {}\nclock = {}\nlaunch = {}\n"
      "host_issue = {}\n{}context = {}\n",
      toml_text(device.name), generation_name(device.generation), peaks, device.sustained,
      size(device.memory_bytes), figure(device.memory_rate, Quantity::kBytesPerSecond),
      size(device.cache_bytes), device.units, figure(device.clock_hz, Quantity::kHertz),
      figure(device.launch_s, Quantity::kSeconds), figure(device.host_issue_s, Quantity::kSeconds),
      device.synchronous ? "synchronous = true\n" : "", size(device.context_bytes));
}

std::string part_text(const ClusterPart& part) {
  const NodeType& type = part.type;
  std::string out = fmt::format("\n[[part]]\nname = {}\nnodes = {}\ndevices = {}\n",
                                toml_text(type.name), part.nodes, type.devices);
  if (type.cores > 0) out += fmt::format("cores = {}\n", type.cores);
  if (type.sockets > 1) out += fmt::format("sockets = {}\n", type.sockets);
  out += device_text(type.device);
  if (type.inner.rate > 0) {
    out += fmt::format("[part.inner]\nkind = \"{}\"\nswitched = {}\n{}", link_name(type.inner.kind),
                       type.inner.switched, link_figures(type.inner));
  }
  if (type.sockets > 1) {
    out += fmt::format("[part.bridge]\nkind = \"{}\"\n{}", link_name(type.bridge.kind),
                       link_figures(type.bridge));
  }
  if (type.nics > 0) {
    out += fmt::format("[part.nic]\ncount = {}\n{}", type.nics, link_figures(type.nic));
  }
  out +=
      fmt::format("[part.host]\nmemory = {}\nmemory_rate = {}\n{}slowness = {}\n",
                  size(type.host_bytes), figure(type.host_memory_rate, Quantity::kBytesPerSecond),
                  link_figures(type.host), type.host_slowness);
  if (type.disk_bytes > 0) {
    out += fmt::format("[part.disk]\nsize = {}\nread = {}\nwrite = {}\n", size(type.disk_bytes),
                       figure(type.disk_read_rate, Quantity::kBytesPerSecond),
                       figure(type.disk_write_rate, Quantity::kBytesPerSecond));
  }
  return out;
}

// Writes ascending numbers as "0-3,7".
std::string ranges_text(const std::vector<int64_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += end - i == 1 ? fmt::format("{}", numbers[i])
                        : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return out;
}

// Writes the switches and the paths between them.
std::string network_text(const Cluster& cluster) {
  std::string out;
  const auto name = [&](int64_t s) {
    return toml_text(cluster.switches[static_cast<size_t>(s)].name);
  };
  for (const FabricSwitch& one : cluster.switches) {
    out += fmt::format("\n[[switch]]\nname = {}\n", toml_text(one.name));
    if (!one.nodes.empty()) out += fmt::format("nodes = \"{}\"\n", ranges_text(one.nodes));
    if (one.above >= 0) out += fmt::format("above = {}\n", name(one.above));
    if (one.uplink_rate > 0) {
      out += fmt::format("uplink = {}\n", figure(one.uplink_rate, Quantity::kBytesPerSecond));
    }
    if (one.uplink_error > 0) out += fmt::format("uplink_error = {}\n", one.uplink_error);
    out += fmt::format("latency = {}\n", figure(one.latency_s, Quantity::kSeconds));
  }
  for (const FabricPath& path : cluster.paths) {
    out += fmt::format("\n[[path]]\nbetween = [{}, {}]\n", name(path.from), name(path.to));
    if (path.rate > 0) {
      out += fmt::format("rate = {}\n", figure(path.rate, Quantity::kBytesPerSecond));
    }
    out += fmt::format("latency = {}\n", figure(path.latency_s, Quantity::kSeconds));
  }
  return out;
}

}  // namespace

std::string to_toml(const Cluster& cluster) {
  std::string out = fmt::format("name = {}\n", toml_text(cluster.name));
  if (cluster.rail_aligned) out += "rail_aligned = true\n";
  if (cluster.one_machine) out += "one_machine = true\n";
  if (cluster.exchange_share != 1)
    out += fmt::format("exchange_share = {}\n", cluster.exchange_share);
  if (!cluster.profile_file.empty()) {
    out += fmt::format("profile = {}\n", toml_text(cluster.profile_file));
  }
  if (!cluster.hosts.empty()) {
    Names hosts;
    for (const std::string& host : cluster.hosts) hosts.push_back(toml_text(host));
    out += fmt::format("hosts = [{}]\n", join(hosts, ", "));
  }
  for (const ClusterPart& part : cluster.parts) out += part_text(part);
  for (const FabricTier& tier : cluster.tiers) {
    out += "\n[[tier]]\n";
    if (tier.radix > 0) out += fmt::format("radix = {}\n", tier.radix);
    out += fmt::format("oversubscription = {}\nlatency = {}\n", tier.oversubscription,
                       figure(tier.latency_s, Quantity::kSeconds));
  }
  return out + network_text(cluster);
}

}  // namespace tessera
