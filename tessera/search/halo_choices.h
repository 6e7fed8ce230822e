// Edits how halos are treated: ops compute their interior first, while halos arrive, or one wider
// halo is exchanged for several neighbouring ops (plan/halos.h). Few plans have halos, so a search
// tries these edits on choices that are fast already; they are no dimension of a space.
//
//   for (const Choice& edit : halo_edits(best, forward, units, question)) ...
#pragma once

#include <vector>

#include "tessera/search/choice.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns what a question fixes with `rims` and `halo_layers`; the default where it fixes nothing.
HaloChoice fixed_halos(const PlanQuestion& question);

// Returns whether some op of the model reads its neighbours' elements where it is cut, and the
// search may choose how to treat these halos.
bool may_choose_halos(const Graph& forward, const PlanQuestion& question);

// Returns the choice with interiors first, or no longer so; with each halo exchanged for one op
// more or less; and with both. Also returns it with wider halos in the last 1, 2, 4, ... of the
// model's `units` only, whose maps are small (`units` = 0: without these). Edits that the question
// does not allow are left out. Empty if no dim with halos is cut.
std::vector<Choice> halo_edits(const Choice& from, const Graph& forward, size_t units,
                               const PlanQuestion& question);

}  // namespace tessera
