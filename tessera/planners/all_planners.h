// The planners that programs offer: those of the search (search/planner.h), and planners that take
// their decisions as publications say. `auto` plans for clusters of several sites, too (sites.h).
//
//   TESSERA_TRY(const PlanAnswer answer, find_plan(question, "alpa", all_planners()));
#pragma once

#include <vector>

#include "tessera/search/planner.h"

namespace tessera {

const std::vector<Planner>& all_planners();

}  // namespace tessera
