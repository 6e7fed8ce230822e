#include "tessera/runtime/checkpoint/plan_change.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/text.h"

namespace tessera {

Result<PlanChange> parse_plan_change(const std::string& text) {
  const size_t colon = text.find(':');
  const auto after = parse_int(text.substr(0, colon));
  if (colon == std::string::npos || !after || *after < 1 || colon + 1 == text.size()) {
    return invalid_input(fmt::format(
        "change: expected STEPS:PLAN, for example '50:data_parallel(2)', found '{}'", text));
  }
  return PlanChange{*after, text.substr(colon + 1)};
}

}  // namespace tessera
