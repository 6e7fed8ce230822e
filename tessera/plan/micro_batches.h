// A check of whether a graph can be executed in the micro-batches that a plan asks for.
#pragma once

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// Checks that the graph can be cut into the micro-batches of the plan. Errors, with the line of the
// key: no tensor has the dim that micro-batches cut; this dim of a tensor has fewer elements than
// there are micro-batches; tensors have different sizes of this dim that the number of
// micro-batches does not divide; a tensor that is kept from step to step has this dim.
Status check_micro_batches(const Plan& plan, const Graph& graph);

}  // namespace tessera
