// Finds paths between layouts and keeps them by axes, shape and the two layouts.
#include "tessera/program/walk/conversion_paths.h"

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/program/walk/needs.h"

namespace tessera {

ConversionPaths::ConversionPaths(const Facts& facts, PathCache* shared)
    : facts_(facts), shared_(shared) {
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
    it = paths_.emplace(std::make_tuple(alike, shape, from, to), find_anew(place, shape, from, to))
             .first;
  }
  return it->second;
}

std::vector<ConversionStep> ConversionPaths::find_anew(PlaceId place,
                                                       const std::vector<int64_t>& shape,
                                                       const Layout& from, const Layout& to) const {
  const Mesh& mesh = facts_.mesh(place);
  return shared_ != nullptr ? shared_->find(from, to, mesh, shape)
                            : conversion_path(from, to, mesh, shape);
}

bool ConversionPaths::moves_once(const Op& sum, const Layout& made) {
  if (!is_sum_of_terms(sum) || sum.phase != Phase::kBackward || sum.inputs.size() < 2) return false;
  if (!made.complete() || facts_.graph().is_parameter_gradient(sum.outputs[0])) return false;
  const auto entries = [&](const DimSplit& split) {
    return split.entry >= 0 &&
           facts_.plan().plan.splits[static_cast<size_t>(split.entry)].phase == Phase::kBackward;
  };
  if (std::ranges::any_of(facts_.op_plan(sum).dims, entries)) return false;
  const auto& path = find(facts_.place_of(sum), sum.inputs[0], made, need_of(facts_, sum, 0));
  return std::ranges::any_of(path, [](const ConversionStep& step) { return !step.slice; });
}

double ConversionPaths::cost(PlaceId place, TensorId tensor, const Layout& from, const Layout& to) {
  if (from == to) return 0;
  return path_cost(from, find(place, tensor, from, to), facts_.mesh(place), facts_.shape(tensor));
}

}  // namespace tessera
