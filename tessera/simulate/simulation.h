// The result of a simulated step, or of a real step (runtime/measure/trace). Times are seconds from the
// start of the step, sizes are bytes. All code that reports, traces, compares or draws a step reads
// this.
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

// Uses of a rank's time. The times of a rank's uses sum to the time of the step.
enum class Spent : uint8_t {
  kCompute,     // forward and backward kernels run, except those of kRecompute
  kRecompute,   // forward kernels run again for the backward pass
  kUpdate,      // kernels of the optimizer run
  kCollective,  // exposed: nothing computes, and a collective is waited for
  kMessage,     // exposed: nothing computes, and a message from another stage is waited for
  kCopy,        // exposed: nothing computes, and a copy between memory tiers is waited for
  kHost,        // the device waits for the host to issue
  kBubble,      // the rank waits for another rank's work
};
inline constexpr size_t kSpent = 8;
std::string_view spent_name(Spent what);

// One run of an instruction. The id of the run is (block, micro_batch, instruction), with the text
// form "forward@1:3:17". A run has the same id in a simulated and in a real step.
struct TraceEvent {
  int32_t rank = 0;  // if equal ranks were played as one: the rank that was played
  Lane lane = Lane::kCompute;
  int32_t channel = 0;  // which stream of the lane: of collectives, the communicator's number
  BlockRef block;
  int32_t instruction = 0;  // index in the block
  int64_t micro_batch = 0;
  double start_s = 0, end_s = 0;
  int32_t label = 0;  // index into Simulation::labels: op path, tensor
  int32_t what = 0;   // index into Simulation::labels: "matmul", "all_reduce tp", ...
  int64_t bytes = 0;  // sent, for communication
  // Events with the same number belong together: they are the two ends of one message, or one
  // collective on several members. Only ranks that were played have events. Numbers count from 0 in
  // the order of the events. -1: no other event belongs to this one.
  int32_t match = -1;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// Renumbers TraceEvent::match. Before the call events that belong together have any equal numbers;
// afterwards the numbers are those that TraceEvent::match describes.
void number_matches(std::vector<TraceEvent>& events);

// The channels of a program's messages, one for each peer and direction. Lower channels belong to
// the communicators and the copies, so these begin at groups.size() + 1. Channels of sends come
// first, in the order in which the program first sends to the peers; then those of receives, in the
// order of first receives.
struct MessageChannels {
  std::map<int, int32_t> to, from;
};
MessageChannels message_channels(const Program& program);

struct MemorySample {
  double time_s = 0;
  int64_t bytes = 0;  // live on the device
};
struct LiveBuffer {
  std::string name;  // the buffer's name, followed by "x 8" if 8 micro-batches have a copy
  int64_t bytes = 0;
  std::string
      what;  // "parameter", "gradient", "optimizer state", "activation", "gathered", "workspace"
};
struct LiveInterval {      // one copy of a buffer, from its first use to its end
  std::string name, what;  // as in LiveBuffer, without the number of copies
  int64_t bytes = 0;
  double start_s = 0, end_s = 0;
};
struct MemoryUse {
  int64_t peak_bytes = 0;      // of the program's buffers on the device: the size of the arena
  int64_t live_bytes = 0;      // the most bytes that are alive at once, with kernels' workspaces
  int64_t reserved_bytes = 0;  // live bytes and what the allocator and fragmentation add
  int64_t overhead_bytes = 0;  // context, communication buffers, libraries' workspaces
  int64_t total_bytes() const { return reserved_bytes + overhead_bytes; }
  double low = 0, high = 0;  // lower and upper bound of total_bytes()
  double peak_time_s = 0;
  std::vector<MemorySample> timeline;    // only if the simulation has events
  std::vector<LiveBuffer> at_peak;       // largest first; "7 others" last
  std::array<int64_t, 3> arena_bytes{};  // by tier
  // Intervals in which copies of the largest buffers live, ordered by start and then by size. Only
  // if the simulation has events. memory_use (memory.h) says how many there are.
  std::vector<LiveInterval> intervals;
};

struct TrafficRow {  // transfers of one kind over the same axes, of one rank in one step
  std::string kind;  // "all_reduce", "send"
  std::string axes;  // "tp", "dp tp", "pp"
  int64_t count = 0;
  int64_t bytes = 0;      // sent by the rank; a real run counts the same bytes
  double seconds = 0;     // time in which the streams of these transfers were busy
  double exposed_s = 0;   // part of that time in which the rank did not compute
  std::string algorithm;  // of the largest of these transfers
};

struct RankResult {
  int representative = 0;
  int64_t device = 0;  // the device of the representative
  int64_t ranks = 1;
  std::vector<int32_t> stages;
  std::array<double, kSpent> spent_s{};
  std::array<double, kLanes> busy_s{};
  double flops = 0;  // executed by the rank in the step
  // The time that the host spends on issuing what the rank does in the step, and the number of
  // launches and calls: kernels, collectives, messages, copies. A graph of the step is one launch
  // for the host, and `launches` are those inside it.
  double host_s = 0, launches = 0;
  MemoryUse memory;
  std::vector<TrafficRow> traffic;
};

struct PathStep {  // a step of the critical path; neighbouring parts of the same use are one step
  int32_t rank = 0;
  Spent what = Spent::kCompute;
  std::string label;
  double start_s = 0, end_s = 0;
  // A part of the path that repeats from round to round of micro-batches is in the path once. Each
  // of its steps then says how often it occurs, and how long after the start of one occurrence the
  // next one starts; start and end are those of the first.
  int64_t times = 1;
  double period_s = 0;
  double seconds() const { return (end_s - start_s) * static_cast<double>(times); }
};

struct Simulation {
  double step_time_s = 0;
  double uncertainty = 0;  // uncertain_s / device_s
  // Sums over the kernels and transfers of all ranks: of their times, and of each time multiplied
  // by its relative uncertainty.
  double device_s = 0, uncertain_s = 0;
  int64_t ranks = 1;
  int64_t tokens = 0;  // in a step, over all ranks; samples if the model has no tokens
  // FLOP of the model in a step: without recompute, and causal attention counted in full
  // (docs/reference/simulate.md).
  double model_flops = 0;
  double hardware_flops = 0;      // FLOP that the ranks execute in a step
  double peak_flops = 0;          // of one device in the arithmetic of the model
  std::vector<RankResult> roles;  // by first stage
  std::vector<PathStep> critical_path;
  std::array<double, 5> source_share{};  // of device time, by CostSource
  std::vector<std::string> labels;       // of the events
  std::vector<TraceEvent> events;        // if asked for; by (rank, start)
  // By rank: the rank that was played and whose events count for this rank too; -1: the rank is in
  // no mesh. Only with events.
  std::vector<int32_t> played_by;
  int64_t simulated_events = 0;
  // Expected time that failures and restarts cost a step (SimulateOptions). It is not a part of
  // step_time_s.
  double failure_loss_s = 0;
  double tokens_per_s() const { return static_cast<double>(tokens) / step_time_s; }
  double flops_per_device() const { return model_flops / step_time_s / static_cast<double>(ranks); }
  double mfu() const { return flops_per_device() / peak_flops; }
};

}  // namespace tessera
