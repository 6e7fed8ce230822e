// A check of whether a graph can be executed in the micro-batches that a plan asks for.
#pragma once

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// Checks the micro-batches. Errors, with the line of the key: no tensor has the dim that
// micro-batches cut, a tensor has fewer elements along it, tensors of several sizes do not divide,
// or a tensor that rests from step to step has the dim.
Status check_micro_batches(const Plan& plan, const Graph& graph);

}  // namespace tessera
