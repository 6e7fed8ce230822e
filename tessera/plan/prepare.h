// Makes the graph that a plan can run on. A plan may split a dim that an op kind freezes (layer
// norm over a split hidden dim) or recompute activations; both are transforms of the graph
// (graph/transform.h), after which the plan is resolved again. What a plan asks of the forward
// graph (expand, reorder) is done before differentiate; precision after that.
//
//   TESSERA_TRY(Graph forward, transform_forward(model, plan));
//   ... apply_precision, differentiate ...
//   TESSERA_TRY(Prepared prepared, prepare(differentiated, plan));   // lower(prepared.graph,
//   prepared.plan, rank)
#pragma once

#include "tessera/plan/plan.h"

namespace tessera {

struct Prepared {
  Graph graph;
  ResolvedPlan plan;  // of that graph; nothing left to expand or to recompute
};
Result<Graph> transform_forward(const Graph& forward, const Plan& plan);
Result<Prepared> prepare(const Graph& differentiated, const Plan& plan);

}  // namespace tessera
