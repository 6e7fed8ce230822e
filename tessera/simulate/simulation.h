// The result of a simulated step (or of a real one: runtime/trace). Times are seconds from the
// start of the step, sizes bytes. Everything that reports, traces, compares or draws reads this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/program/program.h"

namespace tessera {

enum class Lane : uint8_t { kHost, kCompute, kCollective, kMessage, kCopy };
inline constexpr size_t kLanes = 5;
std::string_view lane_name(Lane lane);

// Uses of a rank's time; the parts of a rank sum to the step's time.
enum class Spent : uint8_t {
  kCompute,     // forward and backward kernels run
  kRecompute,   // of them, those that run again
  kUpdate,      // optimizer
  kCollective,  // exposed: nothing computes, a collective is waited for
  kMessage,     // exposed: a message from another stage is on its way
  kCopy,        // exposed: between memory tiers
  kHost,        // the device waits for the host to issue
  kBubble,      // the rank waits for another rank's work
};
inline constexpr size_t kSpent = 8;
std::string_view spent_name(Spent what);

// One run of an instruction. (block, micro_batch, instruction) is its id, the same in a real run:
// text form "forward@1:3:17".
struct TraceEvent {
  int32_t rank = 0;  // a representative, if ranks are folded
  Lane lane = Lane::kCompute;
  int32_t channel = 0;  // which stream of the lane (communicator)
  BlockRef block;
  int32_t instruction = 0;  // index in the block
  int64_t micro_batch = 0;
  double start_s = 0, end_s = 0;
  int32_t label = 0;  // index into Simulation::labels: op path, tensor
  int32_t what = 0;   // index into Simulation::labels: "matmul", "all_reduce tp", ...
  int64_t bytes = 0;  // sent, for communication
  // Events with the same number are one message, or one collective seen by its members, on the
  // ranks that were played. Numbers are from 0 in the order of the events. -1: no other rank's
  // event.
  int32_t match = -1;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// Replaces match numbers, equal for events that belong together, by those of TraceEvent::match.
void number_matches(std::vector<TraceEvent>& events);

// Channels of a program's messages by peer, from groups.size() + 1 on (lower ones are the
// communicators and the copies): sends in the order of each peer's first in the program, then
// receives.
struct MessageChannels {
  std::map<int, int32_t> to, from;
};
MessageChannels message_channels(const Program& program);

struct MemorySample {
  double time_s = 0;
  int64_t bytes = 0;  // live on the device
};
struct LiveBuffer {
  std::string name;  // of the buffer, with "x 8" for copies of several micro-batches
  int64_t bytes = 0;
  std::string
      what;  // "parameter", "gradient", "optimizer state", "activation", "gathered", "workspace"
};
struct LiveInterval {      // one copy of a buffer, from its first use to its end
  std::string name, what;  // as in LiveBuffer, of one copy
  int64_t bytes = 0;
  double start_s = 0, end_s = 0;
};
struct MemoryUse {
  int64_t peak_bytes = 0;      // of the program's buffers on the device: the arena
  int64_t live_bytes = 0;      // most that is alive at once, with kernels' workspaces
  int64_t reserved_bytes = 0;  // with what the allocator and the fragmentation add
  int64_t overhead_bytes = 0;  // context, communication buffers, libraries' workspaces
  int64_t total_bytes() const { return reserved_bytes + overhead_bytes; }
  double low = 0, high = 0;  // bounds of the total, bytes
  double peak_time_s = 0;
  std::vector<MemorySample> timeline;
  std::vector<LiveBuffer> at_peak;       // largest first; "7 others" last
  std::array<int64_t, 3> arena_bytes{};  // by tier
  // With events: of the largest buffers, as many as memory_use names; by start, then size.
  std::vector<LiveInterval> intervals;
};

struct TrafficRow {  // of one rank and step
  std::string kind;  // "all_reduce", "send"
  std::string axes;  // "tp", "dp tp", "pp"
  int64_t count = 0;
  int64_t bytes = 0;      // sent by the rank: equals what the runtime counts
  double seconds = 0;     // its streams were busy
  double exposed_s = 0;   // nothing computed meanwhile
  std::string algorithm;  // of the largest
};

struct RankResult {
  int representative = 0;
  int64_t device = 0;  // where that rank is
  int64_t ranks = 1;
  std::vector<int32_t> stages;
  std::array<double, kSpent> spent_s{};
  std::array<double, kLanes> busy_s{};
  double flops = 0;  // executed
  MemoryUse memory;
  std::vector<TrafficRow> traffic;
};

struct PathStep {  // of the critical path, neighbours of the same kind joined
  int32_t rank = 0;
  Spent what = Spent::kCompute;
  std::string label;
  double start_s = 0, end_s = 0;
};

struct Simulation {
  double step_time_s = 0;
  double uncertainty = 0;                // relative: uncertain_s / device_s
  double device_s = 0, uncertain_s = 0;  // of kernels and transfers over all ranks
  int64_t ranks = 1;
  int64_t tokens = 0;  // a step, over all ranks; samples where the model has no tokens
  double model_flops =
      0;  // a step: without recompute, causal attention in full (convention in the docs)
  double hardware_flops = 0;      // executed
  double peak_flops = 0;          // of one device in the arithmetic of the model
  std::vector<RankResult> roles;  // by first stage
  std::vector<PathStep> critical_path;
  std::array<double, 5> source_share{};  // of device time, by CostSource
  std::vector<std::string> labels;       // of the events
  std::vector<TraceEvent> events;        // if asked for; by (rank, start)
  // By rank, with the events: the representative whose events stand for it; -1: it is in no mesh.
  std::vector<int32_t> played_by;
  int64_t simulated_events = 0;
  // Expected time that failures and restarts cost a step (SimulateOptions); not in step_time_s.
  double failure_loss_s = 0;
  double tokens_per_s() const { return static_cast<double>(tokens) / step_time_s; }
  double flops_per_device() const { return model_flops / step_time_s / static_cast<double>(ranks); }
  double mfu() const { return flops_per_device() / peak_flops; }
};

}  // namespace tessera
