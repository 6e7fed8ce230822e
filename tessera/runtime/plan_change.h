// A change of the plan between two steps of a run, as users write it.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

// After so many steps the run goes on under another plan.
struct PlanChange {
  int64_t after = 0;  // at least 1
  std::string plan;   // as RUN.toml's `plan`
};
// Parses "50:PLAN". Errors: another form.
Result<PlanChange> parse_plan_change(const std::string& text);

}  // namespace tessera
