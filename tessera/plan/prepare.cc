#include "tessera/plan/prepare.h"

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/transform.h"

namespace tessera {

Result<Graph> training_graph(const Graph& forward, const Plan& plan, Precision precision,
                             OptimizerSpec optimizer) {
  if (precision.compute == DType::kFloat16 && !precision.loss_scale) precision.loss_scale.emplace();
  const bool exact =
      std::any_of(forward.tensors().begin(), forward.tensors().end(), [](const Tensor& tensor) {
        return tensor.role == Role::kParameter && tensor.dtype == DType::kFloat64;
      });
  if (exact) {
    const std::optional<LossScale> scale = precision.loss_scale;
    precision = {};
    precision.loss_scale = scale;
  }
  optimizer.precision = precision;
  if (precision.parameter && !precision.compute) precision.compute = DType::kFloat32;
  TESSERA_TRY(const Graph shaped,
              shape_forward(forward, plan, precision.compute, precision.parameter));
  return differentiate(shaped, optimizer);
}

Result<Prepared> prepare(Graph differentiated, const Plan& plan) {
  // Expansions first, so that clones are of expanded ops. Each round frees dims for good; a few are
  // enough.
  constexpr int kMostRounds = 8;
  Prepared prepared;
  prepared.graph = std::move(differentiated);
  for (int round = 0; round < kMostRounds; ++round) {
    TESSERA_TRY(prepared.plan, resolve(plan, prepared.graph));
    if (!prepared.plan.to_expand.empty()) {
      TESSERA_TRY(prepared.graph, expand_ops(prepared.graph, prepared.plan.to_expand));
    } else if (!prepared.plan.to_recompute.empty()) {
      TESSERA_TRY(prepared.graph, recompute_ops(prepared.graph, prepared.plan.to_recompute));
    } else {
      return prepared;
    }
  }
  TESSERA_CHECK(false, "the graph '{}' still wants transforms after {} rounds", prepared.graph.name,
                kMostRounds);
}

}  // namespace tessera
