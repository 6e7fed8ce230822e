// load_cluster(): loads presets by name, this machine, and files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "tessera/base/check.h"
#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/base/toml_reader.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cluster/presets.h"
#include "tessera/cluster/profile.h"
#include "tessera/cluster/words.h"

namespace tessera {
namespace {

constexpr std::string_view kLocal = "local";
constexpr std::string_view kLocalSummary =
    "this machine: a rank for each core; local:N for N ranks";

// Returns the comment in the first line of a preset's text.
std::string summary_of(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  TESSERA_CHECK(line.starts_with("# "), "a preset starts with a comment, found '{}'", line);
  return std::string(line.substr(2));
}

double scalar(const Profile* profile, const std::string& name, double otherwise) {
  if (profile == nullptr) return otherwise;
  const auto it = profile->scalars.find(name);
  return it == profile->scalars.end() ? otherwise : it->second;
}

int64_t memory_of_this_machine() {
  const auto pages = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return std::max<int64_t>(pages, 1) * std::max<int64_t>(page, 1);
}

bool names_file(std::string_view what) {
  return what.ends_with(".toml") || what.find('/') != std::string_view::npos;
}

}  // namespace

Cluster local_cluster(int64_t ranks, std::shared_ptr<const Profile> profile) {
  const Profile* measured = profile.get();
  const auto cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  // A profile of accelerators says how many there are.
  const auto accelerators = static_cast<int64_t>(scalar(measured, "device.count", 0));
  const int64_t devices = ranks > 0 ? ranks : accelerators > 0 ? accelerators : cores;
  // These constants are those of a server core with AVX2 at 2.5 GHz, which does 32 float32
  // operations a cycle. For other machines they are a guess; measurements of `tessera profile`
  // replace them.
  NodeType type;
  type.name = "local";
  type.devices = devices;
  type.cores = accelerators > 0 ? 0 : cores;
  Device& device = type.device;
  device.name = measured == nullptr ? "core (constants, not measured)" : measured->device;
  device.generation = Generation::named("cpu");
  device.peak["fp32"] = scalar(measured, "device.peak.fp32", 80e9);
  device.peak["fp64"] = scalar(measured, "device.peak.fp64", device.peak["fp32"] / 2);
  if (const double rate = scalar(measured, "device.peak.bf16", 0); rate > 0)
    device.peak["bf16"] = rate;
  device.synchronous = accelerators == 0;
  const int64_t share = memory_of_this_machine() / devices;
  device.memory_bytes =
      static_cast<int64_t>(scalar(measured, "device.memory_bytes", static_cast<double>(share)));
  device.memory_rate = scalar(measured, "device.memory_rate", 8e9);
  device.cache_bytes = static_cast<int64_t>(scalar(measured, "device.cache_bytes", 1 << 20));
  device.clock_hz = scalar(measured, "device.clock_hz", 2.5e9);
  device.launch_s = scalar(measured, "device.launch_s", 0);  // kernels run in the issuing thread
  device.host_issue_s = scalar(measured, "host.issue_s", 5e-6);
  type.inner = {LinkKind::kMemory, scalar(measured, "inner.rate", 4e9),
                scalar(measured, "inner.latency_s", 10e-6), false};
  type.host = {LinkKind::kHost, scalar(measured, "host.rate", 4e9),
               scalar(measured, "host.latency_s", 1e-6), true};
  type.host_bytes = memory_of_this_machine();
  type.host_memory_rate = scalar(measured, "host.memory_rate", 16e9);
  type.disk_bytes = 1'000'000'000'000;
  type.disk_read_rate = scalar(measured, "disk.read_rate", 500e6);
  type.disk_write_rate = scalar(measured, "disk.write_rate", 300e6);
  Cluster cluster;
  cluster.name = kLocal;
  cluster.parts.push_back({std::move(type), 1});
  cluster.profile = std::move(profile);
  return cluster;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> list;
    for (const auto& [name, text] : preset_files()) {
      list.push_back({std::string(name), summary_of(text), std::string(text)});
    }
    list.push_back({std::string(kLocal), std::string(kLocalSummary), ""});
    std::sort(list.begin(), list.end(),
              [](const Preset& a, const Preset& b) { return a.name < b.name; });
    return list;
  }();
  return all;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

bool names_preset(std::string_view what) {
  const std::string name = lower_case(what.substr(0, what.find(':')));
  const auto words = cluster_words(what);
  return !words || *words ||
         std::any_of(presets().begin(), presets().end(),
                     [&](const Preset& preset) { return preset.name == name; });
}

namespace {

tl::unexpected<Error> unknown_cluster(std::string_view what, const std::string& name) {
  std::vector<std::string> names = all_cluster_words();
  const std::vector<std::string> known = preset_names();
  names.insert(names.end(), known.begin(), known.end());
  // The name of a device is looked for without its number ("8x"), which is then put before it again.
  const size_t digits = name.find_first_not_of("0123456789");
  const bool counts =
      digits != std::string::npos && digits > 0 && (name[digits] == 'x' || name[digits] == 'X');
  const std::string before = counts ? name.substr(0, digits + 1) : "";
  const std::string near = nearest(lower_case(name.substr(before.size())), names);
  return invalid_input(fmt::format(
      "cluster '{}': expected a preset (tessera inspect --list-clusters), devices (8xH100), "
      "'local' or a .toml file, found '{}', did you mean '{}{}'?",
      what, name, before, near));
}

Result<Cluster> of_preset(const std::string& name) {
  const auto it = std::find_if(presets().begin(), presets().end(),
                               [&](const Preset& preset) { return preset.name == name; });
  TESSERA_CHECK(it != presets().end(), "no preset '{}'", name);
  return parse_cluster(it->text, name + ".toml");
}

// Gives the cluster so many nodes. In a preset with switches, each node of the preset becomes so
// many nodes below the same switch.
Result<Cluster> with_nodes(Cluster cluster, std::string_view what, int64_t nodes) {
  if (!cluster.switches.empty()) {
    for (FabricSwitch& one : cluster.switches) {
      std::vector<int64_t> many;
      for (const int64_t node : one.nodes) {
        for (int64_t i = 0; i < nodes; ++i) many.push_back(node * nodes + i);
      }
      one.nodes = std::move(many);
    }
    cluster.parts.front().nodes *= nodes;
    return cluster;
  }
  if (nodes > 1 && cluster.parts.front().type.nics == 0) {
    return invalid_input(fmt::format(
        "cluster '{}': expected one node, which has no network, found {}", what, nodes));
  }
  cluster.parts.front().nodes = nodes;
  return cluster;
}

// Returns the cluster of so many devices: whole nodes, or a part of one node.
Result<Cluster> of_words(std::string_view what, const ClusterWords& words) {
  TESSERA_TRY(Cluster cluster, of_preset(words.preset));
  NodeType& type = cluster.parts.front().type;
  const int64_t a_node = type.devices;
  const int64_t devices = words.devices == 0 ? a_node : words.devices;
  if (devices < a_node) {
    type.devices = devices;
    if (devices % type.sockets != 0) type.sockets = 1;
    cluster.parts.front().nodes = 1;
    return cluster;
  }
  if (devices % a_node != 0) {
    return invalid_input(fmt::format(
        "cluster '{}': expected fewer than {} devices or a multiple, for a {} has {}, found {}",
        what, a_node, words.preset, a_node, devices));
  }
  return with_nodes(std::move(cluster), what, devices / a_node);
}

// Returns this machine. A profile of accelerators whose name is that of a preset's device gives the
// preset its tables.
Result<Cluster> load_local(int64_t ranks) {
  const std::string path = default_profile_path();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return local_cluster(ranks, nullptr);
  TESSERA_TRY(Profile read, load_profile(path));
  const auto profile = std::make_shared<const Profile>(std::move(read));
  Cluster cluster = local_cluster(ranks, profile);
  const double count = scalar(profile.get(), "device.count", 0);
  for (const std::string& word : split_text(count > 0 ? profile->device : "", ' ')) {
    const auto known = cluster_words(word.substr(0, word.find(',')));
    if (!known || !*known) continue;
    const int64_t devices = ranks > 0 ? ranks : static_cast<int64_t>(count);
    TESSERA_TRY(cluster, of_words(kLocal, {(*known)->preset, devices}));
    cluster.name = kLocal;
    cluster.profile = profile;
    break;
  }
  cluster.profile_file = std::filesystem::absolute(path).lexically_normal().string();
  return cluster;
}

}  // namespace

std::string taken_for(std::string_view what) {
  const auto words =
      names_file(what) ? Result<std::optional<ClusterWords>>(std::nullopt) : cluster_words(what);
  if (!words || !*words) return "";
  const auto preset = of_preset((*words)->preset);
  TESSERA_CHECK(preset.has_value(), "{}", preset.error().message);
  const int64_t a_node = preset->parts.front().type.devices;
  const int64_t devices = (*words)->devices == 0 ? a_node : (*words)->devices;
  if (devices >= a_node)
    return fmt::format("{} is {}:{}", what, (*words)->preset, devices / a_node);
  return fmt::format("{} is {} of the {} devices of a {}", what, devices, a_node, (*words)->preset);
}

Result<Cluster> load_cluster(std::string_view what) {
  if (names_file(what)) {
    TESSERA_TRY(const std::string text, read_file(std::string(what)));
    return parse_cluster(text, what);
  }
  TESSERA_TRY(const auto words, cluster_words(what));
  if (words) return of_words(what, *words);
  const size_t colon = what.find(':');
  const std::string name = lower_case(what.substr(0, colon));
  const std::vector<std::string> known = preset_names();
  if (std::find(known.begin(), known.end(), name) == known.end())
    return unknown_cluster(what, std::string(what.substr(0, colon)));
  const bool local = name == kLocal;
  Cluster cluster;
  if (!local) {
    TESSERA_TRY(cluster, of_preset(name));
  }
  int64_t count = 0;
  if (colon != std::string_view::npos) {
    const int64_t most = kMostRanks / (local ? 1 : cluster.devices());
    const auto number = parse_int(what.substr(colon + 1));
    if (!number || *number < 1 || *number > most) {
      return invalid_input(
          fmt::format("cluster '{}': expected a number of {} from 1 to {} after ':', found '{}'",
                      what, local ? "ranks" : "nodes", most, what.substr(colon + 1)));
    }
    count = *number;
  }
  if (local) return load_local(count);
  return count == 0 ? cluster : with_nodes(std::move(cluster), what, count);
}

}  // namespace tessera
