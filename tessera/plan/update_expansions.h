// Updates that a plan takes apart (docs/adr/0036-gradients-by-rows.md). An update is cut as its
// parameter lies, which is how the forward ops read it. If this cuts a dim that the update needs
// whole, and over which its expansion (KindInfo::expandable) sums parts, the update is expanded.
// Private to tessera/plan.
#pragma once

#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// Returns the updates to expand. `ops`: by op of the graph, what the plan's entries say.
std::vector<OpId> updates_to_expand(const Graph& graph, const std::vector<OpPlan>& ops);

}  // namespace tessera
