// Pipelines through which slices of the sequence go one after the other (slicer.h). They are sought
// around ranked pipelines whose bubble is what makes them slow: the step without it must be faster
// than the best of the ranked choices.
//
//   std::vector<PlanCandidate> more = sliced_pipelines(search, ranking, ranked);
#pragma once

#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/ranking.h"

namespace tessera {

// Does the question ask for slices and nothing else: `--fix slices=4`, or a schedule of slices?
bool asks_for_slices(const PlanQuestion& question);

// Without candidates where the model's sequences cannot be sliced; `refusal` then says why.
std::vector<PlanCandidate> sliced_pipelines(PlanSearch& search, Ranking& ranking,
                                            const std::vector<PlanCandidate>& ranked,
                                            std::string& refusal);

}  // namespace tessera
