#include "tessera/search/price/fold.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/graph/repeat.h"
#include "tessera/search/constants.h"

namespace tessera {
namespace {

using Layers = std::vector<std::vector<OpId>>;
// Number of layers that are kept of a run: the first, and one that stands for all others.
constexpr size_t kKept = 2;
// Number of unequal layers that are sampled, evenly by size.
const size_t kSampled = kFew + kKept;

// The graph that is being folded, with the op of the model that each of its ops stands for.
struct State {
  Graph graph;
  std::vector<OpId> origin;
};

bool is_same_shape(const Graph& graph, TensorId a, TensorId b) {
  return graph.tensor(a).dims == graph.tensor(b).dims;
}

// Returns for tensors of layers that are left out the tensor to read in their place: the same
// output of the last kept layer before them. The first layer is always kept. Returns nothing if a
// kept op reads a tensor of a left-out layer that has no replacement, unless the op merges any
// number of terms (the losses of all layers) and at least two of its terms remain.
std::optional<std::map<TensorId, TensorId>> replacements(const Graph& graph, const Layers& run,
                                                         const std::vector<bool>& stays,
                                                         const std::vector<bool>& leaves) {
  std::map<TensorId, TensorId> out;
  size_t kept = 0;
  for (size_t layer = 0; layer < run.size(); ++layer) {
    if (stays[layer]) kept = layer;
    const bool ends = layer + 1 == run.size() || stays[layer + 1];
    if (stays[layer] || !ends) continue;
    for (size_t i = 0; i < run[layer].size(); ++i) {
      const auto& from = graph.op(run[layer][i]).outputs;
      const auto& to = graph.op(run[kept][i]).outputs;
      for (size_t k = 0; k < from.size(); ++k) {
        if (is_same_shape(graph, from[k], to[k])) out[from[k]] = to[k];
      }
    }
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

// Returns the state with only some layers of a run. `stays`: for each layer of the run whether it
// is kept. Returns nothing if the others cannot be left out (replacements()).
std::optional<State> without_layers(const State& state, const Layers& run,
                                    const std::vector<bool>& stays) {
  const Graph& graph = state.graph;
  std::vector<bool> leaves(graph.ops().size());
  for (size_t layer = 0; layer < run.size(); ++layer) {
    for (const OpId op : run[layer]) leaves[op.index()] = !stays[layer];
  }
  const auto replaced = replacements(graph, run, stays, leaves);
  if (!replaced) return {};
  const auto read = [&](TensorId id) {
    const auto it = replaced->find(id);
    return it == replaced->end() ? id : it->second;
  };
  // Returns the op without the terms of layers that are gone.
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

// Returns the layers of the graph that differ in nothing but their sizes; none if there are fewer
// than 4 * kFew.
Layers unequal_layers(const Graph& graph) {
  Layers out = repeated_blocks(graph, Sizes::kAny);
  if (out.size() < 4 * kFew) out.clear();
  return out;
}

// Translates layers from ops of the graph that is being folded to ops of the model. Returns nothing
// if one of the ops is already in a run.
std::optional<Layers> of_model(const State& state, Layers layers, const std::set<OpId>& in_runs) {
  for (std::vector<OpId>& layer : layers) {
    for (OpId& op : layer) {
      op = state.origin[op.index()];
      if (in_runs.contains(op)) return {};
    }
  }
  return layers;
}

// Returns the number of ops that are left out if so many layers of a run are kept.
size_t ops_saved(const Layers& run, size_t kept) {
  return run.size() > kept ? (run.size() - kept) * run.front().size() : 0;
}

// Returns whether the first op of `run` is in a layer of `other`. Both are runs of one graph.
bool is_within(const Layers& run, const Layers& other) {
  return std::any_of(other.begin(), other.end(), [&](const std::vector<OpId>& layer) {
    return std::find(layer.begin(), layer.end(), run.front().front()) != layer.end();
  });
}

double size_of(const Graph& graph, const std::vector<OpId>& layer) {
  double out = 0;
  for (const OpId op : layer) {
    for (const TensorId input : graph.op(op).inputs) {
      const Tensor& tensor = graph.tensor(input);
      if (tensor.role == Role::kParameter) out += static_cast<double>(tensor.elements());
    }
    for (const TensorId output : graph.op(op).outputs)
      out += static_cast<double>(graph.tensor(output).elements());
  }
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
    // Stops if sampling the unequal layers that contain this run would leave out more ops than
    // folding the run. That is so where the sizes of layers repeat with a long period.
    const Layers unequal = unequal_layers(state.graph);
    if (ops_saved(unequal, kSampled) > ops_saved(found, kKept) && is_within(found, unequal)) break;
    auto run = of_model(state, found, in_runs);
    if (!run) break;
    std::vector<bool> stays(found.size());
    std::fill_n(stays.begin(), kKept, true);
    auto folded = without_layers(state, found, stays);
    if (!folded) break;
    for (const auto& layer : *run) in_runs.insert(layer.begin(), layer.end());
    runs.push_back(*std::move(run));
    state = std::move(*folded);
  }
  Fold fold;
  const auto unequal = of_model(state, unequal_layers(state.graph), in_runs);
  fold.graph = std::move(state.graph);
  TESSERA_TRY_VOID(fold.graph.verify_made());

  // Makes the units of the model in the order of their first ops, and numbers the units of the
  // folded graph in this order.
  std::map<OpId, FoldUnit> units;
  std::map<OpId, OpId> stand_ins;  // by first op of a unit: the first op of its stand-in
  for (size_t r = 0; r < runs.size(); ++r) {
    for (size_t layer = 0; layer < runs[r].size(); ++layer) {
      const std::vector<OpId>& ops = runs[r][layer];
      units[ops.front()] = {ops, 0, static_cast<int>(r)};
      stand_ins[ops.front()] = runs[r][std::min(layer, kKept - 1)].front();
    }
  }
  if (unequal && !unequal->empty()) {
    fold.unequal_run = static_cast<int>(runs.size());
    for (const std::vector<OpId>& ops : *unequal) {
      units[ops.front()] = {ops, 0, fold.unequal_run};
      stand_ins[ops.front()] = ops.front();
      in_runs.insert(ops.begin(), ops.end());
    }
  }
  for (const Op& op : forward.ops()) {
    if (in_runs.contains(op.id)) continue;
    units[op.id] = {{op.id}, 0, -1};
    stand_ins[op.id] = op.id;
  }
  std::map<OpId, int> numbers;  // the numbers of the folded units, by first op
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

std::optional<Samples> sample_layers(const Fold& fold) {
  if (fold.unequal_run < 0) return {};
  State state;
  state.graph = fold.graph;
  std::map<int, std::vector<OpId>> ops_of;  // by unit of the fold's graph
  for (const Op& op : fold.graph.ops()) {
    state.origin.push_back(op.id);
    ops_of[fold.unit_of[op.id.index()]].push_back(op.id);
  }
  Layers run;
  std::vector<std::pair<double, int>> by_size;  // the size and unit of each unequal layer
  for (const FoldUnit& unit : fold.units) {
    if (unit.run != fold.unequal_run) continue;
    run.push_back(ops_of[unit.stand_in]);
    by_size.emplace_back(size_of(fold.graph, run.back()), unit.stand_in);
  }
  std::set<int> keeps = {by_size.front().second};
  std::sort(by_size.begin(), by_size.end());
  for (size_t i = 0; i < kSampled; ++i)
    keeps.insert(by_size[i * (by_size.size() - 1) / (kSampled - 1)].second);
  std::vector<bool> stays;
  for (const std::vector<OpId>& layer : run)
    stays.push_back(keeps.contains(fold.unit_of[layer.front().index()]));
  auto sampled = without_layers(state, run, stays);
  if (!sampled) return {};

  Samples out;
  out.fold.graph = std::move(sampled->graph);
  if (!out.fold.graph.verify_made()) return {};
  std::map<int, int> sample_of;  // by unit of the fold's graph
  for (const OpId op : sampled->origin) {
    const int unit = fold.unit_of[op.index()];
    const auto [it, is_new] = sample_of.try_emplace(unit, static_cast<int>(out.sampled.size()));
    if (is_new) out.sampled.push_back(unit);
    out.fold.unit_of.push_back(it->second);
  }
  out.fold.folded_units = static_cast<int>(out.sampled.size());
  out.between.resize(static_cast<size_t>(fold.folded_units));
  for (const auto& [unit, sample] : sample_of)
    out.between[static_cast<size_t>(unit)] = {sample, sample, 0};
  size_t smaller = 0;  // position in by_size of the last sampled layer
  for (size_t i = 0; i < by_size.size(); ++i) {
    if (sample_of.contains(by_size[i].second)) {
      smaller = i;
      continue;
    }
    size_t larger = i;
    while (!sample_of.contains(by_size[larger].second)) ++larger;
    const double from = by_size[smaller].first, to = by_size[larger].first;
    out.between[static_cast<size_t>(by_size[i].second)] = {
        sample_of.at(by_size[smaller].second), sample_of.at(by_size[larger].second),
        to > from ? (by_size[i].first - from) / (to - from) : 0};
  }
  for (FoldUnit unit : fold.units) {
    const Samples::Between& at = out.between[static_cast<size_t>(unit.stand_in)];
    unit.stand_in = at.share < .5 ? at.smaller : at.larger;
    out.fold.units.push_back(std::move(unit));
  }
  return out;
}

}  // namespace tessera
