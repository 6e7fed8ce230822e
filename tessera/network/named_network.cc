#include "tessera/network/named_network.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/text.h"
#include "tessera/network/host_names.h"
#include "tessera/network/order_index.h"
#include "tessera/network/readers.h"

namespace tessera {

NamedNetwork NamedNetwork::with_machines(const std::vector<int64_t>& some) const {
  NamedNetwork out{file, {}, {}, {}, named};
  if (network) out.network = network->with_machines(some);
  if (pairs) out.pairs = pairs->with_machines(some);
  for (const int64_t machine : some) out.hosts.push_back(hosts[index_of(machine)]);
  return out;
}

Result<NamedNetwork> for_hosts(const NamedNetwork& network, const std::vector<std::string>& hosts,
                               const std::string& source) {
  if (network.named) {
    TESSERA_TRY(const std::vector<int64_t> machines,
                find_hosts(hosts, network.hosts, source, network.file));
    return network.with_machines(machines);
  }
  if (std::ssize(hosts) != network.machines()) {
    return invalid_input(
        fmt::format("{}: expected a host for each of the {} machines of {}, found {}", source,
                    network.machines(), network.file, hosts.size()));
  }
  NamedNetwork out = network;
  out.hosts = hosts;
  out.named = true;
  return out;
}

Result<NamedNetwork> load_named_network(const std::string& file, const std::string& hosts_file) {
  NamedNetwork out;
  out.file = file;
  int64_t machines = 0;
  if (file.ends_with(".json")) {
    TESSERA_TRY(const std::string text, read_file(file));
    TESSERA_TRY(out.pairs, parse_pair_costs(text, file));
    machines = out.pairs->machines;
    out.hosts = out.pairs->hosts;
  } else {
    TESSERA_TRY(const Cluster cluster, load_cluster(file));
    out.network = order_network(cluster);
    machines = std::ssize(out.network->machines);
    out.hosts = cluster.hosts;
  }
  out.named = !out.hosts.empty();
  for (int64_t m = out.named ? machines : 0; m < machines; ++m)
    out.hosts.push_back(fmt::format("machine{}", m));
  if (hosts_file.empty()) return out;
  TESSERA_TRY(const std::string text, read_file(hosts_file));
  TESSERA_TRY(const auto lines, network::read_hosts(text, hosts_file));
  std::vector<std::string> hosts;
  for (const network::HostLine& line : lines) hosts.push_back(line.name);
  return for_hosts(out, hosts, hosts_file);
}

}  // namespace tessera
