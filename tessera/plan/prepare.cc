#include "tessera/plan/prepare.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/transform.h"

namespace tessera {
namespace {

// The widest of the parameters at rest.
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
  // As in automatic mixed precision: gradients of wide parameters are added and summed in their
  // dtype.
  const bool exact = parameter_dtype(forward) == DType::kFloat64;  // as float32, then all at once
  const DType at_rest = exact ? DType::kFloat32 : parameter_dtype(forward);
  if (precision.compute && !precision.gradient)
    precision.gradient = precision.parameter.value_or(at_rest);
  optimizer.precision = precision;
  if (precision.parameter && !precision.compute) precision.compute = DType::kFloat32;
  const auto train = [&](const Graph& model) -> Result<Graph> {
    TESSERA_TRY(const Graph shaped,
                shape_forward(model, plan, precision.compute, precision.parameter));
    return differentiate(shaped, optimizer);
  };
  if (!exact) return train(forward);
  TESSERA_TRY(Graph narrow, train(in_one_dtype(forward, DType::kFloat32)));
  return in_one_dtype(std::move(narrow), DType::kFloat64);
}

namespace {

struct Rounds {
  std::optional<Graph> changed;  // nothing: the plan takes the graph as it is
  ResolvedPlan plan;
};

// Expansions first, so that clones are of expanded ops. Each round frees dims for good; a few are
// enough.
Result<Rounds> transform(const Graph& differentiated, const Plan& plan) {
  constexpr int kMostRounds = 8;
  Rounds out;
  for (int round = 0; round < kMostRounds; ++round) {
    const Graph& graph = out.changed ? *out.changed : differentiated;
    TESSERA_TRY(out.plan, resolve(plan, graph));
    if (!out.plan.to_expand.empty()) {
      TESSERA_TRY(out.changed, expand_ops(graph, out.plan.to_expand));
    } else if (!out.plan.to_recompute.empty()) {
      TESSERA_TRY(out.changed, recompute_ops(graph, out.plan.to_recompute));
    } else {
      return out;
    }
  }
  TESSERA_CHECK(false, "the graph '{}' still wants transforms after {} rounds", differentiated.name,
                kMostRounds);
}

}  // namespace

Result<Prepared> prepare(Graph differentiated, const Plan& plan) {
  TESSERA_TRY(Rounds rounds, transform(differentiated, plan));
  return Prepared{rounds.changed ? std::move(*rounds.changed) : std::move(differentiated),
                  std::move(rounds.plan)};
}

Result<SharedPrepared> prepare_shared(std::shared_ptr<const Graph> differentiated,
                                      const Plan& plan) {
  TESSERA_TRY(Rounds rounds, transform(*differentiated, plan));
  if (rounds.changed) differentiated = std::make_shared<const Graph>(std::move(*rounds.changed));
  return SharedPrepared{std::move(differentiated), std::move(rounds.plan)};
}

}  // namespace tessera
