// Applies an order to a run without a change of its program: the plan gets a `device_order`, by
// which the communicator gives each process its rank (comm::Options::rank_of_process).
//
//   TESSERA_TRY(NamedNetwork network, load_named_network("net.toml", ""));
//   TESSERA_TRY(network, network_of_launch(network, process_hosts));     // under MPI
//   TESSERA_TRY(const OrderedPlan plan, plan_in_order(lowering, network));
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/network/named_network.h"
#include "tessera/plan/plan.h"
#include "tessera/program/lower.h"

namespace tessera {

// Returns the network with the machines in the order in which a launcher numbered its processes.
// `process_hosts`: by process, the name of its host. A host that is named up to its first dot
// counts as that host. If all processes are on one host, which the network does not name, each
// machine of the network is taken to be as many of them as it has devices. Errors, one line: a host
// that the network lacks; processes that are not numbered host by host; another number of processes
// on a host than the machine has devices.
Result<NamedNetwork> network_of_launch(const NamedNetwork& network,
                                       const std::vector<std::string>& process_hosts);

// Checks that there are as many processes as devices; the error has both numbers.
Status check_processes(const NamedNetwork& network, size_t processes);

struct OrderedPlan {
  Plan plan;                      // with the order, or as it was
  bool changed = false;           // the present order was not kept
  double now_s = 0, found_s = 0;  // of a step's traffic
};
// Finds the order for the plan of the lowering. Machines keep their places, so that device numbers
// are those of the launcher. Errors, one line: a table of pairs; fewer devices than ranks.
Result<OrderedPlan> plan_in_order(const Lowering& lowering, const NamedNetwork& network);

// Returns the text of an ordered plan. Its first line names the plan by `label` and says for which
// network it is ordered.
std::string ordered_plan_text(const OrderedPlan& plan, const std::string& label,
                              const std::string& network);

}  // namespace tessera
