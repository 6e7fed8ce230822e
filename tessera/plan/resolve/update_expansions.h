// Finds the update ops that a plan expands (docs/adr/0036-gradients-by-rows.md). An update is cut
// in the same way as its parameter, which is cut in the way in which the forward ops read it. If
// this cuts a dim that the update freezes but its expansion frees (KindInfo::expandable), the
// update is replaced by its expansion, which sums parts over the dim. Private to tessera/plan.
#pragma once

#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// Returns the updates to expand. `ops`: by op of the graph, the splits and pins by the
// plan's entries.
std::vector<OpId> updates_to_expand(const Graph& graph, const std::vector<OpPlan>& ops);

}  // namespace tessera
