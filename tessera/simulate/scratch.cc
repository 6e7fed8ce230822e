#include "tessera/simulate/scratch.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "tessera/cost/op_cost.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// Returns the output in which the op keeps statistics for its gradient; null if it keeps none.
const Output* statistics_of(const Graph& graph, const Compute& compute) {
  const int statistics = info_of(graph.op(compute.op)).statistics;
  return statistics < 0 ? nullptr : &compute.outputs[static_cast<size_t>(statistics)];
}

// Marks the largest buffer of each parameter's gradient as held all the time. The other buffers of
// the gradient are parts of it and take no memory of their own.
void keep_gradients(const Program& program, const Graph& graph, Scratch& out) {
  std::map<TensorId, size_t> whole;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.tier != Tier::kDevice || buffer.lifetime == Lifetime::kPersistent) continue;
    const TensorId parameter = parameter_of(graph, graph.tensor(buffer.tensor));
    if (!parameter.valid()) continue;
    const size_t index = buffer.id.index();
    const auto [it, fresh] = whole.try_emplace(parameter, index);
    if (fresh) continue;
    const bool larger = out.bytes[index] > out.bytes[it->second];
    out.bytes[larger ? it->second : index] = 0;
    if (larger) it->second = index;
  }
  for (const auto& [parameter, index] : whole) out.resident[index] = true;
}

// Returns the path of an op in a repeated block without the number of the block.
std::string path_in_block(const Op& op) {
  const std::string number = fmt::format(".{}.", op.block);
  const size_t at = op.path.find(number);
  return at == std::string::npos ? op.path : op.path.substr(at + number.size());
}

// Adds the placeholders that the products of repeated blocks return as the gradients of their
// weights (Style::placeholder_gradients). Layers at the same place of different blocks share one if
// their sizes are equal, and so do the experts of a layer.
void keep_placeholders(const Program& program, const Graph& graph, Scratch& out) {
  std::set<std::pair<std::string, int64_t>> found;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute == nullptr) continue;
      const Op& op = graph.op(compute->op);
      if (op.block < 0 || *info_of(op).work != WorkClass::kMatmul) continue;
      if (!parameter_of(graph, graph.tensor(op.outputs.at(0))).valid()) continue;
      const OpWork work = work_of(graph, program, *compute);
      const auto bytes =
          static_cast<int64_t>(work.m * work.n * static_cast<double>(dtype_bytes(work.dtype)));
      found.emplace(path_in_block(op), bytes);
    }
  }
  int64_t sum = 0;
  for (const auto& [path, bytes] : found) sum += bytes;
  if (sum == 0) return;
  out.kept.push_back(out.workspace_bytes.size());
  out.workspace_bytes.push_back(sum);
  out.names.emplace_back("placeholders of gradients");
}

// Narrows the logits, or in the backward pass their gradient, to one of the pieces for which the
// loss is computed (Style::loss_chunks).
void cut_logits(const Program& program, const Compute& loss, bool backward, double chunks,
                Scratch& out) {
  const BufferId id = backward ? loss.outputs.front().view.buffer : loss.inputs.front().buffer;
  out.bytes[id.index()] =
      static_cast<int64_t>(static_cast<double>(program.buffer(id).bytes()) / chunks);
}

}  // namespace

TensorId parameter_of(const Graph& graph, const Tensor& gradient) {
  if (gradient.role != Role::kGradient || !gradient.of.valid()) return {};
  return graph.parameter_of(gradient.of);
}

Scratch scratch_of(const Program& program, const Graph& graph, const Style& style) {
  Scratch out;
  for (const Buffer& buffer : program.buffers) {
    out.bytes.push_back(buffer.bytes());
    out.resident.push_back(buffer.lifetime == Lifetime::kPersistent &&
                           buffer.tier == Tier::kDevice);
  }
  if (style.gradient_buffers) keep_gradients(program, graph, out);
  if (style.placeholder_gradients) keep_placeholders(program, graph, out);
  if (style.fused_attention && style.loss_saved == 0 && style.loss_chunks <= 1) return out;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto* compute = std::get_if<Compute>(&instruction.body);
      if (compute == nullptr) continue;
      const Op& op = graph.op(compute->op);
      const WorkClass kind = *info_of(op).work;
      if (kind != WorkClass::kAttention && kind != WorkClass::kLoss) continue;
      const OpWork work = work_of(graph, program, *compute);
      if (kind == WorkClass::kLoss && style.loss_chunks > 1)
        cut_logits(program, *compute, work.backward, style.loss_chunks, out);
      const OpScratch scratch = scratch_of(work, style);
      const Output* kept = statistics_of(graph, *compute);
      if (kept != nullptr) out.bytes[kept->view.buffer.index()] += scratch.saved_bytes;
      if (scratch.workspace_bytes == 0) continue;
      out.workspaces[&instruction] = out.workspace_bytes.size();
      out.workspace_bytes.push_back(scratch.workspace_bytes);
      out.names.push_back(op.path);
    }
  }
  return out;
}

}  // namespace tessera
