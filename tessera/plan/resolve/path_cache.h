// A cache of conversion paths (layout.h) for one search over plans. Plans that differ only in some
// degrees of parallelism have most conversions in common. A path depends only on the two layouts,
// the shape and the sizes of the axes that the layouts use. A cached path therefore also serves a
// mesh whose other axes differ, and an answer does not depend on earlier questions.
//
//   PathCache cache;
//   cache.find(from, to, mesh, shape);      // equal to conversion_path(from, to, mesh, shape)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "tessera/plan/layout/layout.h"

namespace tessera {

class PathCache {
 public:
  // Makes a cache that drops all its paths as soon as it has `most` of them and needs another.
  explicit PathCache(size_t most = 20000) : most_(most) {}

  std::vector<ConversionStep> find(const Layout& from, const Layout& to, const Mesh& mesh,
                                   const std::vector<int64_t>& shape);
  size_t size() const { return paths_.size(); }

 private:
  // The key of a path: the sizes of the axes that the layouts use; the number of ranks of the mesh,
  // or 0 if it makes no difference; the shape; `from` and `to`, whose axes are renumbered as
  // indices into the sizes.
  using Key = std::tuple<std::vector<int64_t>, int64_t, std::vector<int64_t>, Layout, Layout>;
  size_t most_;
  std::map<Key, std::vector<ConversionStep>> paths_;
};

}  // namespace tessera
