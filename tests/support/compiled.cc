#include "support/compiled.h"

#include "tessera/models/model.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"

namespace tessera {

Result<CompiledPlan> compile_graph(const Graph& forward, const std::string& plan_text,
                                   const OptimizerSpec& optimizer, bool programs) {
  const bool written = plan_text.find('\n') != std::string::npos;
  TESSERA_TRY(const Plan plan,
              written ? parse_plan(plan_text, "plan.toml") : load_plan(plan_text, forward));
  TESSERA_TRY(Graph graph, training_graph(forward, plan, plan.precision, optimizer));
  TESSERA_TRY(Prepared prepared, prepare(std::move(graph), plan));
  const int64_t ranks = prepared.plan.ranks;
  TESSERA_TRY(Lowering lowering,
              Lowering::create(std::make_shared<const Graph>(std::move(prepared.graph)),
                               std::move(prepared.plan)));
  CompiledPlan out;
  out.lowering = std::make_unique<Lowering>(std::move(lowering));
  for (int rank = 0; programs && rank < static_cast<int>(ranks); ++rank) {
    TESSERA_TRY(Program program, out.lowering->lower(rank));
    out.programs.push_back(std::move(program));
  }
  return out;
}

Result<CompiledPlan> compile_model(const std::string& model, int64_t batch, const std::string& plan,
                                   const OptimizerSpec& optimizer, bool programs) {
  TESSERA_TRY(const Model built, build_model(model, batch));
  return compile_graph(built.graph, plan, optimizer, programs);
}

}  // namespace tessera
