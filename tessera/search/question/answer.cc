#include "tessera/search/question/answer.h"

#include <algorithm>
#include <limits>

namespace tessera {

bool is_better(const PlanAnswer& a, const PlanAnswer& b) {
  if (a.best.has_value() != b.best.has_value()) return a.best.has_value();
  if (a.best) return *a.simulated[*a.best].step_s < *b.simulated[*b.best].step_s;
  const auto least_need = [](const PlanAnswer& answer) {
    double out = std::numeric_limits<double>::infinity();
    for (const PlanCandidate& candidate : answer.simulated) {
      if (candidate.step_s) out = std::min(out, candidate.need_bytes);
    }
    return out;
  };
  return least_need(a) < least_need(b);
}

}  // namespace tessera
