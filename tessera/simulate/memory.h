// Device memory of one rank over a step: how many bytes are live at each time, which buffers are
// live at the peak, and how much memory the runtime or a framework takes for them
// (docs/theory/cost-model.md sections 6.3 and 6.4). The program decides what is live: a buffer is
// live from the first instruction that touches it to its Free; parameters, states and tables are
// always live. docs/reference/memory.md explains the figures.
#pragma once

#include <memory>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/program/program.h"
#include "tessera/simulate/replay/memory_times.h"
#include "tessera/simulate/scratch.h"
#include "tessera/simulate/simulation.h"

namespace tessera {

// Computes the memory of a rank:
//   peak_bytes, reserved_bytes  With the planned allocator both are exactly the arena's size. But
//                               if a style's unfused kernels keep more than the program's buffers,
//                               reserved_bytes is at least live_bytes.
//   timeline                    With events a sample for each change, else samples for the start,
//                               peak and end of each run.
//   intervals                   Only with events: of the largest buffers, at most 100,000 intervals
//                               in all. If no buffer is left out, the bytes of the intervals that
//                               are live between two samples sum to the timeline's bytes.
//   low                         Live bytes at the peak, the context and half of the estimated
//                               communication buffers.
//   high                        Reserved bytes, the context and twice the estimated communication
//                               buffers.
MemoryUse memory_use(const Program& program, const Graph& graph, const Cluster& cluster,
                     const RankDevices& devices, const Style& style, const MemoryTimes& times = {});

// Returns what the framework of a style holds for the buffers of a program.
HeldBuffers held_buffers(const Program& program, const Graph& graph, const Style& style);

// The figures of a rank's memory that depend neither on the machine nor on times.
struct MemorySizes {
  int64_t live_bytes = 0, reserved_bytes = 0;  // as in MemoryUse
  size_t peak_run = 0;  // position in the schedule of the run in which the peak is
  // When the peak is reached, as a fraction of that run's time. 0 in run 0: at the start of the
  // step.
  double peak_share = 0;
  std::vector<int> groups;    // groups in which the program issues collectives
  int64_t peers = 0;          // number of ranks with which the program exchanges messages
  int64_t library_bytes = 0;  // Style::library_bytes
};
// The options of a style on which MemorySizes depend.
struct MemoryStyle {
  Style::Allocator allocator = Style::Allocator::kPlanned;
  bool gradient_buffers = false, fused_attention = true;
  double attention_saved_bytes = 0, loss_saved = 0, loss_workspace = 0, loss_chunks = 1;
  bool placeholder_gradients = false;
  double library_bytes = 0;
  explicit MemoryStyle(const Style& style);
  friend bool operator==(const MemoryStyle&, const MemoryStyle&) = default;
};
// Computes the MemorySizes of a program and of programs that are made from it (alike_programs.h).
// Which buffers begin and end in each block is found once for all these programs.
class AlikeMemory {
 public:
  // `first` and `graph` must outlive the object.
  AlikeMemory(const Program& first, const Graph& graph, const Style& style);
  ~AlikeMemory();
  AlikeMemory(AlikeMemory&&) noexcept;
  MemorySizes sizes(const Program& program);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
// Returns the memory of a program with these sizes, without details, as if all runs of the step
// took the same time.
MemoryUse memory_use(const Program& program, const MemorySizes& sizes, const Cluster& cluster,
                     const RankDevices& devices, double step_s);

// Returns the bytes that a communication library keeps on the device for the groups and peers of a
// program (docs/theory/cost-model.md section 6.4: a buffer for each connection and channel); 0 if
// the devices are CPUs.
int64_t communication_bytes(const Program& program, const Cluster& cluster,
                            const RankDevices& devices);
// `group_communication_bytes` returns the bytes that the library keeps for one group of which a
// member is on a device of this type. `inside`: all members are in one node.
// `peer_communication_bytes` returns the bytes for one rank with which messages are exchanged.
int64_t group_communication_bytes(const NodeType& type, bool inside);
int64_t peer_communication_bytes(const NodeType& type);
// How many times the estimated communication bytes count in the upper bound of a program's memory
// (MemoryUse::high).
inline constexpr double kCommunicationAtMost = 2;
// Returns the bytes that the matrix library keeps for its kernels.
int64_t library_workspace_bytes(const Device& device);

}  // namespace tessera
