// What a search tries about the halos of dims that are cut: ops that compute their interior first, while
// halos arrive, and neighbouring ops for which one wider halo is exchanged (plan/halos.h). Halos are
// a part of few plans, so these are edits of choices that are fast already, and axes of no space.
//
//   for (const Choice& edit : halo_edits(best, forward, units, question)) ...
#pragma once

#include <vector>

#include "tessera/search/planner.h"

namespace tessera {

// What a question fixes with `rims` and `halo_layers`; the default where it fixes nothing.
HaloChoice fixed_halos(const PlanQuestion& question);

// Does some op of the model read its neighbours' elements where it is cut, and may the search choose
// what is done about it?
bool may_choose_halos(const Graph& forward, const PlanQuestion& question);

// The choice with interiors first, or no longer so; with a halo for an op more or less; and both.
// Also with the wider halos among the last units only, where maps are small: of ever more of the
// `units`; 0: without these. Without those that the question does not allow; empty if no dim with halos is cut.
std::vector<Choice> halo_edits(const Choice& from, const Graph& forward, size_t units,
                               const PlanQuestion& question);

}  // namespace tessera
