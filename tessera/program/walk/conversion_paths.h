// How a tensor gets from one layout into another at a place: the cheapest path, found once for all
// places whose meshes have equal axes (those of most stages do).
// Private to tessera/program.
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
  // `shared`: of other programs; null: there are none.
  ConversionPaths(const Facts& facts, PathCache* shared);

  // The reference stays valid.
  const std::vector<ConversionStep>& find(PlaceId place, TensorId tensor, const Layout& from,
                                          const Layout& to);
  // Does the sum, whose terms are all made complete and in this layout, send less if it is made in
  // it too and brought where it is needed once, instead of each term? Of activations' gradients,
  // unless an entry of the plan for the backward phase splits the sum.
  bool moves_once(const Op& sum, const Layout& made);
  // 0 if they are equal.
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
