// tessera probe: reads what others know of a network, measures the rest, and writes a cluster file.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/cli/libraries/probe_library.h"
#include "tessera/cli/output.h"
#include "tessera/cli/progress_line.h"
#include "tessera/comm/communicator.h"
#include "tessera/network/probe_measure.h"
#include "tessera/network/readers.h"

namespace tessera::cli {
namespace {

using network::HostLine;
using network::Network;
using network::NetworkNode;
using network::Probed;

// The network that the files of --from describe together, and their names for messages.
struct Known {
  std::optional<Network> network;
  std::string source;
};

Result<Known> read_known(const std::vector<std::string>& files) {
  Known known;
  for (const std::string& file : files) {
    TESSERA_TRY(Network network, network::read_network(file));
    if (!known.network) {
      known = {std::move(network), file};
      continue;
    }
    TESSERA_TRY_VOID(network::merge(network, file, known.source, *known.network));
    known.source += " and " + file;
  }
  return known;
}

Result<std::vector<HostLine>> read_host_file(const std::string& file) {
  if (file.empty()) return std::vector<HostLine>{};
  TESSERA_TRY(const std::string text, read_file(file));
  return network::read_hosts(text, file);
}

// Returns the known network with these hosts only, in their order and under their names.
Result<Network> with_hosts(const Known& known, const std::vector<HostLine>& hosts) {
  std::vector<std::string> names;
  for (const HostLine& host : hosts)
    names.push_back(host.known_as.empty() ? host.name : host.known_as);
  TESSERA_TRY(Network some, network::only_hosts(*known.network, names, known.source));
  for (size_t i = 0; i < hosts.size(); ++i) some.nodes[i].name = hosts[i].name;
  return some;
}

// Returns the type of each node of a cluster that has host names, by name.
std::map<std::string, NodeType> types_by_host(const Cluster& cluster) {
  std::map<std::string, NodeType> types;
  size_t node = 0;
  for (const ClusterPart& part : cluster.parts) {
    for (int64_t i = 0; i < part.nodes; ++i, ++node) {
      if (node < cluster.hosts.size()) types[cluster.hosts[node]] = part.type;
    }
  }
  return types;
}

// Returns the types of the nodes: those of --like or of the cluster file of --from (of the host of
// the same name, else of the first node), or this machine with `devices` each.
Result<std::vector<NodeType>> node_types(const ProbeCommand& options, const Network& network,
                                         const std::vector<int64_t>& devices) {
  std::string like = options.like;
  for (const std::string& file : options.from) {
    if (like.empty() && file.ends_with(".toml")) like = file;
  }
  std::vector<NodeType> types;
  if (!like.empty()) {
    TESSERA_TRY(const Cluster cluster, load_cluster(like));
    const auto by_host = types_by_host(cluster);
    for (const NetworkNode& node : network.nodes) {
      const auto found = by_host.find(node.name);
      types.push_back(found == by_host.end() ? cluster.parts.front().type : found->second);
    }
    return types;
  }
  for (const int64_t count : devices) {
    // The figures that `tessera profile` found on this machine, or constants.
    TESSERA_TRY(const Cluster here, load_cluster(fmt::format("local:{}", count)));
    types.push_back(here.parts.front().type);
    types.back().name = "host";
  }
  return types;
}

// Writes the cluster file. `said` are lines for its head. The last two are as in a Cluster.
Status write_cluster(const ProbeCommand& options, const Network& network,
                     const std::vector<int64_t>& devices, const std::string& said,
                     bool one_machine = false, double exchange_share = 1) {
  TESSERA_TRY(const auto types, node_types(options, network, devices));
  std::string name = std::filesystem::path(options.out).stem().string();
  if (name.empty()) name = "probed";
  TESSERA_TRY(Cluster cluster, network::to_cluster(network, name, types));
  cluster.one_machine = one_machine;
  cluster.exchange_share = exchange_share;
  const std::string text = to_toml(cluster);
  // Names of hosts come from others: what cannot be read again must not be written.
  TESSERA_TRY_VOID(parse_cluster(text, options.out.empty() ? "the cluster" : options.out));
  if (options.out.empty()) return {};
  std::string head;
  for (const std::string& line : split_text(said, '\n')) {
    if (!line.empty()) head += fmt::format("# {}\n", one_line(line));
  }
  return write_file(options.out, head + text);
}

// ---- without ranks

std::string text_of(const Network& network) {
  std::map<std::string, std::vector<std::string>> below;
  for (const NetworkNode& node : network.nodes) below[node.below].push_back(node.name);
  const size_t switches = network.switches.size();
  std::string out = fmt::format("{} below {} {}\n", plural(std::ssize(network.nodes), "host"),
                                switches, switches == 1 ? "switch" : "switches");
  for (const network::NetworkSwitch& one : network.switches) {
    const auto hosts = below.find(one.name);
    if (hosts == below.end()) continue;
    out += fmt::format(
        "{}: {}{}\n", one.name, join(hosts->second, " "),
        one.uplink > 0
            ? fmt::format(", way up {}", short_quantity(one.uplink, Quantity::kBytesPerSecond))
            : "");
  }
  return out;
}

std::string json_of(const Network& network) {
  nlohmann::ordered_json out;
  out["machines"] = nlohmann::ordered_json::array();
  std::map<std::string, std::vector<std::string>> below;
  for (const NetworkNode& node : network.nodes) {
    out["machines"].push_back(node.name);
    below[node.below].push_back(node.name);
  }
  out["clusters"] = nlohmann::ordered_json::array();
  out["uplink_Mbps"] = nlohmann::ordered_json::array();
  for (const network::NetworkSwitch& one : network.switches) {
    if (!below.contains(one.name)) continue;
    out["clusters"].push_back(below[one.name]);
    out["uplink_Mbps"].push_back(one.uplink > 0 ? nlohmann::ordered_json(one.uplink * 8 / 1e6)
                                                : nlohmann::ordered_json());
  }
  return dumped(out, 1) + "\n";
}

Result<int> only_read(const ProbeCommand& options) {
  if (options.from.empty()) {
    return invalid_input(
        "probe: expected mpirun or srun with ranks on at least two hosts, or --from FILE, found "
        "neither");
  }
  TESSERA_TRY(Known known, read_known(options.from));
  TESSERA_TRY(const auto hosts, read_host_file(options.hosts));
  if (known.network->nodes.empty()) {
    // Only the inside of a node is known: the hosts are all on one switch.
    if (hosts.empty()) {
      return invalid_input(fmt::format(
          "probe: {}: expected the hosts by --hosts or another --from, found none", known.source));
    }
    for (const HostLine& host : hosts) known.network->nodes.emplace_back().name = host.name;
  }
  Network network = *known.network;
  if (!hosts.empty()) {
    TESSERA_TRY(network, with_hosts(known, hosts));
  }
  std::vector<int64_t> devices;
  for (size_t i = 0; i < network.nodes.size(); ++i)
    devices.push_back(hosts.empty() ? 1 : std::max<int64_t>(1, hosts[i].slots));
  const std::string said = fmt::format("Read by tessera probe from {}\n", known.source);
  TESSERA_TRY_VOID(write_cluster(options, network, devices, said));
  return print(options.json ? json_of(network) : text_of(network));
}

// ---- with ranks

std::string name_of_host() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  if (const char* slurm = std::getenv("SLURMD_NODENAME")) return slurm;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string environment(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Takes the rates and latencies that were measured into a network whose switches were known.
void put_measured(const network::Inference& found, Network& known) {
  Network measured = network_of(found, [&] {
    std::vector<std::string> names;
    for (const NetworkNode& node : known.nodes) names.push_back(node.name);
    return names;
  }());
  std::map<std::string, network::NetworkSwitch*> switches;
  for (network::NetworkSwitch& one : known.switches) switches[one.name] = &one;
  for (size_t i = 0; i < known.nodes.size(); ++i) {
    NetworkNode& node = known.nodes[i];
    const NetworkNode& from = measured.nodes[i];
    node.rate = from.rate;
    node.rate_error = from.rate_error;
    node.latency_s = from.latency_s;
    const network::NetworkSwitch& rack = *measured.find_switch(from.below);
    network::NetworkSwitch& ours = *switches.at(node.below);
    if (rack.uplink > 0) {
      ours.uplink = rack.uplink;
      ours.uplink_error = rack.uplink_error;
    }
    ours.latency_s = rack.latency_s;
    const network::NetworkSwitch* core = measured.find_switch("core");
    if (core != nullptr && !ours.above.empty() && switches.at(ours.above)->latency_s == 0)
      switches.at(ours.above)->latency_s = core->latency_s;
  }
}

class Measured {
 public:
  explicit Measured(const ProbeCommand& options) : options_(options) {}

  Result<int> run(double bytes) {
    TESSERA_TRY(const auto world,
                comm::mpi_world({.timeout = std::chrono::milliseconds(
                                     static_cast<int64_t>(1000 * options_.timeout_s)),
                                 .rank_of_process = {}}));
    network::ProbeOptions probe;
    probe.seconds = options_.seconds;
    probe.bytes = bytes;
    probe.seed = static_cast<uint64_t>(options_.seed);
    std::optional<ProgressLine> line;
    if (world->rank() == 0) {
      line.emplace("probe", options_.seconds);
      probe.known_racks = [&](const std::vector<network::ProbeHost>& hosts) {
        return known_racks(hosts);
      };
      probe.progress = [&](const std::string& what, double) { line->say(what); };
    }
    TESSERA_TRY(Probed probed,
                network::probe_network(*world,
                                       {name_of_host(), environment("SLURM_TOPOLOGY_ADDR"),
                                        read_file("/proc/sys/kernel/random/boot_id").value_or("")},
                                       probe));
    line.reset();
    return world->rank() == 0 ? answer(std::move(probed)) : 0;
  }

 private:
  // Returns the racks that --from or Slurm names; else an empty list. Keeps the known network.
  Result<std::vector<int64_t>> known_racks(const std::vector<network::ProbeHost>& hosts) {
    TESSERA_TRY(Known known, read_known(options_.from));
    TESSERA_TRY(hosts_, read_host_file(options_.hosts));
    for (const HostLine& host : hosts_) {
      if (std::ranges::find(hosts, host.name, &network::ProbeHost::name) == hosts.end()) {
        return invalid_input(
            fmt::format("probe: host '{}' of {}: expected a rank on it, found none", host.name,
                        options_.hosts));
      }
    }
    const bool has_addresses = std::ranges::all_of(hosts, [](const network::ProbeHost& host) {
      return host.address.find('.') != std::string::npos;
    });
    if (!known.network && has_addresses) {
      std::string text;
      for (const network::ProbeHost& host : hosts) text += host.address + "\n";
      TESSERA_TRY(known.network, network::read_slurm_addresses(text, "SLURM_TOPOLOGY_ADDR"));
      known.source = "SLURM_TOPOLOGY_ADDR";
    }
    if (!known.network) return std::vector<int64_t>{};
    inside_ = known.network->inside;
    if (known.network->nodes.empty()) return std::vector<int64_t>{};
    std::vector<HostLine> lines;
    for (const network::ProbeHost& host : hosts) {
      const auto line = std::ranges::find(hosts_, host.name, &HostLine::name);
      lines.push_back({host.name, line == hosts_.end() ? "" : line->known_as, 0});
    }
    TESSERA_TRY(known_, with_hosts(known, lines));
    std::vector<int64_t> racks;
    std::map<std::string, int64_t> numbers;
    for (const NetworkNode& node : known_->nodes) {
      if (node.below.empty()) {  // a cluster file without switches
        known_.reset();
        return std::vector<int64_t>{};
      }
      racks.push_back(numbers.try_emplace(node.below, std::ssize(numbers)).first->second);
    }
    return racks;
  }

  // Puts the hosts into the order of --hosts; those that it does not name are left out.
  static Result<Network> ordered(Network network, const std::vector<HostLine>& hosts,
                                 const std::string& file) {
    if (hosts.empty()) return network;
    std::vector<std::string> names;
    for (const HostLine& host : hosts) names.push_back(host.name);
    return network::only_hosts(network, names, file);
  }

  Result<int> answer(Probed probed) {
    Network network = network_of(probed.found, probed.hosts);
    if (known_) {
      network = *known_;
      put_measured(probed.found, network);
    }
    network.inside = inside_;
    TESSERA_TRY(network, ordered(std::move(network), hosts_, options_.hosts));
    std::vector<int64_t> devices;
    for (const NetworkNode& node : network.nodes) {
      const auto at = std::ranges::find(probed.hosts, node.name) - probed.hosts.begin();
      devices.push_back(probed.ranks[static_cast<size_t>(at)]);
    }
    std::string said = to_text(probed.found, probed.hosts);
    if (probed.exchange_share < 1) {
      said += fmt::format("an exchange among all hosts at once reaches {} of these rates\n",
                          percent(probed.exchange_share, 0));
    }
    said += fmt::format(
        "measured in {} of pairs at once, {:.1f} s, {}{}\n",
        plural(std::ssize(probed.measured.rounds), "round"), probed.seconds,
        short_bytes(static_cast<int64_t>(probed.bytes)),
        probed.sure ? "" : "; ended by the budget (--seconds, --bytes), not by being sure");
    TESSERA_TRY_VOID(write_cluster(options_, network, devices,
                                   "Measured by tessera probe:\n" + said, probed.one_machine,
                                   probed.exchange_share));
    return print(options_.json ? to_json(probed.found, probed.measured, probed.hosts) : said);
  }

  const ProbeCommand& options_;
  std::vector<HostLine> hosts_;
  std::optional<Network> known_;
  std::optional<network::NodeInside> inside_;
};

Result<int> probe(const ProbeCommand& options) {
  const auto bytes = parse_quantity(options.bytes, Quantity::kBytes);
  if (!bytes || *bytes < 1) {
    return invalid_input(fmt::format("probe: --bytes: expected {}, found '{}'",
                                     example_of(Quantity::kBytes), options.bytes));
  }
  if (!comm::mpi_launched()) return only_read(options);
  comm::mpi_install_fault_handler();
  return Measured(options).run(*bytes);
}

}  // namespace
}  // namespace tessera::cli

extern "C" void* tessera_probe_command() { return reinterpret_cast<void*>(&tessera::cli::probe); }
