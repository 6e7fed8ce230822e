// Conversion paths: the cheapest way of a tensor from one layout into another at a place, found
// once for all places whose meshes have equal axes (most stages have such meshes). Private to
// tessera/program.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "tessera/plan/path_cache.h"
#include "tessera/program/walk/facts.h"

namespace tessera {

class ConversionPaths {
 public:
  // `shared`: paths of other programs; null: none.
  ConversionPaths(const Facts& facts, PathCache* shared);

  // Returns the path. The reference stays valid.
  const std::vector<ConversionStep>& find(PlaceId place, TensorId tensor, const Layout& from,
                                          const Layout& to);
  // Returns whether less is sent if the sum, whose terms are all made complete and in layout
  // `made`, is made in that layout too and brought where it is needed once, instead of each term.
  // True only for gradients of activations whose sum is not split by an entry of the plan for the
  // backward phase.
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
