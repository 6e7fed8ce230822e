#include "tessera/network/apply_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/network/host_names.h"
#include "tessera/network/order_index.h"
#include "tessera/network/plan_order.h"
#include "tessera/network/plan_traffic.h"

namespace tessera {
namespace {

struct HostProcesses {
  std::string host;
  int64_t processes = 0;
};

Result<std::vector<HostProcesses>> by_host(const std::vector<std::string>& process_hosts) {
  std::vector<HostProcesses> out;
  for (size_t p = 0; p < process_hosts.size(); ++p) {
    if (out.empty() || out.back().host != process_hosts[p]) {
      if (std::ranges::find(out, process_hosts[p], &HostProcesses::host) != out.end()) {
        return invalid_input(fmt::format(
            "--network: expected processes that are numbered host by host, found process {} on {} "
            "after one on {}",
            p, process_hosts[p], out.back().host));
      }
      out.push_back({process_hosts[p], 0});
    }
    ++out.back().processes;
  }
  return out;
}

std::string up_to_dot(const std::string& host) { return host.substr(0, host.find('.')); }

}  // namespace

Result<NamedNetwork> network_of_launch(const NamedNetwork& network,
                                       const std::vector<std::string>& process_hosts) {
  TESSERA_TRY(const std::vector<HostProcesses> found, by_host(process_hosts));
  std::vector<std::string> names;
  for (const HostProcesses& one : found) {
    const auto known = std::ranges::find_if(network.hosts, [&](const std::string& host) {
      return host == one.host || up_to_dot(host) == up_to_dot(one.host);
    });
    names.push_back(network.named && known != network.hosts.end() ? *known : one.host);
  }
  if (names.size() == 1 && network.machines() > 1 && !network.named) return network;
  TESSERA_TRY(NamedNetwork out, for_hosts(network, names, "the hosts of the processes"));
  for (size_t m = 0; out.network && m < found.size(); ++m) {
    const int64_t devices = out.network->machines[m].devices;
    if (devices == found[m].processes) continue;
    return invalid_input(
        fmt::format("{}: expected {} processes on {}, one for each device, found {}", network.file,
                    devices, out.hosts[m], found[m].processes));
  }
  return out;
}

Status check_processes(const NamedNetwork& network, size_t processes) {
  int64_t devices = 0;
  if (network.network) {
    for (const OrderMachine& machine : network.network->machines) devices += machine.devices;
  }
  if (!network.network || devices == static_cast<int64_t>(processes)) return {};
  return invalid_input(fmt::format("{}: expected {} processes, one for each device, found {}",
                                   network.file, devices, processes));
}

Result<OrderedPlan> plan_in_order(const Lowering& lowering, const NamedNetwork& network) {
  if (!network.network) {
    return invalid_input(fmt::format(
        "{}: expected a cluster file for a plan, found a table of pairs", network.file));
  }
  TESSERA_TRY(const PlanTraffic traffic, plan_traffic(lowering));
  const auto found = find_plan_order(lowering.plan(), traffic, *network.network, {});
  if (!found) return invalid_input(fmt::format("{}: {}", network.file, found.error().message));
  OrderedPlan out{lowering.plan().plan, !found->kept, found->now_seconds, found->seconds};
  if (out.changed) {
    out.plan.device_order = {};
    out.plan.device_order.devices = found->devices;
    for (StageEntry& stage : out.plan.stages) stage.device_order = {};
  }
  return out;
}

std::string ordered_plan_text(const OrderedPlan& plan, const std::string& label,
                              const std::string& network) {
  return fmt::format("# {}, ordered for {}\n{}", one_line(label), one_line(network),
                     to_toml(plan.plan));
}

}  // namespace tessera
