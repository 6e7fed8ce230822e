// The islands of a plan with outer steps (outer_steps.h): how many there are, and the plan of one.
//
//   TESSERA_TRY(const Plan island, plan_of_island(plan, 0));   // without the first axis
#pragma once

#include <cstdint>

#include "tessera/plan/plan.h"

namespace tessera {

// Returns the number of islands: the size of the axis; 1 for a plan without outer steps.
int64_t islands(const Plan& plan);
// Returns the plan of one island, which has the other axes and no outer steps. Its ranks are on the
// devices of the island's ranks.
Result<Plan> plan_of_island(const Plan& plan, int64_t island);
// Returns the error of a command that takes no plan with outer steps.
Error refuse_outer_steps(const Plan& plan);
// Checks the invariants. Errors have file:line.
Status check_outer_steps(const Plan& plan);

}  // namespace tessera
