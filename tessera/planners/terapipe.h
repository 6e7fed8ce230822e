// Implements TeraPipe's planner on Tessera's costs (docs/strategies/terapipe.md). Slices of a
// sequence go through a pipeline one after the other. The planner also chooses tensor parallelism,
// replicas, micro-batches and recomputation. slicer.h finds the slices.
//
//   const PlanAnswer answer = find_by_terapipe(question).value();
#pragma once

#include "tessera/planners/slicer.h"
#include "tessera/search/plan_search.h"

namespace tessera {

// Answers a question. Errors: a model without a causal dim `seq` in every attention, a schedule of
// other pipelines, and those of PlanSearch.
Result<PlanAnswer> find_by_terapipe(const PlanQuestion& question);

}  // namespace tessera
