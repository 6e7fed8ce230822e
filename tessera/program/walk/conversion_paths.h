// Conversion paths. A path is the cheapest way of a tensor from one layout into another at a place.
// It is found once for all places whose meshes have equal axes, which the meshes of most stages
// have. Private to tessera/program.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "tessera/plan/resolve/path_cache.h"
#include "tessera/program/walk/facts.h"

namespace tessera {

class ConversionPaths {
 public:
  // `shared`: paths that are shared with other lowerings; null: paths are not shared.
  ConversionPaths(const Facts& facts, PathCache* shared);

  // Returns the path, which is found at the first call. The reference stays valid as long as this
  // object.
  const std::vector<ConversionStep>& find(PlaceId place, TensorId tensor, const Layout& from,
                                          const Layout& to);
  // Returns whether less is sent if the sum is added up in the layout `made`, in which all its
  // terms are made complete, and the sum alone is then brought to where it is needed, instead of
  // each term. Always false unless the sum is a gradient of an activation and no entry of the plan
  // for the backward phase splits it.
  bool moves_once(const Op& sum, const Layout& made);
  // Returns the cost of the path; 0 if the layouts are equal.
  double cost(PlaceId place, TensorId tensor, const Layout& from, const Layout& to);

 private:
  std::vector<ConversionStep> find_anew(PlaceId place, const std::vector<int64_t>& shape,
                                        const Layout& from, const Layout& to) const;

  const Facts& facts_;
  PathCache* shared_;
  std::vector<PlaceId> first_alike_;  // by place: the first one with equal axes
  std::map<std::tuple<PlaceId, std::vector<int64_t>, Layout, Layout>, std::vector<ConversionStep>,
           std::less<>>
      paths_;
};

}  // namespace tessera
