// All regular layouts of a tensor on a mesh, for exhaustive tests.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tessera/plan/layout/layout.h"

namespace tessera {

// Returns the layouts in which each axis of the mesh is whole, partial, or cuts a dim, in all
// orders. All grains are 1.
inline std::vector<Layout> all_layouts(const Mesh& mesh, size_t rank) {
  std::vector<Layout> out;
  Axes order;
  for (size_t i = 0; i < mesh.axes.size(); ++i) order.emplace_back(i);
  const std::function<void(size_t, Layout)> place = [&](size_t next, const Layout& layout) {
    if (next == order.size()) {
      out.push_back(layout);
      return;
    }
    place(next + 1, layout);
    for (size_t d = 0; d < rank; ++d) {
      Layout cut = layout;
      cut.shards[d].push_back(order[next]);
      place(next + 1, cut);
    }
    Layout parts = layout;
    parts.partial.push_back(order[next]);
    std::sort(parts.partial.begin(), parts.partial.end());
    place(next + 1, parts);
  };
  do {
    place(0, Layout::whole(rank));
  } while (std::next_permutation(order.begin(), order.end()));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Returns whether conversion_path promises to convert the pair: parts become complete or stay.
inline bool convertible(const Layout& from, const Layout& to) {
  return to.complete() || to.partial == from.partial;
}

}  // namespace tessera
