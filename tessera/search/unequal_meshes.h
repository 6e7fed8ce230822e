// Finds pipelines whose stages have unequal numbers of devices, which the grid of degrees lacks,
// and in which devices may stay unused. They are sought around choices of the grid whose work,
// divided among all devices and with the bubble that would be left, promises a faster step than the
// best of the grid.
//
//   std::vector<PlanCandidate> more = unequal_meshes(search, ranking, space, ranked);
//
// Given a number of stages and of micro-batches, and the dims of a ranked choice, an exact program
// over (stage, units before it, devices before it) finds the borders and sub-meshes whose slowest
// stage is the fastest, and of equal ones those of the least sum. A stage's time is that of its
// passes of all micro-batches and of the sums of its replicas; its memory must hold its units. A
// sub-mesh is a number of replicas and of devices inside these, which lie on one node. Work: stages
// * units^2 * devices * sub-meshes, for at most kMeshQuestions questions.
#pragma once

#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/ranking.h"

namespace tessera {

inline constexpr size_t kMeshQuestions = 6;
inline constexpr int64_t kMostMeshDevices = 64;  // more devices are not divided unequally

// Returns candidates; none where the question leaves no room: `--fix meshes=equal`, one stage,
// chunks.
std::vector<PlanCandidate> unequal_meshes(PlanSearch& search, Ranking& ranking, const Space& space,
                                          const std::vector<PlanCandidate>& ranked);

}  // namespace tessera
