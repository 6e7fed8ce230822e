// Lowers expressed rows (express.h) to the programs that would run.
#pragma once

#include <memory>

#include "tessera/compile/compile.h"
#include "tessera/predict/express.h"

namespace tessera {

// Builds the model of a row, reads its plan and lowers both. If a row has the same model, batch and
// precision as the previous row, the compiler reuses what it has kept. Returns the errors of the
// model spec, the plan and the lowering.
Result<std::unique_ptr<Lowering>> lower_row(Compiler& compiler, const Expressed& row,
                                            const CompileOptions& options = {});

}  // namespace tessera
