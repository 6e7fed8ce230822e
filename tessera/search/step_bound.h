// Computes a time that no plan's step can beat under the simulator. A plan cuts ops and places the
// pieces; it neither leaves work out nor makes a piece more efficient than the best shape
// (OpCosts::least_s), and a device computes one piece at a time. So
//   step >= sum over ops of the least time of the whole op / number of devices
// Communication, bubbles, memory and what is computed again only add to it. Where devices are of
// several kinds, a device counts as often as it is faster than the first kind, for the op for which
// it is faster most.
#pragma once

#include <optional>

#include "tessera/search/fold.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns the bound. `fold`: of the model with the whole batch. Returns nothing where prices are
// measured (a machine with a profile), where a given part of the plan may change the work, and
// where the serial plan is refused.
std::optional<double> least_step_s(const PlanQuestion& question, const Fold& fold);

}  // namespace tessera
