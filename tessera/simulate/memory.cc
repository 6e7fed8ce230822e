#include "tessera/simulate/memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/program/instructions.h"
#include "tessera/simulate/replay/live.h"

namespace tessera {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// Returns the number of rings that a group inside a node uses: one for each link of the device
// (docs/theory/cost-model.md section 4.2).
int64_t inner_channels(const NodeType& type) {
  if (type.inner.kind != LinkKind::kNvlink && type.inner.kind != LinkKind::kDirect) return 2;
  return type.device.generation->rings_in_node;
}

// Finds the groups in which the program issues collectives, and the number of ranks with which it
// exchanges messages.
void find_partners(const Program& program, MemorySizes& out) {
  std::vector<bool> calls(program.groups.size(), false);
  std::set<int> peers;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* issue = std::get_if<Issue>(&instruction.body))
        calls[static_cast<size_t>(issue->group)] = true;
      if (const auto message = message_of(instruction)) peers.insert(message->peer);
    }
  }
  for (size_t group = 0; group < calls.size(); ++group) {
    if (calls[group]) out.groups.push_back(static_cast<int>(group));
  }
  out.peers = static_cast<int64_t>(peers.size());
}

// Returns the bytes of the buffers of one channel to one neighbour.
int64_t connection_bytes(const NodeType& type) {
  const bool nvlink = type.inner.kind == LinkKind::kNvlink || type.inner.kind == LinkKind::kDirect;
  return 4 * kMebibyte + kMebibyte / 2 + (nvlink ? 47 * kMebibyte / 10 : 0);  // Simple, LL, LL128
}

int64_t communication_bytes(const Program& program, const MemorySizes& sizes,
                            const Cluster& cluster, const RankDevices& devices) {
  const int64_t device = devices.device_of(program.rank);
  const NodeType& type = cluster.type_of(device);
  const int64_t here = cluster.locate(device).node;
  int64_t bytes = sizes.peers * peer_communication_bytes(type);
  for (const int index : sizes.groups) {
    const Group& group = program.groups[static_cast<size_t>(index)];
    if (group.members.size() < 2) continue;
    const bool inside = std::ranges::all_of(group.members, [&](int rank) {
      return cluster.locate(devices.device_of(rank)).node == here;
    });
    bytes += group_communication_bytes(type, inside);
  }
  return bytes;
}

// Returns the figures of the emulated allocator and of the replay.
MemorySizes sizes_of(const Program& program, const Scratch& scratch, const Style& style,
                     Replay& replay) {
  MemorySizes out;
  if (style.allocator == Style::Allocator::kPlanned) {
    replay.run(nullptr);
    // Live bytes may be more than the arena, which has no room for what unfused kernels keep.
    out.reserved_bytes =
        std::max(program.arena_bytes[static_cast<size_t>(Tier::kDevice)], replay.peak().bytes);
  } else {
    Emulation emulation(program, scratch, style.allocator);
    replay.run(&emulation);
    out.reserved_bytes = emulation.peak_reserved();
  }
  out.live_bytes = replay.peak().bytes;
  out.peak_run = replay.peak().run;
  out.peak_share = replay.peak().share;
  find_partners(program, out);
  out.library_bytes = static_cast<int64_t>(style.library_bytes);
  return out;
}

MemoryUse use_of(const Program& program, const MemorySizes& sizes, const Cluster& cluster,
                 const RankDevices& devices) {
  MemoryUse out;
  out.arena_bytes = program.arena_bytes;
  out.peak_bytes = program.arena_bytes[static_cast<size_t>(Tier::kDevice)];
  out.live_bytes = sizes.live_bytes;
  out.reserved_bytes = sizes.reserved_bytes;
  const Device& device = cluster.type_of(devices.device_of(program.rank)).device;
  const int64_t communication = communication_bytes(program, sizes, cluster, devices);
  const int64_t fixed =
      device.context_bytes + library_workspace_bytes(device) + sizes.library_bytes;
  out.overhead_bytes = fixed + communication;
  out.low = static_cast<double>(std::min(out.live_bytes, out.reserved_bytes) + fixed) +
            0.5 * static_cast<double>(communication);
  out.high = static_cast<double>(out.reserved_bytes + fixed) +
             kCommunicationAtMost * static_cast<double>(communication);
  return out;
}

}  // namespace

int64_t communication_bytes(const Program& program, const Cluster& cluster,
                            const RankDevices& devices) {
  MemorySizes partners;
  find_partners(program, partners);
  return communication_bytes(program, partners, cluster, devices);
}

// Counts the buffers of the rings of a group. A ring has a buffer for incoming data, and between
// nodes also one for outgoing data.
int64_t group_communication_bytes(const NodeType& type, bool inside) {
  if (type.device.generation->processor) return 0;
  const int64_t inner = inner_channels(type);
  const int64_t between =
      2 * std::min(std::max<int64_t>(2, inner), 2 * std::max<int64_t>(1, type.nics));
  return (inside ? inner : between) * connection_bytes(type);
}

int64_t peer_communication_bytes(const NodeType& type) {
  constexpr int64_t kChannels = 2;
  return type.device.generation->processor ? 0 : kChannels * connection_bytes(type);
}

int64_t library_workspace_bytes(const Device& device) {
  return device.generation->library_workspace_bytes;
}

MemoryStyle::MemoryStyle(const Style& style)
    : allocator(style.allocator),
      gradient_buffers(style.gradient_buffers),
      fused_attention(style.fused_attention),
      attention_saved_bytes(style.attention_saved_bytes),
      loss_saved(style.loss_saved),
      loss_workspace(style.loss_workspace),
      loss_chunks(style.loss_chunks),
      placeholder_gradients(style.placeholder_gradients),
      library_bytes(style.library_bytes) {}

HeldBuffers held_buffers(const Program& program, const Graph& graph, const Style& style) {
  return scratch_of(program, graph, style);
}

struct AlikeMemory::Impl {
  Impl(const Program& program, const Graph& graph, const Style& of_style)
      : style(of_style), scratch(scratch_of(program, graph, of_style)), changes(program, scratch) {}
  Style style;
  Scratch scratch;
  BlockChanges changes;
};

AlikeMemory::AlikeMemory(const Program& first, const Graph& graph, const Style& style)
    : impl_(std::make_unique<Impl>(first, graph, style)) {}
AlikeMemory::~AlikeMemory() = default;
AlikeMemory::AlikeMemory(AlikeMemory&&) noexcept = default;

MemorySizes AlikeMemory::sizes(const Program& program) {
  const MemoryTimes times{0, {}, {}, false};
  Replay replay(program, impl_->scratch, impl_->changes, times);
  return sizes_of(program, impl_->scratch, impl_->style, replay);
}

MemoryUse memory_use(const Program& program, const MemorySizes& sizes, const Cluster& cluster,
                     const RankDevices& devices, double step_s) {
  MemoryUse out = use_of(program, sizes, cluster, devices);
  const auto [start, stop] = equal_share(program, sizes.peak_run, step_s);
  out.peak_time_s = start + (stop - start) * sizes.peak_share;
  return out;
}

MemoryUse memory_use(const Program& program, const Graph& graph, const Cluster& cluster,
                     const RankDevices& devices, const Style& style, const MemoryTimes& times) {
  const Scratch scratch = scratch_of(program, graph, style);
  BlockChanges changes(program, scratch);
  Replay replay(program, scratch, changes, times);
  MemoryUse out = use_of(program, sizes_of(program, scratch, style, replay), cluster, devices);
  out.peak_time_s = replay.peak().time;
  if (times.details) {
    out.timeline = replay.take_timeline();
    if (!times.events.empty()) out.intervals = live_intervals(program, graph, scratch, replay);
    Replay to_peak(program, scratch, changes, times);
    to_peak.run(nullptr, replay.peak().change);
    out.at_peak = live_buffers(program, graph, scratch, to_peak);
  }
  return out;
}

}  // namespace tessera
