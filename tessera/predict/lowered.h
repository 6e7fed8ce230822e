// Lowers expressed rows to the programs that would run: model, plan and the lowering of both.
#pragma once

#include <memory>

#include "tessera/compile/compile.h"
#include "tessera/predict/express.h"

namespace tessera {

// Lowers a row. Neighbours that have model, batch and precision in common share what the compiler
// keeps. Errors: those of the model's text, the plan and the lowering.
Result<std::unique_ptr<Lowering>> lower_row(Compiler& compiler, const Expressed& row,
                                            const CompileOptions& options = {});

}  // namespace tessera
