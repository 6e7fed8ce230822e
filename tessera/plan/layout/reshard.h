// Cross-mesh resharding moves a tensor from a layout on one mesh to a layout on another mesh, over
// slow links between hosts (docs/strategies/cross-mesh.md; AlpaComm, Zhuang et al., MLSys 2023). A
// tile is a box that one or more ranks of a side hold or need.
//
// A unit task moves the D bytes of elements that one destination tile and one source tile have in
// common. Any rank with the source tile may send them, and all ranks with the destination tile
// receive them. Every element of a destination tile is in exactly one unit task. A ReshardPlan
// decides how each task is run (ReshardWay), which rank sends it, and in which order the tasks
// are issued.
//
// Times are those of a model. A host has one network card (NIC), which sends w bytes a second and
// receives w bytes a second at the same time. In each direction a card works at one task at a time.
// Links inside a host cost nothing. Steps are issued in the plan's order, and a step starts when
// all cards that it uses are free. If a receiving host also has a rank with the source tile, its
// ranks get the data inside the host.
//
//   const auto from = reshard_side(mesh, layout, shape, 4), to = reshard_side(...);
//   TESSERA_TRY(ReshardPlan plan, reshard(from, to, {.bytes_per_element = 2}));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/cluster/mesh.h"
#include "tessera/plan/layout/layout.h"

namespace tessera {

// A `ReshardHolder` says which box one rank holds (source) or needs (destination). A side of a
// resharding is a list with one such entry for each rank.
struct ReshardHolder {
  int64_t rank = 0;
  int64_t host = 0;
  Box box;
};
using ReshardSide = std::vector<ReshardHolder>;
// Returns the side that a mesh with a complete layout makes. The host of a rank is rank
// / devices_per_host.
ReshardSide reshard_side(const Mesh& mesh, const Layout& layout, const std::vector<int64_t>& shape,
                         int64_t devices_per_host);

// A `ReshardWay` is a way to run a task. The comments give its seconds for one sender, A receiving
// hosts with B receivers each (B_h on host h), t = D / w and K chunks:
enum class ReshardWay : uint8_t {
  kSendRecv,        // sends all D bytes to each receiver: (sum of B_h) t
  kLocalAllGather,  // sends 1/B to each receiver of a host, then gathers inside the host: A t
  // Sends 1/n to each of n receivers, which then gather in a ring: t (2 - 1/n), or t on one host.
  kGlobalAllGather,
  kBroadcast,  // sends K chunks through a chain of the hosts: t (1 + (A-1)/K)
};
std::string_view way_name(ReshardWay way);  // "send_recv", "local_all_gather", ...

// A `ReshardOrder` is a rule that decides which rank sends each task and in which order the tasks
// are issued (docs/strategies/cross-mesh.md section 3).
enum class ReshardOrder : uint8_t {
  // The order in which unit_tasks returns the tasks. The sender is the *device* that has sent the
  // fewest bytes so far. Send/recv and local all-gather are issued receiver by receiver.
  kGenerated,
  kFirstReplica,  // order of unit_tasks; the first host with the tile sends
  kSizeBalanced,  // order of unit_tasks; the host with the least load sends
  kLongestFirst,  // longest task first; the host with the least load sends
  kWaves,         // waves of tasks that share no card, drawn at random with `seed`
  kLocalSearch,   // kWaves, improved by swaps of two tasks and changes of a sender
  kExact,         // the optimum by branch and bound; at most kExactTasks tasks
  kBest,          // the fastest of all these; tasks may be cut into pieces with different senders
};
std::string_view order_name(ReshardOrder order);
inline constexpr size_t kExactTasks = 8;

struct ReshardOptions {
  int64_t bytes_per_element = 4;
  double bytes_per_second = 1;    // rate w of a network card
  int64_t chunks = 64;            // number K of chunks
  std::optional<ReshardWay> way;  // unset: the fastest way for each task
  ReshardOrder order = ReshardOrder::kBest;
  bool cut_tasks = true;  // whether kBest may cut tasks into pieces
  uint64_t seed = 0;      // of the random waves
};

struct UnitTask {
  Box region;
  size_t tile = 0;  // number of the destination tile
  int64_t bytes = 0;
  std::vector<int64_t> senders, receivers;  // ranks
  std::vector<int64_t> sender_hosts;        // sorted
  std::vector<int64_t> receiver_hosts;      // sorted; without hosts that also hold the source tile
};
// Returns the unit tasks, ordered by destination tile, then by source tile. Error: an element that
// no source holds.
Result<std::vector<UnitTask>> unit_tasks(const ReshardSide& source, const ReshardSide& destination,
                                         int64_t bytes_per_element);

struct ReshardStep {
  size_t task = 0;
  Box region;  // the region of the task, or a piece of that region
  ReshardWay way = ReshardWay::kBroadcast;
  int64_t sender = 0;                         // rank
  std::vector<int64_t> receivers;             // ranks that get the data over the network
  double start_seconds = 0, end_seconds = 0;  // times in the model at the top
};
struct HostTraffic {
  int64_t host = 0;
  int64_t bytes_out = 0, bytes_in = 0;  // through its network card
};
struct ReshardPlan {
  std::vector<UnitTask> tasks;
  std::vector<ReshardStep> steps;            // in the order of issue, the same for all ranks
  ReshardOrder order = ReshardOrder::kBest;  // the order that was used; for kBest, the fastest one
  double makespan_seconds = 0;
  double bound_seconds = 0;        // no plan of these tasks, cut or not, takes less time
  std::vector<HostTraffic> hosts;  // sorted by host
  int64_t busiest_bytes = 0;       // most bytes through one card in one direction
  int64_t busiest_bound = 0;       // no plan has a smaller busiest_bytes
  double gap() const { return bound_seconds > 0 ? makespan_seconds / bound_seconds - 1 : 0; }
};
Result<ReshardPlan> reshard(const ReshardSide& source, const ReshardSide& destination,
                            const ReshardOptions& options = {});

// A `ReshardMessage` is a message from one rank to another. `local` messages stay inside a host.
// reshard_messages returns all messages of the plan, in an order in which every rank has received
// what it passes on.
struct ReshardMessage {
  int64_t from = 0, to = 0;
  Box region;
  bool local = false;
  size_t step = 0;  // the step that causes it; for messages after all steps: the number of steps
};
std::vector<ReshardMessage> reshard_messages(const ReshardPlan& plan, const ReshardSide& source,
                                             const ReshardSide& destination);

}  // namespace tessera
