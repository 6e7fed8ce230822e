// Paths between layouts, remembered by axes, shape and both layouts.
#include "tessera/program/walk/conversion_paths.h"

#include <algorithm>

namespace tessera {

ConversionPaths::ConversionPaths(const Facts& facts) : facts_(facts) {
  const std::vector<Place>& places = facts.plan().places;
  for (const Place& place : places) {
    const auto alike = std::ranges::find_if(
        places, [&](const Place& other) { return other.mesh.axes == place.mesh.axes; });
    first_alike_.emplace_back(static_cast<size_t>(alike - places.begin()));
  }
}

const std::vector<ConversionStep>& ConversionPaths::find(PlaceId place, TensorId tensor,
                                                         const Layout& from, const Layout& to) {
  const std::vector<int64_t>& shape = facts_.shape(tensor);
  const PlaceId alike = first_alike_[place.index()];
  auto it = paths_.find(std::tie(alike, shape, from, to));
  if (it == paths_.end()) {
    it = paths_
             .emplace(std::make_tuple(alike, shape, from, to),
                      conversion_path(from, to, facts_.mesh(place), shape))
             .first;
  }
  return it->second;
}

double ConversionPaths::cost(PlaceId place, TensorId tensor, const Layout& from, const Layout& to) {
  if (from == to) return 0;
  return path_cost(from, find(place, tensor, from, to), facts_.mesh(place), facts_.shape(tensor));
}

}  // namespace tessera
