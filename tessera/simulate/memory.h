// Device memory of one rank over a step: the bytes that are live at each time, the buffers that are
// live at the peak, and the memory that the runtime or a framework takes for them
// (docs/theory/cost-model.md sections 6.3 and 6.4). The program decides what is live: a buffer from
// the first instruction that touches it to its Free; parameters, states and tables always.
// docs/reference/memory.md explains the figures.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/program/program.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Times of a rank's runs and instructions. All may be left empty: then every run of the schedule
// takes an equal share of the step, and every instruction an equal share of its run. The order, and
// with it every figure in bytes, is right in any case.
struct MemoryTimes {
  double step_s = 0;
  std::vector<std::pair<double, double>> runs;  // start and end by position in the schedule
  std::span<const TraceEvent> events;           // of this rank: those of the compute lane count
  bool details = true;  // false: neither timeline nor what is live at the peak, sizes alone
};

// Computes the memory of a rank. `peak_bytes` and `reserved_bytes` of the planned allocator are the
// arena, to the byte. Where a style's unfused kernels keep more than the program's buffers,
// `reserved_bytes` is at least the live bytes. `timeline`: with events a sample for each change,
// else the start, peak and end of each run. `intervals`: with events, of the largest buffers, at
// most 5,000 in all; where no buffer is left out, the intervals that hold between two samples sum
// to the timeline's bytes.
//
// `low`, `high`: bounds of the total. Low: live bytes at the peak, the context and half of the
// estimated communication buffers; high: reserved bytes, the context and twice these buffers.
MemoryUse memory_use(const Program& program, const Graph& graph, const Cluster& cluster,
                     const RankDevices& devices, const Style& style, const MemoryTimes& times = {});

// A program's buffers as a style's framework holds them, by buffer.
struct HeldBuffers {
  std::vector<int64_t> bytes;  // of one copy, with what kernels keep beside it for their gradients
  std::vector<bool> resident;  // there all the time, whatever lifetime the program gives it
};
HeldBuffers held_buffers(const Program& program, const Graph& graph, const Style& style);

// The figures of a rank's memory that depend neither on the machine nor on times.
struct MemorySizes {
  int64_t live_bytes = 0, reserved_bytes = 0;  // as in MemoryUse
  size_t peak_run = 0;      // position in the schedule of the run in which most lives
  double peak_share = 0;    // of that run's time; 0 in run 0: from the beginning of the step
  std::vector<int> groups;  // that the program calls
  int64_t peers = 0;        // that it exchanges messages with
};
// The options of a style on which these figures depend.
struct MemoryStyle {
  Style::Allocator allocator = Style::Allocator::kPlanned;
  bool gradient_buffers = false, fused_attention = true;
  double attention_saved_bytes = 0, loss_saved = 0, loss_workspace = 0;
  explicit MemoryStyle(const Style& style);
  friend bool operator==(const MemoryStyle&, const MemoryStyle&) = default;
};
// Computes sizes of a program and of programs that are made of it (alike_programs.h): the buffers
// that begin and end in a block are found once for all of them.
class AlikeMemory {
 public:
  AlikeMemory(const Program& first, const Graph& graph, const Style& style);  // both outlive it
  ~AlikeMemory();
  AlikeMemory(AlikeMemory&&) noexcept;
  MemorySizes sizes(const Program& program);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// Returns the memory of these sizes in a step of equal runs, without details.
MemoryUse memory_use(const Program& program, const MemorySizes& sizes, const Cluster& cluster,
                     const RankDevices& devices, double step_s);

// Returns the bytes that a communication library keeps on the device for the groups and peers of a
// program (section 6.4: buffers a connection and channel); 0 where the devices are CPUs.
int64_t communication_bytes(const Program& program, const Cluster& cluster,
                            const RankDevices& devices);
// Returns these bytes for one group with a member on a device of this type, all in one node or not;
// the next function, for one peer that messages go to or come from.
int64_t group_communication_bytes(const NodeType& type, bool inside);
int64_t peer_communication_bytes(const NodeType& type);
// Multiple of these bytes that the upper bound of a program's memory counts (MemoryUse::high).
inline constexpr double kCommunicationAtMost = 2;
// Returns the bytes that the matrix library keeps for its kernels.
int64_t library_workspace_bytes(const Device& device);

}  // namespace tessera
