// The text of a model in commands that plan, price or show it (models/planning_model.h).
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera::cli {

// Returns the text with which the model is built, and prints on standard error what the answer that
// follows is only near to ("approximate: logits are not capped") and a long length of sequences. A
// command calls this once for each text that its user gives.
Result<std::string> planned_model(std::string_view text);

}  // namespace tessera::cli
