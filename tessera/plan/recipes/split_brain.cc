// The recipe for networks with data parallel convolutions and dense layers that a group of ranks
// shares (docs/strategies/split-brain.md).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/maps.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

constexpr const char* kGroup = "groups";

// A `DenseLayer` is a product with a parameter after the last convolution.
struct DenseLayer {
  OpId op;
  std::string in, out;  // first dim that it sums over, first dim that it makes
};

struct DensePart {
  std::vector<DenseLayer> layers;
  std::vector<OpId> ops;  // forward ops with a batch, from the first layer on
  OpId before;            // the op that makes the first layer's input; invalid if none
};

bool makes_batch(const Graph& graph, OpId op) {
  return op.valid() && graph.op(op).annotation.find("batch") >= 0;
}

Result<DensePart> find_dense(const Graph& graph) {
  DensePart part;
  int32_t last = -1;
  for (const Op& op : graph.ops()) {
    if (is_convolution(op)) last = op.id.value;
  }
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || op.id.value <= last) continue;
    const bool product = info_of(op).work == WorkClass::kMatmul && op.inputs.size() > 1 &&
                         graph.tensor(op.inputs[1]).role == Role::kParameter;
    if (product) {
      DenseLayer layer{op.id, "", ""};
      const Annotation& a = op.annotation;
      for (int dim = 0; dim < static_cast<int>(a.dims.size()); ++dim) {
        const OpDim& of = a.dims[static_cast<size_t>(dim)];
        if (!a.inputs[1].contains(dim) || of.mark == Mark::kFrozen) continue;
        const bool summed = a.inputs[0].contains(dim) && a.reduces(dim, 0);
        if (summed && layer.in.empty()) layer.in = of.name;
        if (!a.inputs[0].contains(dim) && !a.reduces(dim, 0) && layer.out.empty())
          layer.out = of.name;
      }
      if (layer.in.empty() || layer.out.empty()) continue;
      if (part.layers.empty()) part.before = graph.tensor(op.inputs[0]).producer;
      part.layers.push_back(layer);
    }
    if (!part.layers.empty() && op.annotation.find("batch") >= 0) part.ops.push_back(op.id);
  }
  if (last >= 0 && !part.layers.empty()) return part;
  return invalid_input(fmt::format("expected {}, found none",
                                   last < 0 ? "convolutions in front of dense layers"
                                            : "dense layers behind the last convolution"));
}

// Returns the ops that can be cut by the features that dense layer `layer` makes. These are the
// layer and the ops between it and the next layer, if they have the dim of the features and do not
// sum over it.
std::vector<OpId> with_features(const Graph& graph, const DensePart& part, size_t layer) {
  std::vector<OpId> out;
  const OpId end = layer + 1 < part.layers.size() ? part.layers[layer + 1].op
                                                  : OpId(static_cast<int32_t>(graph.ops().size()));
  for (const OpId id : part.ops) {
    if (id.value < part.layers[layer].op.value || id.value >= end.value) continue;
    const Op& op = graph.op(id);
    const int dim = op.annotation.find(part.layers[layer].out);
    if (dim < 0 || op.annotation.dims[static_cast<size_t>(dim)].mark == Mark::kFrozen) continue;
    if (!op.annotation.reduces(dim, 0)) out.push_back(id);
  }
  return out;
}

// Cuts each dense layer by the dim that it makes. If `pairs`, every second layer is cut by the dim
// that it sums over instead, so that its input need not be gathered.
void cut_features(PlanText& text, const Graph& graph, const DensePart& part, bool pairs,
                  const std::string& over) {
  const auto add = [&](const std::vector<OpId>& ops, const std::string& dim) {
    if (!ops.empty()) text.split(alternatives(patterns_of(graph, ops, dim)), dim, over);
  };
  for (size_t i = 0; i < part.layers.size(); ++i) {
    const DenseLayer& layer = part.layers[i];
    const bool second = pairs && i % 2 == 1;
    std::vector<OpId> ops = second ? std::vector<OpId>{layer.op} : with_features(graph, part, i);
    if (pairs && !second && i + 1 < part.layers.size() && part.layers[i + 1].in == layer.out)
      ops.push_back(part.layers[++i].op);
    add(ops, second ? layer.in : layer.out);
  }
}

Status check_scheme(const RecipeArguments& arguments, const Graph& graph, const DensePart& part) {
  const std::string& scheme = arguments.text("scheme");
  if (scheme == "a") return {};
  if (scheme == "c" && arguments.number("micro_batches") > 1) {
    return invalid_input(fmt::format(
        "micro_batches = {} cut the batch already: scheme = c, whose turns cut it, needs "
        "micro_batches = 1",
        arguments.number("micro_batches")));
  }
  if (makes_batch(graph, part.before)) return {};
  return invalid_input(
      fmt::format("scheme = {} needs an op in front of the dense layers, found none", scheme));
}

Result<PlanText> emit_split_brain(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY(PlanText text, outer(arguments, graph, {{kGroup, arguments.number(kGroup)}}));
  TESSERA_TRY(const DensePart part, find_dense(graph));
  TESSERA_TRY_VOID(check_scheme(arguments, graph, part));
  const std::string all = fmt::format("dp,{}", kGroup), &scheme = arguments.text("scheme");
  // The number of turns is at most the number of samples of a rank. 0 samples mean that the batch
  // is not known yet.
  const int64_t ranks = text.product(all), batch = size_of(graph, "*", "batch");
  const int64_t samples = batch / ranks;
  int64_t turns = samples == 0 ? text.size(kGroup) : std::min(text.size(kGroup), samples);
  if (scheme == "c" && turns > 1 && text.has("dp") && batch > 1 && batch % ranks != 0) {
    text.notes.push_back(fmt::format(
        "scheme = a: turns take equal parts, which {} samples on {} ranks are not", batch, ranks));
    turns = 1;
  }
  TESSERA_TRY_VOID(data_parallel(text, graph, all));
  const auto of_part = [&](const std::vector<OpId>& ops) {
    return alternatives(patterns_of(graph, ops, "batch"));
  };
  text.split(of_part(part.ops), "batch", "dp");
  if (scheme == "b" && text.has(kGroup)) {
    // The first layer works on the samples of one rank in each turn, and its output already has the
    // layout that the other layers want.
    text.split(of_part({part.layers.front().op}), "batch",
               fmt::format("dp,time:{}", text.size(kGroup)));
  }
  cut_features(text, graph, part, arguments.flag("pairs"), kGroup);
  if (arguments.flag("keep") && text.has(kGroup)) {
    std::vector<OpId> read;
    for (const DenseLayer& layer : part.layers) {
      const OpId from = graph.tensor(graph.op(layer.op).inputs[0]).producer;
      if (from.valid()) read.push_back(from);
    }
    if (!read.empty()) text.keep(alternatives(patterns_of(graph, read)), "micro_batch");
  }
  if (scheme == "c" && turns > 1) {
    // The op before the dense layers is part of the loop. It is cut over all ranks, so each turn
    // takes a part of every rank's samples.
    std::vector<OpId> ops = part.ops;
    ops.insert(ops.begin(), part.before);
    text.loop(of_part(ops), "batch", fmt::format("steps = {}", turns));
  }
  zero(text, arguments.number("zero"), all);
  return text;
}

}  // namespace

std::vector<Recipe> split_brain_recipes() {
  std::vector<RecipeArgument> arguments = with_outer(
      {number(kGroup, std::nullopt, "ranks of a group, which share each dense layer"),
       choice("scheme", "c", {"a", "b", "c"},
              "how a group takes the samples of its ranks: a, all at once; b, those of one rank in "
              "each turn; c, a part of every rank's in each turn"),
       flag("pairs", false,
            "every second dense layer is cut by what it sums over, as Megatron does"),
       flag("keep", false,
            "what dense layers gather in the forward pass is kept for the backward pass")});
  return {{"split_brain",
           "convolutions of replicas; dense layers cut by features in groups of ranks",
           std::move(arguments), emit_split_brain}};
}

}  // namespace tessera::recipes
