// Finds pipelines through which slices of the sequence go one after the other (slicer.h). It slices
// ranked pipelines that are slow because of their bubble, namely those that with a much smaller
// bubble would be faster than the best ranked choice.
//
//   std::vector<PlanCandidate> more = sliced_pipelines(search, ranking, ranked);
#pragma once

#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/ranking.h"

namespace tessera {

// Returns whether the question asks for slices only: `--fix slices=4`, or a schedule of slices.
bool asks_for_slices(const PlanQuestion& question);

// Returns sliced candidates. If there are none, for example because the model's sequences cannot be
// sliced, sets `refusal` to the reason, if any is known.
std::vector<PlanCandidate> sliced_pipelines(PlanSearch& search, Ranking& ranking,
                                            const std::vector<PlanCandidate>& ranked,
                                            std::string& refusal);

}  // namespace tessera
