// A network with the names of its machines, in the order in which a launcher has them: what the
// option --network FILE of a command, and --hosts beside it, say.
//
//   TESSERA_TRY(const NamedNetwork network, load_named_network("net.toml", "hosts.txt"));
//
// The file is a cluster (cluster.h) or, if its name ends in .json, a table of pairs
// (parse_pair_costs). If it names its hosts, the file of hosts selects some of them; if not, it must
// have as many lines as there are machines and gives them their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/network/order_network.h"

namespace tessera {

struct NamedNetwork {
  std::string file;
  // One of the two is set.
  std::optional<OrderNetwork> network;
  std::optional<PairCosts> pairs;
  std::vector<std::string> hosts;  // by machine; "machine0", ... if nobody names them
  bool named = false;              // somebody names them
  int64_t machines() const { return static_cast<int64_t>(hosts.size()); }
  // Returns the network with only these machines, in this order.
  NamedNetwork with_machines(const std::vector<int64_t>& some) const;
};

// Loads the network. `hosts_file`: "" if there is none. Errors, one line: those of the readers; a
// host that occurs twice or that the network lacks; another number of hosts than machines.
Result<NamedNetwork> load_named_network(const std::string& file, const std::string& hosts_file);

// Returns the network for these hosts, in this order. Errors as above; `source` is where the hosts
// come from.
Result<NamedNetwork> for_hosts(const NamedNetwork& network, const std::vector<std::string>& hosts,
                               const std::string& source);

}  // namespace tessera
