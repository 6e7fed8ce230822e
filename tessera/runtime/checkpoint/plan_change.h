// A change of the plan between two steps of a run, as users write it.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

// Says that the run continues under the plan `plan` after step `after`.
struct PlanChange {
  int64_t after = 0;  // a step, at least 1
  std::string plan;   // as RUN.toml's `plan`
};
// Parses "50:PLAN" (after step 50 follows PLAN). Errors: the text has another form.
Result<PlanChange> parse_plan_change(const std::string& text);

}  // namespace tessera
