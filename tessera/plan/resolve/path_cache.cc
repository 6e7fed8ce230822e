#include "tessera/plan/resolve/path_cache.h"

#include <utility>

namespace tessera {
namespace {

// Returns the layout with each axis replaced by its number in `numbers`.
Layout renumbered(Layout layout, const std::vector<AxisId>& numbers) {
  for (Axes& dim : layout.shards) {
    for (AxisId& axis : dim) axis = numbers[axis.index()];
  }
  for (AxisId& axis : layout.partial) axis = numbers[axis.index()];
  for (AxisPin& pin : layout.at) pin.axis = numbers[pin.axis.index()];
  return layout;
}

}  // namespace

std::vector<ConversionStep> PathCache::find(const Layout& from, const Layout& to, const Mesh& mesh,
                                            const std::vector<int64_t>& shape) {
  if (from == to) return {};
  std::vector<int64_t> sizes;
  std::vector<AxisId> own;                        // axes of the mesh that take part
  std::vector<AxisId> numbers(mesh.axes.size());  // by axis of the mesh: its index in `own`
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    const AxisId axis(a);
    if (!from.uses(axis) && !to.uses(axis)) continue;
    numbers[a] = AxisId(own.size());
    own.push_back(axis);
    sizes.push_back(mesh.axis(axis).size);
  }
  // The number of ranks is part of the key only if a layout has pins, because the price of an
  // exchange to or from one coordinate depends on it (elements_after in layout.cc).
  const int64_t ranks = from.at.empty() && to.at.empty() ? 0 : mesh.size();
  Key key{std::move(sizes), ranks, shape, renumbered(from, numbers), renumbered(to, numbers)};
  auto known = paths_.find(key);
  if (known == paths_.end()) {
    if (paths_.size() >= most_) paths_.clear();
    auto path = conversion_path(from, to, mesh, shape);
    for (ConversionStep& step : path) {
      for (AxisId& axis : step.axes) axis = numbers[axis.index()];
      step.to = renumbered(std::move(step.to), numbers);
    }
    known = paths_.emplace(std::move(key), std::move(path)).first;
  }
  std::vector<ConversionStep> out = known->second;
  for (ConversionStep& step : out) {
    for (AxisId& axis : step.axes) axis = own[axis.index()];
    step.to = renumbered(std::move(step.to), own);
  }
  return out;
}

}  // namespace tessera
