// Offers tensors that rest in the host's memory. How much rests there is a level of a choice
// (offload_levels.h), as recomputation is.
//
//   add_offloaded(question, ranked);      // choices that fit with a level, beside those without one
//
// A step is never shorter for a level, so a choice needs one only if it does not fit without. The
// level's bounds on time and memory cost nothing. Only a choice that is about to be simulated is
// priced with its level (Ranking::refine).
#pragma once

#include <vector>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Adds to the ranked choices those with a level that fit with it, are better by formula than without
// it, and better than all that fit: where time is asked for, choices that do not fit, each with its
// least level that suffices. If the question fixes a level, gives all
// choices that one. Machines whose devices are the host's own cores are left out, because they gain
// nothing.
void add_offloaded(const PlanQuestion& question, std::vector<PlanCandidate>& ranked);

}  // namespace tessera
