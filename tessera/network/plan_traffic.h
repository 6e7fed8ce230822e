// Counts what the ranks of a plan send each other in a step, by kind: the collectives of one kind over the
// same axes of the mesh (data parallelism, tensor parallelism, ...), and the messages between
// stages. The bytes are those of the lowered programs; all runs of a block in a step count.
//
//   TESSERA_TRY(const PlanTraffic traffic, plan_traffic(lowering));
//   traffic.kinds[0].what;                    // "all_reduce over tp"
//
// A group's collectives are taken to run as rings that visit the members of a machine, and of what
// is below a switch, one after the other; so each machine and each switch is left and entered once.
// All-to-alls and exchanges send directly from member to member.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/program/lower.h"

namespace tessera {

enum class FlowShape : uint8_t {
  kRing,      // `bytes` go through each hop of a ring over the members
  kAllPairs,  // `bytes` go from each member to each other one
  kMessages,  // from rank to rank, as `messages` lists
};

struct RankFlow {
  int32_t from = 0, to = 0;  // ranks
  double bytes = 0;
  int32_t phase = 0;  // index into TrafficKind::phases
  friend bool operator==(const RankFlow&, const RankFlow&) = default;
};
struct GroupFlow {
  std::vector<int32_t> members;  // ranks, in the order of the group
  double bytes = 0;              // of a step
};
// Messages from one stage to another. Those of other phases are sent at other times, so that messages
// of one phase share links with each other alone.
struct MessagePhase {
  int32_t from = 0, to = 0;  // places (ResolvedPlan::places)
  double rounds = 0;  // how often in a step a rank of `to` waits for the latency of a message
};
struct TrafficKind {
  std::string what;  // "all_reduce over dp", "send"
  FlowShape shape = FlowShape::kRing;
  std::vector<GroupFlow> groups;   // unless kMessages
  std::vector<RankFlow> messages;  // only kMessages; one for each pair of ranks
  // How often in a step a rank waits for the latency of a message: for a collective over n members
  // 2 log2 n times (all-reduce) or log2 n times, or as often as a ring has rounds if that is less.
  double rounds = 0;
  std::vector<MessagePhase> phases = {};  // of messages between stages; empty: all at the same time
  double bytes() const;                   // that all ranks send in a step
};
struct PlanTraffic {
  int64_t ranks = 0;
  std::vector<TrafficKind> kinds;  // by falling bytes
};

// Returns the traffic of a step. Lowers one rank of each class, and all ranks of classes that
// exchange messages with meshes of other axes.
Result<PlanTraffic> plan_traffic(const Lowering& lowering);

}  // namespace tessera
