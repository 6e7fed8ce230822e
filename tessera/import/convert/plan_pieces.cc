#include "tessera/import/convert/plan_pieces.h"

#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/state/move.h"

namespace tessera {

Result<PlanPieces> pieces_of(const std::string& plan, const std::string& model) {
  PlanPieces held;
  if (plan.empty()) return held;
  Compiler compiler;
  CompileTexts texts;
  texts.model = model;
  texts.plan = plan;
  TESSERA_TRY(const Compiled compiled, compiler.compile(texts));
  TESSERA_TRY(const PlanText loaded,
              load_plan_text(plan, compiled.model->graph, "", DType::kFloat32));
  held.text = loaded.text;
  held.ranks = compiled.ranks();
  std::vector<Program> programs;
  for (int rank = 0; rank < compiled.ranks(); ++rank) {
    TESSERA_TRY(Program program, compiled.lowering->lower(rank, /*offsets=*/false));
    programs.push_back(std::move(program));
  }
  TESSERA_TRY(const std::vector<RestingTensor> resting, resting_state(compiled.graph(), programs));
  for (const RestingTensor& one : resting) held.regions[one.name] = one.regions;
  return held;
}

}  // namespace tessera
