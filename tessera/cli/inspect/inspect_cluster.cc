// tessera inspect dgx-a100:2: draws a machine as text, and lists the presets.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/inspect/inspect.h"
#include "tessera/cli/machine.h"
#include "tessera/cli/output.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cluster/profile.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string rate(double value) { return short_quantity(value, Quantity::kBytesPerSecond); }
std::string flops(double value) { return short_quantity(value, Quantity::kFlops); }
std::string decimal(int64_t bytes) {
  return short_quantity(static_cast<double>(bytes), Quantity::kBytes);
}
std::string time(double value) { return short_quantity(value, Quantity::kSeconds); }
std::string link_text(const Link& link) {
  return fmt::format("{}, {}", rate(link.rate), time(link.latency_s));
}

// A row of the drawing, with one column for each device of a node. If a node has more than eight
// devices, only the first six and the last are shown, with dots between them.
class Columns {
 public:
  explicit Columns(int64_t count) {
    for (int64_t i = 0; i < std::min<int64_t>(count, count > 8 ? 6 : 8); ++i) shown_.push_back(i);
    if (count > 8) shown_.push_back(-1);
    if (count > 8) shown_.push_back(count - 1);
  }
  const std::vector<int64_t>& shown() const { return shown_; }
  // Returns the row with `cell` of each shown column, centred, and "..." for the columns left out.
  template <class Cell>
  std::string row(Cell cell) const {
    std::string out = "  ";
    for (const int64_t column : shown_) {
      const std::string text = column < 0 ? "..." : cell(column);
      out += fmt::format("{:^7}", text);
    }
    return out;
  }
  size_t width() const { return 2 + 7 * shown_.size(); }

 private:
  std::vector<int64_t> shown_;
};

std::string line(std::string drawing, const std::string& words) {
  while (!drawing.empty() && drawing.back() == ' ') drawing.pop_back();
  if (words.empty()) return drawing + "\n";
  return fmt::format("{:<60}{}\n", drawing, words);
}

// Returns how the devices of a node are connected. A node is a hybrid cube mesh if its collectives
// use the curves that were measured on one (docs/theory/cost-model.md section 4.3).
std::string wiring_text(const NodeType& type) {
  if (!type.inner.switched) return "one link that the devices share";
  if (type.inner.kind == LinkKind::kNvlink && type.device.generation->curves == "volta")
    return "a hybrid cube mesh: collectives as measured on it, one link a message";
  return "a switch: all devices at full rate";
}

// Draws the bar that connects the devices: of '=' for a switch, of '-' for a link that they share,
// with '//' between sockets.
std::string bar(const NodeType& type, const Columns& columns) {
  const char stroke = type.inner.switched ? '=' : '-';
  std::string out(columns.width(), stroke);
  out[0] = out[1] = ' ';
  const auto& shown = columns.shown();
  for (size_t i = 1; i < shown.size(); ++i) {
    if (shown[i] < 0 || shown[i - 1] < 0) continue;
    const int64_t a = shown[i - 1] * type.sockets / type.devices;
    const int64_t b = shown[i] * type.sockets / type.devices;
    if (a != b) out.replace(2 + 7 * i - 1, 2, "//");
  }
  return out;
}

std::string node_text(const NodeType& type) {
  const Columns columns(type.devices);
  const std::string strokes = columns.row([](int64_t) { return std::string("|"); });
  std::string host(columns.width(), '-');
  host.replace(0, std::min(host.size(), std::string("  - host ").size()), "  - host ");
  std::string out = line(
      host, fmt::format("memory {} at {}", decimal(type.host_bytes), rate(type.host_memory_rate)));
  out += line(strokes, fmt::format("host link {} a device", link_text(type.host)));
  out += line(columns.row([](int64_t i) { return fmt::format("[{:>2} ]", i); }),
              fmt::format("{} x {}", type.devices, type.device.name));
  if (type.inner.rate > 0) {
    out += line(strokes,
                fmt::format("{} {} a device", link_name(type.inner.kind), link_text(type.inner)));
    out += line(bar(type, columns), wiring_text(type));
    if (type.sockets > 1) {
      out += line("", fmt::format("// {} sockets, {} {} between two of them", type.sockets,
                                  link_name(type.bridge.kind), link_text(type.bridge)));
    }
  }
  if (type.nics > 0) {
    const Columns nics(type.nics);
    out += line(nics.row([](int64_t) { return std::string("|"); }), "");
    out += line(
        nics.row([](int64_t i) { return fmt::format("({:>2} )", i); }),
        fmt::format("{} {} {}, together {}", type.nics, type.nics == 1 ? "NIC" : "NICs",
                    link_text(type.nic), rate(type.nic.rate * static_cast<double>(type.nics))));
  }
  if (type.disk_bytes > 0) {
    out += line("", fmt::format("disk {}, read {}, write {}", decimal(type.disk_bytes),
                                rate(type.disk_read_rate), rate(type.disk_write_rate)));
  }
  return out;
}

std::string device_text(const NodeType& type) {
  const Device& device = type.device;
  Table peak({"arithmetic", "peak a device", "under load"});
  for (const std::string name : {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4"}) {
    const auto it = device.peak.find(name);
    if (it == device.peak.end()) continue;
    peak.add({name, flops(it->second), flops(it->second * device.sustained)});
  }
  return fmt::format(
      "  {} ({}): {} at {}, cache {}\n"
      "  memory {} at {}{}\n"
      "  a kernel: {} of host time to issue (host slowness {:g}), {} until it starts\n{}",
      device.name, generation_name(device.generation), plural(device.units, "unit"),
      short_quantity(device.clock_hz, Quantity::kHertz), decimal(device.cache_bytes),
      short_bytes(device.memory_bytes), rate(device.memory_rate),
      device.context_bytes == 0 ? ""
                                : fmt::format(", of which the driver and libraries take {}",
                                              short_bytes(device.context_bytes)),
      time(device.host_issue_s), type.host_slowness, time(device.launch_s), peak.to_string("  "));
}

// Describes the switches below `above` and what is below them, each with its way up.
std::string switches_text(const Cluster& cluster, int64_t above, size_t depth) {
  std::string out;
  for (size_t s = 0; s < cluster.switches.size(); ++s) {
    const FabricSwitch& one = cluster.switches[s];
    if (one.above != above) continue;
    std::string line =
        one.uplink_rate > 0 ? rate(one.uplink_rate) + " upwards" : "no limit upwards";
    if (one.uplink_error > 0) line += fmt::format(" (within {:.0f} %)", 100 * one.uplink_error);
    out += fmt::format("{}{}: {}, {}, {} a hop\n", std::string(2 * depth, ' '), one.name,
                       plural(static_cast<int64_t>(one.nodes.size()), "node"), line,
                       time(one.latency_s));
    out += switches_text(cluster, static_cast<int64_t>(s), depth + 1);
  }
  return out;
}

// Describes the network from its top down to the nodes.
std::string fabric_text(const Cluster& cluster) {
  if (cluster.nodes() == 1) return "";
  std::string out =
      fmt::format("network of {}{}{}\n", plural(cluster.nodes(), "node"),
                  cluster.one_machine ? " of one machine, whose cores they share" : "",
                  cluster.rail_aligned ? ", rail-aligned: NIC i of a node on leaf i" : "");
  if (!cluster.switches.empty()) {
    out += switches_text(cluster, -1, 1);
    for (const FabricPath& path : cluster.paths) {
      out +=
          fmt::format("  {} to {}: {}{}\n", cluster.switches[static_cast<size_t>(path.from)].name,
                      cluster.switches[static_cast<size_t>(path.to)].name,
                      path.rate > 0 ? rate(path.rate) + ", " : "", time(path.latency_s));
    }
    return out;
  }
  if (cluster.tiers.empty()) return out + "  one ideal switch\n";
  std::vector<int64_t> covered{1};
  for (const FabricTier& tier : cluster.tiers) covered.push_back(covered.back() * tier.radix);
  for (size_t t = cluster.tiers.size(); t-- > 0;) {
    const FabricTier& tier = cluster.tiers[t];
    const std::string span =
        tier.radix == 0
            ? "joins all"
            : fmt::format("a switch for {} ({} upwards)", plural(covered[t + 1], "node"),
                          tier.oversubscription == 1
                              ? "full rate"
                              : fmt::format("1/{:g} of the rate", tier.oversubscription));
    out += fmt::format("  {}tier {}: {}, {} a hop\n",
                       std::string(2 * (cluster.tiers.size() - 1 - t), ' '), t, span,
                       time(tier.latency_s));
  }
  return out;
}

std::string cluster_text(const Cluster& cluster) {
  double memory = 0;
  for (const ClusterPart& part : cluster.parts) {
    memory += static_cast<double>(part.type.device.memory_bytes) *
              static_cast<double>(part.type.devices * part.nodes);
  }
  std::string out = fmt::format(
      "{}: {}, {}, {} of device memory\n{}\n", cluster.name, plural(cluster.nodes(), "node"),
      plural(cluster.devices(), "device"), short_bytes(static_cast<int64_t>(memory)),
      cluster.profile == nullptr
          ? "no measured tables: constants only"
          : fmt::format("measured tables of {} ({}): {}", cluster.profile->device,
                        cluster.profile->date, cluster.profile_file));
  int64_t first = 0;
  for (const ClusterPart& part : cluster.parts) {
    const int64_t count = part.nodes * part.type.devices;
    out += fmt::format("\n{}: {}, devices {} to {}\n\n{}\n{}", part.type.name,
                       plural(part.nodes, "node"), first, first + count - 1, node_text(part.type),
                       device_text(part.type));
    first += count;
  }
  const std::string fabric = fabric_text(cluster);
  return fabric.empty() ? out : out + "\n" + fabric;
}

Json link_json(const Link& link) {
  return {{"kind", link_name(link.kind)},
          {"bytes_per_s", link.rate},
          {"latency_s", link.latency_s},
          {"switched", link.switched}};
}

Json part_json(const ClusterPart& part, int64_t first) {
  const NodeType& type = part.type;
  const Device& device = type.device;
  Json json{{"name", type.name},
            {"nodes", part.nodes},
            {"first_device", first},
            {"devices_a_node", type.devices},
            {"device",
             {{"name", device.name},
              {"generation", generation_name(device.generation)},
              {"peak_flop_per_s", device.peak},
              {"sustained", device.sustained},
              {"memory_bytes", device.memory_bytes},
              {"memory_bytes_per_s", device.memory_rate},
              {"cache_bytes", device.cache_bytes},
              {"units", device.units},
              {"clock_hz", device.clock_hz},
              {"launch_s", device.launch_s},
              {"host_issue_s", device.host_issue_s},
              {"context_bytes", device.context_bytes}}},
            {"inner", type.inner.rate > 0 ? link_json(type.inner) : Json()},
            {"sockets", type.sockets},
            {"bridge", type.sockets > 1 ? link_json(type.bridge) : Json()},
            {"nics", type.nics},
            {"nic", type.nics > 0 ? link_json(type.nic) : Json()},
            {"host", link_json(type.host)}};
  json["host"]["memory_bytes"] = type.host_bytes;
  json["host"]["memory_bytes_per_s"] = type.host_memory_rate;
  json["host"]["slowness"] = type.host_slowness;
  json["disk"] = {{"bytes", type.disk_bytes},
                  {"read_bytes_per_s", type.disk_read_rate},
                  {"write_bytes_per_s", type.disk_write_rate}};
  return json;
}

Json cluster_json(const Cluster& cluster) {
  Json parts = Json::array();
  int64_t first = 0;
  for (const ClusterPart& part : cluster.parts) {
    parts.push_back(part_json(part, first));
    first += part.nodes * part.type.devices;
  }
  Json tiers = Json::array();
  for (const FabricTier& tier : cluster.tiers) {
    tiers.push_back({{"radix", tier.radix},
                     {"oversubscription", tier.oversubscription},
                     {"latency_s", tier.latency_s}});
  }
  Json switches = Json::array();
  for (const FabricSwitch& one : cluster.switches) {
    switches.push_back(
        {{"name", one.name},
         {"nodes", one.nodes},
         {"above",
          one.above < 0 ? Json() : Json(cluster.switches[static_cast<size_t>(one.above)].name)},
         {"uplink_bytes_per_s", one.uplink_rate > 0 ? Json(one.uplink_rate) : Json()},
         {"uplink_error", one.uplink_error},
         {"latency_s", one.latency_s}});
  }
  Json paths = Json::array();
  for (const FabricPath& path : cluster.paths) {
    paths.push_back({{"between",
                      {cluster.switches[static_cast<size_t>(path.from)].name,
                       cluster.switches[static_cast<size_t>(path.to)].name}},
                     {"bytes_per_s", path.rate > 0 ? Json(path.rate) : Json()},
                     {"latency_s", path.latency_s}});
  }
  return {{"cluster", cluster.name},
          {"nodes", cluster.nodes()},
          {"devices", cluster.devices()},
          {"rail_aligned", cluster.rail_aligned},
          {"one_machine", cluster.one_machine},
          {"parts", std::move(parts)},
          {"tiers", std::move(tiers)},
          {"switches", std::move(switches)},
          {"paths", std::move(paths)},
          {"hosts", cluster.hosts},
          {"profile", cluster.profile == nullptr ? Json() : Json(cluster.profile_file)},
          {"text", to_toml(cluster)}};
}

}  // namespace

Result<int> inspect_cluster(const InspectOptions& options) {
  TESSERA_TRY(Cluster cluster, load_machine(options.subject));
  if (!options.what_if.empty()) TESSERA_TRY_VOID(apply_what_if(cluster, options.what_if));
  if (options.text) return print(to_toml(cluster));
  return print(options.json ? dumped(cluster_json(cluster)) + "\n" : cluster_text(cluster));
}

Result<int> list_clusters(bool json) {
  if (json) {
    Json list = Json::array();
    for (const Preset& preset : presets()) {
      TESSERA_TRY(const Cluster cluster, load_cluster(preset.name));
      list.push_back({{"name", preset.name},
                      {"summary", preset.summary},
                      {"devices_a_node", cluster.devices()}});
    }
    return print(dumped(Json{{"clusters", std::move(list)}}) + "\n");
  }
  std::string out;
  for (const Preset& preset : presets()) {
    out += fmt::format("{:<13} {}\n", preset.name, preset.summary);
  }
  return print(out +
               "\nname:4 stands for four nodes. An own machine: docs/reference/cluster-format.md; "
               "tessera inspect NAME --text is a start.\n");
}

}  // namespace tessera::cli
