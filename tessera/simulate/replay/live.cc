#include "tessera/simulate/replay/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace tessera {
namespace {

constexpr size_t kMostNamed = 200;
constexpr size_t kMostIntervals = 100'000;

// Returns whether the tensor's value belongs to a micro-batch. Other tensors are forms of a
// parameter (cast, cut, reordered).
bool of_micro_batch(const Program& program, const Tensor& tensor) {
  return tensor.dims.empty() ||
         std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [&](const Dim& dim) { return dim.name == program.micro_batch_dim; });
}

std::string what_is(const Program& program, const Graph& graph, const Buffer& buffer) {
  const Tensor& tensor = graph.tensor(buffer.tensor);
  const bool of_parameter = parameter_of(graph, tensor).valid();
  const bool rests = buffer.lifetime == Lifetime::kPersistent;
  switch (tensor.role) {
    case Role::kParameter: return rests ? "parameter" : "gathered";
    case Role::kOptimizerState: return "optimizer state";
    case Role::kGradient: return of_parameter ? "gradient" : "activation gradient";
    case Role::kInput: return "input";
    case Role::kBuffer: return "table";
    case Role::kActivation: break;
  }
  if (rests) return "residual";  // of error feedback
  return of_micro_batch(program, tensor) ? "activation" : "gathered";
}

}  // namespace

std::vector<LiveInterval> live_intervals(const Program& program, const Graph& graph,
                                         const Scratch& scratch, Replay& replay) {
  const std::vector<LiveSpan> spans = replay.take_spans();
  const size_t buffers = program.buffers.size() + scratch.names.size();
  std::vector<size_t> count(buffers, 0);
  for (const LiveSpan& span : spans) ++count[span.buffer];
  std::vector<size_t> order(buffers);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return replay.bytes(a) > replay.bytes(b); });
  size_t left = kMostIntervals;
  std::vector<bool> named(buffers, false);
  for (const size_t buffer : order) {
    named[buffer] = count[buffer] <= left;
    if (named[buffer]) left -= count[buffer];
  }
  std::vector<LiveInterval> out;
  for (const LiveSpan& span : spans) {
    if (!named[span.buffer]) continue;
    const bool workspace = span.buffer >= program.buffers.size();
    LiveInterval live{"", "workspace", replay.bytes(span.buffer), span.start_s, span.end_s};
    if (workspace) {
      live.name = scratch.names[span.buffer - program.buffers.size()];
    } else {
      const Buffer& buffer = program.buffers[span.buffer];
      live.name = buffer.name;
      live.what = what_is(program, graph, buffer);
    }
    out.push_back(std::move(live));
  }
  std::stable_sort(out.begin(), out.end(), [](const LiveInterval& a, const LiveInterval& b) {
    return std::pair(a.start_s, -a.bytes) < std::pair(b.start_s, -b.bytes);
  });
  return out;
}

std::vector<LiveBuffer> live_buffers(const Program& program, const Graph& graph,
                                     const Scratch& scratch, const Replay& replay) {
  std::vector<LiveBuffer> all;
  for (const Buffer& buffer : program.buffers) {
    const int64_t copies = replay.copies(buffer.id.index());
    const int64_t bytes = replay.bytes(buffer.id.index());
    if (copies == 0 || bytes == 0) continue;
    all.push_back({copies == 1 ? buffer.name : fmt::format("{} x {}", buffer.name, copies),
                   copies * bytes, what_is(program, graph, buffer)});
  }
  for (size_t i = 0; i < scratch.names.size(); ++i) {
    if (replay.copies(program.buffers.size() + i) > 0)
      all.push_back({scratch.names[i], scratch.workspace_bytes[i], "workspace"});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  if (all.size() <= kMostNamed) return all;
  std::map<std::string, std::pair<int64_t, int64_t>> rest;  // what -> count, bytes
  for (size_t i = kMostNamed; i < all.size(); ++i) {
    ++rest[all[i].what].first;
    rest[all[i].what].second += all[i].bytes;
  }
  all.resize(kMostNamed);
  for (const auto& [what, of] : rest)
    all.push_back({fmt::format("{} others", of.first), of.second, what});
  return all;
}

}  // namespace tessera
