// Makes the graph that a plan can run on. A plan may split a dim that an op kind freezes (layer
// norm over a split hidden dim) or recompute activations; both are transforms of the graph
// (graph/transform.h), after which the plan is resolved again. Precision is not part of it: it is
// applied to the forward graph, before differentiate.
//
//   TESSERA_TRY(Prepared prepared, prepare(differentiated, plan));   // lower(prepared.graph,
//   prepared.plan, rank)
#pragma once

#include "tessera/plan/plan.h"

namespace tessera {

struct Prepared {
  Graph graph;
  ResolvedPlan plan;  // of that graph; nothing left to expand or to recompute
};
Result<Prepared> prepare(const Graph& differentiated, const Plan& plan);

}  // namespace tessera
