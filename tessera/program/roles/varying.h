// Finds what differs between the ranks of a place. Rank classes (roles.h) are made of it. Private to
// tessera/program.
#pragma once

#include <functional>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// A `Varying` is something in the text whose sizes differ between ranks. `sizes` gives the sizes
// for coordinates; only coordinates on `axes` matter.
struct Varying {
  Axes axes;
  std::function<std::vector<int64_t>(const std::vector<int64_t>& coordinates)> sizes;
  // Whether no size is larger at a larger coordinate, as of plain cuts: where two coordinates have
  // equal sizes, those between them have the same.
  bool falls = false;
};

// Returns all that varies at a place. `of_ops` is the place whose ops the place's text has: another
// one if the text is a copy (equal_stages.h). The caller keeps `in` alive.
std::vector<Varying> varying_at(const InstantiateInput& in, PlaceId place, PlaceId of_ops);

}  // namespace tessera
