// Finds the rank classes of a lowering (lower.h). Private to tessera/program.
#pragma once

#include <vector>

#include "tessera/program/copies/equal_stages.h"
#include "tessera/program/lower.h"
#include "tessera/program/place_text.h"

namespace tessera {

// Returns whether any rank is at several places.
bool several_places(const ResolvedPlan& plan);

// Returns the rank classes. Two coordinates on an axis are alike if they give equal sizes whatever
// the other coordinates are. A combination of such sets of alike coordinates, one for each axis, is
// a class, and combinations that give equal sizes are joined into one class. A rank at several
// places is a class by itself.
// `copied`: the places that are copies; null: none. Sets `of_rank` as Lowering::roles does.
std::vector<RankClass> find_roles(const InstantiateInput& in, const CopiedPlaces* copied,
                                  std::vector<int32_t>& of_rank);

}  // namespace tessera
