#include "tessera/program/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"

namespace tessera {
namespace {

bool is_output(const Annotation& annotation, const OperandDims& operand) {
  return std::any_of(annotation.outputs.begin(), annotation.outputs.end(),
                     [&](const OperandDims& output) { return &output == &operand; });
}

// Returns the part of the op's dim that an input needs for the box. If the dim is the keys of a
// causal pair, only keys up to the last query of the box are needed.
Interval needed(const Annotation& annotation, const Box& box, int op_dim) {
  const OpDim& dim = annotation.dims[static_cast<size_t>(op_dim)];
  Interval interval = box.dims[static_cast<size_t>(op_dim)];
  if (dim.causal_of >= 0) {
    const int64_t last = box.dims[static_cast<size_t>(dim.causal_of)].end();
    interval.size = std::max<int64_t>(0, std::min(interval.end(), last) - interval.begin);
  }
  return interval;
}

Interval project_group(const Annotation& annotation, const DimGroup& group, const Box& box,
                       bool output) {
  if (group.empty()) return {0, 1};
  size_t moving = 0;
  while (moving + 1 < group.size() &&
         annotation.dims[static_cast<size_t>(group[moving])].size == 1) {
    ++moving;
  }
  int64_t inner = 1;
  for (size_t i = moving + 1; i < group.size(); ++i) {
    inner *= annotation.dims[static_cast<size_t>(group[i])].size;
  }
  const Interval own = output ? box.dims[static_cast<size_t>(group[moving])]
                              : needed(annotation, box, group[moving]);
  if (const int64_t extent = uneven_extent(annotation.dims, group); extent >= 0) {
    const int64_t blocks = annotation.dims[static_cast<size_t>(group[moving])].size;
    const auto begin_of = [&](int64_t block) {
      return block == blocks ? extent : split_interval({0, extent}, blocks, block).begin;
    };
    return {begin_of(own.begin), begin_of(own.end()) - begin_of(own.begin)};
  }
  return {own.begin * inner, own.size * inner};
}

void add_issue(const Program& program, const Graph& graph, const Issue& issue, int64_t times,
               bool (*keep)(const Tensor&), Volume& volume) {
  const Group& group = program.groups[static_cast<size_t>(issue.group)];
  std::vector<Redistribution> kept;
  for (const Transfer& transfer : issue.transfers) {
    if (keep != nullptr && !keep(graph.tensor(transfer.tensor))) continue;
    kept.push_back({issue.kind, issue.combiner, issue.dtype, transfer.hold, transfer.need});
  }
  std::vector<const Redistribution*> items;
  for (const Redistribution& what : kept) items.push_back(&what);
  if (items.empty()) return;
  const auto me = static_cast<size_t>(group.index);
  const Traffic once = issue.named   ? sent_traffic(issue, me)
                       : issue.codec ? coded_traffic(items, *issue.codec, me)
                                     : bucket_traffic(items, me);
  volume.by_kind[std::string(collective_name(issue.kind))] +=
      Traffic{once.bytes * times, once.messages * times};
}

}  // namespace

bool masked(const Annotation& annotation, const Box& box) {
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    const int query = annotation.dims[d].causal_of;
    if (query < 0) continue;
    if (box.dims[static_cast<size_t>(query)].end() <= box.dims[d].begin) return true;
  }
  return false;
}

std::string_view lifetime_name(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kPersistent: return "persistent";
    case Lifetime::kStep: return "step";
    case Lifetime::kMicroBatch: return "micro_batch";
    case Lifetime::kBlock: return "block";
  }
  return "?";
}

std::string_view block_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::kPrologue: return "prologue";
    case BlockKind::kForward: return "forward";
    case BlockKind::kBackward: return "backward";
    case BlockKind::kWeight: return "weight";
    case BlockKind::kUpdate: return "update";
  }
  return "?";
}

std::string block_name(BlockRef block) {
  const std::string kind(block_name(block.kind));
  return block.chunk == 0 ? kind : fmt::format("{}@{}", kind, block.chunk);
}

int64_t Program::slots() const {
  int64_t most = 1;
  for (const Buffer& buffer : buffers) most = std::max(most, buffer.slots);
  return most;
}

bool Program::smaller(BlockRef ref) const {
  return larger > 0 && !ref.once() && static_cast<size_t>(ref.chunk) >= stages.size();
}

BlockRef Program::family(BlockRef ref) const {
  return smaller(ref) ? BlockRef(ref.kind, ref.chunk - static_cast<int32_t>(stages.size())) : ref;
}

int64_t Program::runs(BlockRef ref) const {
  return std::count_if(schedule.begin(), schedule.end(),
                       [&](const BlockRunStep& step) { return step.block == ref; });
}

int64_t Buffer::bytes() const {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  if (places > 0 && shape[0] > 0) elements = elements / shape[0] * places;
  return elements * dtype_bytes(dtype);
}

int micro_batch_dim_of(const Program& program, const Tensor& tensor) {
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i].name == program.micro_batch_dim) return static_cast<int>(i);
  }
  return -1;
}

int micro_batch_dim_of(const Program& program, const Annotation& annotation) {
  return annotation.find(program.micro_batch_dim);
}

Box at_micro_batch(const Program& program, Box region, int dim, int64_t micro_batch) {
  if (dim >= 0) {
    region.dims[static_cast<size_t>(dim)].begin += program.begin(micro_batch);
  }
  return region;
}

// Recognises an output by the address of `operand`, because causal limits apply only to inputs.
Box project(const Annotation& annotation, const OperandDims& operand, const Box& box) {
  const bool output = is_output(annotation, operand);
  Box region;
  region.dims.reserve(operand.dims.size());
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const auto read = annotation.window_read(operand, d);
    region.dims.push_back(read ? read->of(box.dims[static_cast<size_t>(operand.dims[d].front())])
                               : project_group(annotation, operand.dims[d], box, output));
  }
  return region;
}

int64_t Volume::bytes() const {
  int64_t total = 0;
  for (const auto& [kind, traffic] : by_kind) total += traffic.bytes;
  return total;
}

bool is_lossy(const Program& program) {
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const bool lossy = match(
          instruction,
          [](const OneOf<Issue, Send, Recv> auto& moves) { return moves.codec.has_value(); },
          [](const OneOf<Compute, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {
            return false;
          });
      if (lossy) return true;
    }
  }
  return false;
}

Volume volume(const Program& program, const Graph& graph) {
  return volume(program, graph, nullptr);
}

Volume volume(const Program& program, const Graph& graph, bool (*keep)(const Tensor&)) {
  Volume out;
  for (const auto& [ref, block] : program.blocks) {
    const int64_t runs = program.runs(ref);
    if (runs == 0) continue;
    for (const Instruction& instruction : block) {
      const int64_t times = instruction.when == When::kAlways ? runs : 1;
      match(
          instruction,
          [&](const Issue& issue) { add_issue(program, graph, issue, times, keep, out); },
          [&](const Send& send) {
            const int64_t elements = send.region.volume();
            if ((keep != nullptr && !keep(graph.tensor(send.tensor))) || elements == 0) return;
            const DType dtype = program.buffer(send.view.buffer).dtype;
            out.by_kind["send"] +=
                Traffic{message_bytes(send.codec, dtype, elements) * times, times};
          },
          [](const OneOf<Compute, Recv, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
    }
  }
  return out;
}

int cache_of(const Program& program, BufferId held) {
  for (size_t c = 0; c < program.caches.size(); ++c) {
    const std::vector<BufferId>& of = program.caches[c].held;
    if (std::find(of.begin(), of.end(), held) != of.end()) return static_cast<int>(c);
  }
  return -1;
}

int64_t row_bytes(const Program& program, const RowCache& cache) {
  int64_t bytes = 0;
  for (const BufferId rest : cache.rests) bytes += program.buffer(rest).bytes();
  return cache.rows.size == 0 ? 0 : bytes / cache.rows.size;
}

}  // namespace tessera
