#include "tessera/plan/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/transform.h"
#include "tessera/plan/resolve/ahead_split.h"
#include "tessera/plan/resolve/selection.h"

namespace tessera {
namespace {

// Returns the widest dtype that a parameter of the graph has; at least bfloat16.
DType parameter_dtype(const Graph& graph) {
  DType widest = DType::kBFloat16;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && dtype_bytes(tensor.dtype) > dtype_bytes(widest))
      widest = tensor.dtype;
  }
  return widest;
}

}  // namespace

Result<Graph> training_graph(const Graph& forward, const Plan& plan, Precision precision,
                             OptimizerSpec optimizer) {
  if (precision.compute == DType::kFloat16 && !precision.loss_scale) precision.loss_scale.emplace();
  // Gradients are added up over micro-batches and summed over ranks in the dtype of the parameters
  // at rest, as automatic mixed precision does.
  // made as float32, then widened as a whole
  const bool exact = parameter_dtype(forward) == DType::kFloat64;
  const DType at_rest = exact ? DType::kFloat32 : parameter_dtype(forward);
  if (precision.compute && !precision.gradient)
    precision.gradient = precision.parameter.value_or(at_rest);
  optimizer.precision = precision;
  optimizer.by_rows = tables_by_rows(forward, optimizer);
  if (plan.micro_batches > 1) optimizer.micro_batch_dim = plan.micro_batch_dim;
  if (precision.parameter && !precision.compute) precision.compute = DType::kFloat32;
  const auto train = [&](const Graph& model) -> Result<Graph> {
    TESSERA_TRY(const Graph shaped,
                shape_forward(model, plan, precision.compute, precision.parameter));
    return differentiate(shaped, optimizer);
  };
  const bool freezes =
      std::any_of(optimizer.groups.begin(), optimizer.groups.end(),
                  [](const OptimizerGroup& group) { return group.kind == kNoOptimizer; });
  const Graph frozen = freezes ? with_frozen_groups(forward, optimizer) : Graph();
  const Graph& model = freezes ? frozen : forward;
  if (!exact) return train(model);
  TESSERA_TRY(Graph narrow, train(in_one_dtype(model, DType::kFloat32)));
  return in_one_dtype(std::move(narrow), DType::kFloat64);
}

GraphVariants::GraphVariants(std::shared_ptr<const Graph> graph)
    : graph_(std::move(graph)), names_(std::make_unique<GraphNames>(*graph_)) {}
GraphVariants::~GraphVariants() = default;
GraphVariants::GraphVariants(GraphVariants&&) noexcept = default;

template <class Transform>
Result<GraphVariants*> GraphVariants::variant(Variant wanted, const Transform& transform) {
  constexpr size_t kMost = 4;
  const auto found = std::find_if(variants_.begin(), variants_.end(), [&](const Variant& other) {
    return other.expanded == wanted.expanded && other.recomputed == wanted.recomputed &&
           other.ahead == wanted.ahead;
  });
  if (found != variants_.end()) {
    variants_.splice(variants_.begin(), variants_, found);
    return variants_.front().graphs.get();
  }
  TESSERA_TRY(Graph graph, transform(*graph_));
  if (variants_.size() == kMost) variants_.pop_back();
  wanted.graphs = std::make_unique<GraphVariants>(std::make_shared<const Graph>(std::move(graph)));
  variants_.push_front(std::move(wanted));
  return variants_.front().graphs.get();
}

Result<GraphVariants*> GraphVariants::expanded(const std::vector<OpId>& ops) {
  return variant({ops, {}, {}, nullptr},
                 [&](const Graph& graph) { return expand_ops(graph, ops); });
}

Result<GraphVariants*> GraphVariants::recomputed(const std::vector<TensorId>& tensors) {
  return variant({{}, tensors, {}, nullptr},
                 [&](const Graph& graph) { return recompute_ops(graph, tensors); });
}

Result<GraphVariants*> GraphVariants::ahead(const AheadOps& ops) {
  return variant({{}, {}, ops, nullptr},
                 [&](const Graph& graph) { return moved_ahead(graph, ops); });
}

namespace {

Result<GraphVariants*> move_ahead(GraphVariants& graphs, const Plan& plan) {
  TESSERA_TRY(const AheadOps ops, ops_ahead(plan, *graphs.graph(), graphs.names()));
  if (ops.empty()) return &graphs;
  auto moved = graphs.ahead(ops);
  if (moved) return moved;
  const auto entry = std::find_if(plan.splits.begin(), plan.splits.end(), is_ahead);
  return plan_error(plan, entry->line,
                    fmt::format("dim \"{}\": {}", kStepDim, moved.error().message));
}

}  // namespace

// Prepares in rounds. A round resolves the plan on the current graph and makes one transform that
// the plan still needs: expansions first, so that recomputation clones the expanded ops, then
// recomputation, and moves to the step before last. A few rounds are enough, because no transform
// makes an earlier one necessary again.
Result<SharedPrepared> prepare_shared(GraphVariants& differentiated, const Plan& plan) {
  constexpr int kMostRounds = 8;
  GraphVariants* graphs = &differentiated;
  bool moves = std::any_of(plan.splits.begin(), plan.splits.end(), is_ahead);
  for (int round = 0; round < kMostRounds; ++round) {
    TESSERA_TRY(ResolvedPlan resolved, resolve(plan, *graphs->graph(), graphs->names()));
    if (!resolved.to_expand.empty()) {
      TESSERA_TRY(graphs, graphs->expanded(resolved.to_expand));
    } else if (!resolved.to_recompute.empty()) {
      TESSERA_TRY(graphs, graphs->recomputed(resolved.to_recompute));
    } else if (std::exchange(moves, false)) {
      TESSERA_TRY(graphs, move_ahead(*graphs, plan));
    } else {
      return SharedPrepared{graphs->graph(), std::move(resolved)};
    }
  }
  TESSERA_CHECK(false, "the graph '{}' still wants transforms after {} rounds",
                differentiated.graph()->name, kMostRounds);
}

Result<Prepared> prepare(Graph differentiated, const Plan& plan) {
  GraphVariants graphs(std::make_shared<const Graph>(std::move(differentiated)));
  TESSERA_TRY(SharedPrepared prepared, prepare_shared(graphs, plan));
  return Prepared{*prepared.graph, std::move(prepared.plan)};
}

}  // namespace tessera
