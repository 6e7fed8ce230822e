// Paths between layouts, remembered by place, shape and both layouts.
#include "tessera/program/walk/conversion_paths.h"

namespace tessera {

const std::vector<ConversionStep>& ConversionPaths::find(PlaceId place, TensorId tensor,
                                                         const Layout& from, const Layout& to) {
  const std::vector<int64_t>& shape = facts_.shape(tensor);
  auto it = paths_.find(std::tie(place, shape, from, to));
  if (it == paths_.end()) {
    it = paths_
             .emplace(std::make_tuple(place, shape, from, to),
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
