// Cross-mesh resharding: a tensor goes from its layout on one mesh to another layout on another
// mesh, over links between hosts that are slow (docs/strategies/cross-mesh.md; AlpaComm,
// Zhuang et al., MLSys 2023).
//
// A unit task moves the elements that one destination tile and one source tile have in common: D
// bytes, which any holder of the source tile may send and all holders of the destination tile
// receive. Every element of a destination tile is in exactly one unit task. A plan decides how each
// task is run (ReshardWay), who sends it, and in which order the tasks go.
//
// Model: a host has one network card (NIC), full duplex, w bytes a second each way; links inside a
// host cost nothing; a card works at one task at a time in each direction. Steps are issued in the
// plan's order and each starts when all cards that it uses are free. A receiving host that holds
// the source tile itself is served inside the host.
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
#include "tessera/plan/layout.h"

namespace tessera {

// A `ReshardHolder` says which box a rank holds (or needs): the general form of a side, one entry a
// rank.
struct ReshardHolder {
  int64_t rank = 0;
  int64_t host = 0;
  Box box;
};
using ReshardSide = std::vector<ReshardHolder>;
// Returns the side of a mesh under a complete layout (the regular form); host = rank /
// devices_per_host.
ReshardSide reshard_side(const Mesh& mesh, const Layout& layout, const std::vector<int64_t>& shape,
                         int64_t devices_per_host);

// A `ReshardWay` is a way to run a task. One sender, A receiving hosts with B receivers each (B_h
// on host h), t = D / w, K chunks:
enum class ReshardWay : uint8_t {
  kSendRecv,        // all D bytes to each receiver: sum of B_h times t
  kLocalAllGather,  // 1/B to each receiver of a host, gathered inside the host: A t
  // 1/n to each of n receivers, then a ring over all of them: t (2 - 1/n); on one host t.
  kGlobalAllGather,
  kBroadcast,  // a chain through the hosts in K chunks: t (1 + (A-1)/K)
};
std::string_view way_name(ReshardWay way);  // "send_recv", "local_all_gather", ...

// A `ReshardOrder` decides who sends and when (docs/strategies/cross-mesh.md section 3).
enum class ReshardOrder : uint8_t {
  // As generated; the sending *device* is the one with the fewest bytes so far. Send/recv and local
  // all-gather are issued receiver by receiver.
  kGenerated,
  kFirstReplica,  // as generated; always the first holder
  kSizeBalanced,  // as generated; the sending host with the least load
  kLongestFirst,  // longest first; the sending host with the least load
  kWaves,         // seeded random waves of tasks that share no card
  kLocalSearch,   // waves, then swaps of two tasks and changes of a sender
  kExact,         // branch and bound; at most kExactTasks tasks
  kBest,          // the best of all; tasks may be cut into pieces that different holders send
};
std::string_view order_name(ReshardOrder order);
inline constexpr size_t kExactTasks = 8;

struct ReshardOptions {
  int64_t bytes_per_element = 4;
  double bytes_per_second = 1;    // w
  int64_t chunks = 64;            // K
  std::optional<ReshardWay> way;  // unset: the fastest for each task
  ReshardOrder order = ReshardOrder::kBest;
  bool cut_tasks = true;  // kBest only
  uint64_t seed = 0;      // of the waves
};

struct UnitTask {
  Box region;
  size_t tile = 0;  // number of the destination tile
  int64_t bytes = 0;
  std::vector<int64_t> senders, receivers;  // ranks
  std::vector<int64_t> sender_hosts;        // sorted
  std::vector<int64_t> receiver_hosts;      // sorted; without hosts that are served from inside
};
// Returns the unit tasks, ordered by destination tile, then by source tile. Error: an element that
// no source holds.
Result<std::vector<UnitTask>> unit_tasks(const ReshardSide& source, const ReshardSide& destination,
                                         int64_t bytes_per_element);

struct ReshardStep {
  size_t task = 0;
  Box region;  // the task's, or a piece of it
  ReshardWay way = ReshardWay::kBroadcast;
  int64_t sender = 0;                         // rank
  std::vector<int64_t> receivers;             // ranks that it serves over the network
  double start_seconds = 0, end_seconds = 0;  // in the model
};
struct HostTraffic {
  int64_t host = 0;
  int64_t bytes_out = 0, bytes_in = 0;  // through its card
};
struct ReshardPlan {
  std::vector<UnitTask> tasks;
  std::vector<ReshardStep> steps;            // in the order of issue, the same for all ranks
  ReshardOrder order = ReshardOrder::kBest;  // the one that was best
  double makespan_seconds = 0;
  double bound_seconds = 0;        // no plan of these tasks, cut or not, is shorter
  std::vector<HostTraffic> hosts;  // sorted by host
  int64_t busiest_bytes = 0;       // of one direction of one card
  int64_t busiest_bound = 0;       // no plan has a smaller busiest_bytes
  double gap() const { return bound_seconds > 0 ? makespan_seconds / bound_seconds - 1 : 0; }
};
Result<ReshardPlan> reshard(const ReshardSide& source, const ReshardSide& destination,
                            const ReshardOptions& options = {});

// A `ReshardMessage` is a message between ranks. reshard_messages returns the plan's messages in an
// order in which each sender holds what it sends. `local` messages stay inside a host.
struct ReshardMessage {
  int64_t from = 0, to = 0;
  Box region;
  bool local = false;
  size_t step = 0;  // the step to which it belongs; for local ones: the number of steps
};
std::vector<ReshardMessage> reshard_messages(const ReshardPlan& plan, const ReshardSide& source,
                                             const ReshardSide& destination);

}  // namespace tessera
