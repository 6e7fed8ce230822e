// Updates that a plan takes apart (docs/adr/0036-gradients-by-rows.md). An update goes as its
// parameter lies, which is how the forward ops read it. Where that cuts a dim that the update needs
// whole, and of which its expansion (KindInfo::expandable) sums parts, the update is expanded. Private
// to tessera/plan.
#pragma once

#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// `ops`: what the plan's entries say, by op of the graph.
std::vector<OpId> updates_to_expand(const Graph& graph, const std::vector<OpPlan>& ops);

}  // namespace tessera
