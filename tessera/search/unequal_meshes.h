// Finds pipelines whose stages have unequal numbers of devices, and in which devices may stay
// unused. The grid of degrees lacks such pipelines. The search starts from choices of the grid that
// promise a faster step than the best of the grid: their work, divided among all devices, plus the
// bubble of so many stages would take less time.
//
//   std::vector<PlanCandidate> more = unequal_meshes(search, ranking, space, ranked);
//
// Given a number of stages, a number of micro-batches, and the dims of a ranked choice, an exact
// dynamic program over (stage, units before it, devices before it) finds the borders between stages
// and the sub-meshes. It minimises the time of the slowest stage, and among equal results the sum
// of all stages' times. A stage's time is that of its passes of all micro-batches plus the sums of
// gradients over its replicas. A stage's units must fit its devices' memory. A sub-mesh has a
// number of replicas and a number of devices inside each replica, which are on one node. Work:
// stages * units^2 * devices * sub-meshes, for each of at most kMeshQuestions starting choices.
#pragma once

#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/ranking.h"

namespace tessera {

inline constexpr size_t kMeshQuestions = 6;
inline constexpr int64_t kMostMeshDevices = 64;  // clusters with more devices are not searched

// Returns candidates. Returns none if the question excludes unequal meshes: `--fix meshes=equal`,
// one stage, several chunks.
std::vector<PlanCandidate> unequal_meshes(PlanSearch& search, Ranking& ranking, const Space& space,
                                          const std::vector<PlanCandidate>& ranked);

}  // namespace tessera
