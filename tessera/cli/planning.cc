#include "tessera/cli/planning.h"

#include "tessera/graph/builder.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"

namespace tessera::cli {

Result<Graph> training_graph(const Graph& forward) {
  return differentiate(forward, OptimizerSpec{});
}

DType Planned::computes_in() const {
  const DType at_rest = storage_dtype(compute);
  return at_rest == DType::kFloat64 ? at_rest : plan().plan.precision.compute.value_or(at_rest);
}

Result<Planned> make_planned(const std::string& model, const std::string& plan_text, int64_t batch,
                             const std::string& precision) {
  TESSERA_TRY(const DType compute, parse_dtype(precision));
  Planned planned;
  planned.batch = batch;
  planned.compute = compute;
  if (batch == 0) {
    // A plan does not depend on the batch, so it can be read first.
    TESSERA_TRY(const Model smallest, build_model(model, 1));
    TESSERA_TRY(const Plan plan, load_plan(plan_text, smallest.graph));
    planned.batch = smallest_batch(plan);
    planned.batch_is_default = true;
  }
  TESSERA_TRY(planned.model, build_model(model, planned.batch, storage_dtype(compute)));
  TESSERA_TRY(const Plan plan, load_plan(plan_text, planned.model.graph, "", compute));
  TESSERA_TRY(Graph graph,
              tessera::training_graph(planned.model.graph, plan, plan.precision, OptimizerSpec{}));
  TESSERA_TRY(Prepared prepared, prepare(std::move(graph), plan));
  auto shared = std::make_shared<const Graph>(std::move(prepared.graph));
  TESSERA_TRY(Lowering lowering, Lowering::create(std::move(shared), std::move(prepared.plan)));
  planned.lowering = std::make_unique<Lowering>(std::move(lowering));
  return planned;
}

}  // namespace tessera::cli
