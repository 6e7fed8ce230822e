// Conversion paths (layout.h) that were found before, for the programs of one search: plans that
// differ in some degrees have most of their conversions in common. A cached path is a function of
// the layouts, the shape and the sizes of the axes that take part, so it serves meshes that differ
// elsewhere, too, and an answer does not depend on earlier questions.
//
//   PathCache cache;
//   cache.find(from, to, mesh, shape);      // equal to conversion_path(from, to, mesh, shape)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "tessera/plan/layout.h"

namespace tessera {

class PathCache {
 public:
  // Makes a cache that forgets all paths when it has `most` of them.
  explicit PathCache(size_t most = 20000) : most_(most) {}

  std::vector<ConversionStep> find(const Layout& from, const Layout& to, const Mesh& mesh,
                                   const std::vector<int64_t>& shape);
  size_t size() const { return paths_.size(); }

 private:
  // Sizes of the axes that take part; ranks of the mesh (0: they make no difference); shape; `from`
  // and `to`, with axes numbered in that order.
  using Key = std::tuple<std::vector<int64_t>, int64_t, std::vector<int64_t>, Layout, Layout>;
  size_t most_;
  std::map<Key, std::vector<ConversionStep>> paths_;
};

}  // namespace tessera
