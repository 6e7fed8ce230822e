// Makes edits of a choice that treat halos otherwise: ops compute their interior first, while halos
// arrive, or one wider halo is exchanged for several neighbouring ops (plan/resolve/halos.h). Few plans
// have halos, so these settings are no dimension of the space that a search ranks. The search tries
// the edits only on choices that are fast already.
//
//   for (const Choice& edit : halo_edits(best, forward, units, question)) ...
#pragma once

#include <vector>

#include "tessera/search/choices/choice.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Returns the settings that a question fixes with the keys `rims` and `halo_layers`, and the
// default for a key that is not fixed.
HaloChoice fixed_halos(const PlanQuestion& question);

// Returns whether the model has ops that need halos where they are cut, and the question leaves the
// treatment of halos to the search.
bool may_choose_halos(const Graph& forward, const PlanQuestion& question);

// Returns edits of the choice: with HaloChoice::rims switched, with each halo exchanged for one op
// more or one less, and with both changes. Further edits widen the halos in the last 1, 2, 4, ...
// units only, because maps are small there; `units` is the number of units of the model, and 0 asks
// for none of these edits. Leaves out edits that the question does not allow. Returns none if no
// dim with halos is cut.
std::vector<Choice> halo_edits(const Choice& from, const Graph& forward, size_t units,
                               const PlanQuestion& question);

}  // namespace tessera
