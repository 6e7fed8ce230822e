// Edits of how halos are treated: ops compute their interior first, while halos arrive, or one wider halo
// is exchanged for several neighbouring ops (plan/halos.h). Few plans have halos, so a search tries
// these edits on choices that are fast already; they are no dimension of a space.
//
//   for (const Choice& edit : halo_edits(best, forward, units, question)) ...
#pragma once

#include <vector>

#include "tessera/search/choice.h"
#include "tessera/search/question.h"

namespace tessera {

// What a question fixes with `rims` and `halo_layers`; the default where it fixes nothing.
HaloChoice fixed_halos(const PlanQuestion& question);

// Does some op of the model read its neighbours' elements where it is cut, and may the search choose
// what is done about it?
bool may_choose_halos(const Graph& forward, const PlanQuestion& question);

// The choice with interiors first, or no longer so; with a halo for an op more or less; and both.
// Also with wider halos in the last 1, 2, 4, ... of the model's `units` only, whose maps are small
// (`units` = 0: without these). Edits that the question does not allow are left out. Empty if no dim
// with halos is cut.
std::vector<Choice> halo_edits(const Choice& from, const Graph& forward, size_t units,
                               const PlanQuestion& question);

}  // namespace tessera
