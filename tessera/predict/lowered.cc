#include "tessera/predict/lowered.h"

namespace tessera {

Result<std::unique_ptr<Lowering>> lower_row(Compiler& compiler, const Expressed& row,
                                            const CompileOptions& options) {
  TESSERA_TRY(const Plan plan, parse_plan(row.plan, "<row>"));
  TESSERA_TRY(const auto model, compiler.model(row.model, row.batch));
  return compiler.lower(forward_of(model), plan, options);
}

}  // namespace tessera
