#include "tessera/search/fold.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/graph/repeat.h"

namespace tessera {
namespace {

using Layers = std::vector<std::vector<OpId>>;
constexpr size_t kKept = 2;  // layers of a run: the first one, and one that stands for the others

// The graph that is being folded, and which op of the model each of its ops is.
struct State {
  Graph graph;
  std::vector<OpId> origin;
};

// By tensor of the graph: the tensor that takes its place when the layers after the first kKept of
// a run are left out. Nothing if an op that stays reads what would be gone, unless it merges any
// number of terms (the losses of all layers) and keeps two of them.
std::optional<std::map<TensorId, TensorId>> replacements(const Graph& graph, const Layers& run,
                                                         const std::vector<bool>& leaves) {
  std::map<TensorId, TensorId> out;
  const std::vector<OpId>&last = run.back(), &kept = run[kKept - 1];
  for (size_t i = 0; i < last.size(); ++i) {
    const auto& from = graph.op(last[i]).outputs;
    for (size_t k = 0; k < from.size(); ++k) out[from[k]] = graph.op(kept[i]).outputs[k];
  }
  for (const Op& op : graph.ops()) {
    if (leaves[op.id.index()]) continue;
    size_t gone = 0;
    for (const TensorId input : op.inputs) {
      const OpId producer = graph.tensor(input).producer;
      gone += producer.valid() && leaves[producer.index()] && !out.contains(input);
    }
    if (gone > 0 && (!merges_terms(op) || gone + 2 > op.inputs.size())) return {};
  }
  const OpId loss = graph.loss.valid() ? graph.tensor(graph.loss).producer : OpId();
  if (loss.valid() && leaves[loss.index()]) return {};
  return out;
}

std::optional<State> without_layers(const State& state, const Layers& run) {
  const Graph& graph = state.graph;
  std::vector<bool> leaves(graph.ops().size());
  for (size_t layer = kKept; layer < run.size(); ++layer) {
    for (const OpId op : run[layer]) leaves[op.index()] = true;
  }
  const auto replaced = replacements(graph, run, leaves);
  if (!replaced) return {};
  const auto read = [&](TensorId id) {
    const auto it = replaced->find(id);
    return it == replaced->end() ? id : it->second;
  };
  // Without the terms of layers that are gone.
  const auto without_terms = [&](Op op) {
    for (size_t i = op.inputs.size(); i-- > 0;) {
      const OpId producer = graph.tensor(op.inputs[i]).producer;
      const bool is_gone = producer.valid() && leaves[producer.index()];
      if (!is_gone || replaced->contains(op.inputs[i])) continue;
      op.inputs.erase(op.inputs.begin() + static_cast<std::ptrdiff_t>(i));
      auto& operands = op.annotation.inputs.own();
      operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return op;
  };
  std::vector<bool> is_used(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    if (leaves[op.id.index()]) continue;
    for (const TensorId id : without_terms(op).inputs) is_used[read(id).index()] = true;
    for (const TensorId id : op.outputs) is_used[id.index()] = true;
  }
  State out;
  out.graph.name = graph.name;
  std::vector<TensorId> now(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors()) {
    if (!is_used[tensor.id.index()]) continue;
    Tensor copy = tensor;
    copy.producer = OpId();
    now[tensor.id.index()] = out.graph.add_tensor(std::move(copy));
  }
  for (const Op& op : graph.ops()) {
    if (leaves[op.id.index()]) continue;
    Op copy = without_terms(op);
    for (TensorId& id : copy.inputs) id = now[read(id).index()];
    for (TensorId& id : copy.outputs) id = now[id.index()];
    out.graph.add_op(std::move(copy));
    out.origin.push_back(state.origin[op.id.index()]);
  }
  if (graph.loss.valid()) out.graph.loss = now[graph.loss.index()];
  return out;
}

}  // namespace

std::vector<int64_t> Fold::counts() const {
  std::vector<int64_t> out(static_cast<size_t>(folded_units));
  for (const FoldUnit& unit : units) ++out[static_cast<size_t>(unit.stand_in)];
  return out;
}

Result<Fold> fold_layers(const Graph& forward) {
  State state;
  state.graph = forward;
  for (const Op& op : forward.ops()) state.origin.push_back(op.id);
  std::vector<Layers> runs;  // ops of the model
  std::set<OpId> in_runs;
  for (;;) {
    const Layers found = repeated_blocks(state.graph);
    if (found.size() <= kKept) break;
    Layers run = found;
    bool overlaps = false;
    for (std::vector<OpId>& layer : run) {
      for (OpId& op : layer) {
        op = state.origin[op.index()];
        overlaps = overlaps || in_runs.contains(op);
      }
    }
    if (overlaps) break;
    auto folded = without_layers(state, found);
    if (!folded) break;
    for (const auto& layer : run) in_runs.insert(layer.begin(), layer.end());
    runs.push_back(std::move(run));
    state = std::move(*folded);
  }
  Fold fold;
  fold.graph = std::move(state.graph);
  TESSERA_TRY_VOID(fold.graph.verify_made());

  // Units of the model by their first op, then those of the folded graph in the same order.
  std::map<OpId, FoldUnit> units;
  std::map<OpId, OpId> stand_ins;  // by first op of a unit: the first op of its stand-in
  for (size_t r = 0; r < runs.size(); ++r) {
    for (size_t layer = 0; layer < runs[r].size(); ++layer) {
      const std::vector<OpId>& ops = runs[r][layer];
      units[ops.front()] = {ops, 0, static_cast<int>(r)};
      stand_ins[ops.front()] = runs[r][std::min(layer, kKept - 1)].front();
    }
  }
  for (const Op& op : forward.ops()) {
    if (in_runs.contains(op.id)) continue;
    units[op.id] = {{op.id}, 0, -1};
    stand_ins[op.id] = op.id;
  }
  std::map<OpId, int> numbers;  // of the folded units, by first op
  std::map<OpId, int> unit_by_op;
  for (auto& [first, unit] : units) {
    const OpId stand_in = stand_ins[first];
    if (stand_in == first) {
      numbers[first] = fold.folded_units++;
      for (const OpId op : unit.ops) unit_by_op[op] = numbers[first];
    }
    unit.stand_in = numbers[stand_in];
    fold.units.push_back(std::move(unit));
  }
  for (const OpId op : state.origin) fold.unit_of.push_back(unit_by_op.at(op));
  return fold;
}

}  // namespace tessera
