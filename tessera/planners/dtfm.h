// The planner dtfm: DT-FM's scheduler (published/dtfm.h) on Tessera's costs. All devices form equal
// groups, one for each stage of a pipeline; the members of a group are replicas. For each number of
// stages the published score chooses the groups, the order of the stages and which replica sends to
// which: all partitions are tried where they are few, else the genetic search. The programs then
// decide the number of stages, micro-batches, recomputation and schedule.
//
//   const PlanAnswer answer = find_by_dtfm(question).value();
#pragma once

#include "tessera/search/plan_search.h"

namespace tessera {

// Answers a question. Errors: those of find_plan; something is fixed that the space does not have;
// more devices than kMostLinkedDevices.
Result<PlanAnswer> find_by_dtfm(const PlanQuestion& question);

}  // namespace tessera
