// Makes the graph that a plan can run on. A plan may split a dim that an op kind freezes (layer
// norm over a split hidden dim) or recompute activations; both are transforms of the graph
// (graph/transform.h), after which the plan is resolved again. Precision is not part of it: it is
// applied to the forward graph, before differentiate.
//
//   TESSERA_TRY(Prepared prepared, prepare(differentiated, plan));   // lower(prepared.graph,
//   prepared.plan, rank)
#pragma once

#include "tessera/graph/builder.h"
#include "tessera/plan/plan.h"

namespace tessera {

// The graph that is trained: the forward graph in the dtypes of `precision`, its backward and
// update ops. Computing in float16 without a word on the loss scale means a dynamic one. In a
// float64 model only the loss scale is applied: such runs are exact references.
Result<Graph> training_graph(const Graph& forward, Precision precision, OptimizerSpec optimizer);

struct Prepared {
  Graph graph;
  ResolvedPlan plan;  // of that graph; nothing left to expand or to recompute
};
Result<Prepared> prepare(const Graph& differentiated, const Plan& plan);

}  // namespace tessera
