// From an expressed row to the program that would run: model, plan and what lowering makes of them.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/program/lower.h"

namespace tessera {

// Errors: those of the model spec, the plan and the lowering.
Result<std::unique_ptr<Lowering>> lower_training(const std::string& model, int64_t batch,
                                                 const std::string& plan);

}  // namespace tessera
