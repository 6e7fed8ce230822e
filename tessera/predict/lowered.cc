#include "tessera/predict/lowered.h"

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/plan/prepare.h"

namespace tessera {
namespace {

// Does the plan take part in making the graph that is trained, by more than its precision?
bool shapes_forward(const Plan& plan) {
  return !plan.expand.empty() || !plan.reorders.empty() || !plan.loops.empty();
}

}  // namespace

Result<std::unique_ptr<Lowering>> RowLowering::lower(const std::string& model_spec, int64_t batch,
                                                     const std::string& plan_text) {
  TESSERA_TRY(const Plan plan, parse_plan(plan_text, "<row>"));
  const bool known = trained_ != nullptr && model_ == model_spec && batch_ == batch &&
                     precision_ == plan.precision && !shapes_forward(plan);
  if (!known) {
    trained_.reset();
    TESSERA_TRY(const Model model, build_model(model_spec, batch));
    TESSERA_TRY(Graph graph, training_graph(model.graph, plan, plan.precision, OptimizerSpec{}));
    trained_ = std::make_shared<const Graph>(std::move(graph));
  }
  const std::shared_ptr<const Graph> trained = trained_;
  model_ = model_spec;
  batch_ = batch;
  precision_ = plan.precision;
  if (shapes_forward(plan)) trained_.reset();
  TESSERA_TRY(SharedPrepared prepared, prepare_shared(trained, plan));
  TESSERA_TRY(Lowering lowering,
              Lowering::create(std::move(prepared.graph), std::move(prepared.plan)));
  return std::make_unique<Lowering>(std::move(lowering));
}

}  // namespace tessera
