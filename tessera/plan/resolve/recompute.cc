// Which activations are computed again in the backward pass.
#include "tessera/plan/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {

Status apply_recompute(const Resolving& r, const StoreEntry& entry, int index,
                       const std::vector<TensorId>& selected) {
  const auto made_forward = [&](TensorId id) {
    const Tensor& tensor = r.graph.tensor(id);
    return tensor.producer.valid() && r.graph.op(tensor.producer).phase == Phase::kForward;
  };
  // A tensor that is computed from parameters alone (a narrow copy) is no activation. It is
  // computed again only if the entry selects no activation.
  const bool activations = std::any_of(selected.begin(), selected.end(), [&](TensorId id) {
    return made_forward(id) && !r.stages.of_parameters(id);
  });
  bool applied = false;
  for (TensorId id : selected) {
    if (!made_forward(id) || (activations && r.stages.of_parameters(id))) continue;
    r.out.tensors[id.index()].recompute = *entry.recompute;
    r.out.tensors[id.index()].recompute_entry = index;
    applied = true;
  }
  if (applied) return {};
  return r.error(
      entry.line,
      fmt::format("recompute needs activations, but tensors = \"{}\" selects none: '{}' is of "
                  "role {}",
                  entry.tensors, r.graph.tensor(selected.front()).name,
                  role_name(r.graph.tensor(selected.front()).role)));
}

void find_recomputed(const Resolving& r) {
  std::vector<bool> read(r.graph.tensors().size(), false), crosses(r.graph.tensors().size(), false);
  const auto remade = [&](const Op& op) {
    return op.phase == Phase::kForward &&
           std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
             return r.out.tensors[output.index()].recompute && read[output.index()] &&
                    !crosses[output.index()];
           });
  };
  for (auto op = r.graph.ops().rbegin(); op != r.graph.ops().rend(); ++op) {
    if (op->phase != Phase::kBackward && !remade(*op)) continue;
    for (TensorId input : op->inputs) {
      read[input.index()] = true;
      const OpId producer = r.graph.tensor(input).producer;
      if (producer.valid() &&
          r.out.ops[producer.index()].stage != r.out.ops[op->id.index()].stage) {
        crosses[input.index()] = true;
      }
    }
  }
  // If one of the tensors is read, all of them are recomputed, because a clone of one op may read
  // the output of another clone.
  bool wanted = false;
  std::vector<TensorId> not_kept;
  for (const Tensor& tensor : r.graph.tensors()) {
    if (!r.out.tensors[tensor.id.index()].recompute || crosses[tensor.id.index()] ||
        !tensor.producer.valid() || r.graph.op(tensor.producer).phase != Phase::kForward) {
      continue;
    }
    not_kept.push_back(tensor.id);
    wanted = wanted || read[tensor.id.index()];
  }
  if (wanted) r.out.to_recompute = std::move(not_kept);
}

}  // namespace tessera
