// Computes a time that the simulated step of no plan can beat. A plan cuts ops and assigns the
// pieces to devices. It leaves no work out, no piece is more efficient than the best shape
// (OpCosts::least_s), and a device computes one piece at a time. So
//   step >= sum over ops of the least time of the whole op / number of devices
// Communication, bubbles, memory limits and recomputation only make a step longer. If there are
// several kinds of devices, a device counts as many devices of the first kind as its speed is a
// multiple of theirs, for the op where this multiple is largest.
#pragma once

#include <optional>

#include "tessera/search/price/fold.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Returns the bound. `fold`: of the model with the whole batch. Returns nothing if prices are
// measured (the machine has a profile), if the question has a part of a plan, which may change the
// work, or if the plan for one device is refused.
std::optional<double> least_step_s(const PlanQuestion& question, const Fold& fold);

}  // namespace tessera
