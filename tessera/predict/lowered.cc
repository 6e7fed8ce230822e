#include "tessera/predict/lowered.h"

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/plan/prepare.h"

namespace tessera {

Result<std::unique_ptr<Lowering>> lower_training(const std::string& model_spec, int64_t batch,
                                                 const std::string& plan_text) {
  TESSERA_TRY(const Model model, build_model(model_spec, batch));
  TESSERA_TRY(const Plan plan, parse_plan(plan_text, "<row>"));
  TESSERA_TRY(const Graph graph,
              training_graph(model.graph, plan, plan.precision, OptimizerSpec{}));
  TESSERA_TRY(Prepared prepared, prepare(graph, plan));
  auto shared = std::make_shared<const Graph>(std::move(prepared.graph));
  TESSERA_TRY(Lowering lowering, Lowering::create(std::move(shared), std::move(prepared.plan)));
  return std::make_unique<Lowering>(std::move(lowering));
}

}  // namespace tessera
