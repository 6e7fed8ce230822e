// Finds pipelines through which slices of the sequence go one after the other (slicer.h). They are
// sought around ranked pipelines that are slow because of their bubble: without it the step must be
// faster than the best of the ranked choices.
//
//   std::vector<PlanCandidate> more = sliced_pipelines(search, ranking, ranked);
#pragma once

#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/ranking.h"

namespace tessera {

// Returns whether the question asks for slices only: `--fix slices=4`, or a schedule of slices.
bool asks_for_slices(const PlanQuestion& question);

// Returns sliced candidates; none, with the reason in `refusal`, if the model's sequences cannot be
// sliced.
std::vector<PlanCandidate> sliced_pipelines(PlanSearch& search, Ranking& ranking,
                                            const std::vector<PlanCandidate>& ranked,
                                            std::string& refusal);

}  // namespace tessera
