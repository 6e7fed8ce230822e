#include "tessera/program/crossing.h"

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/plan/reshard.h"

namespace tessera {
namespace {

bool axes_match(const Mesh& a, const Mesh& b) {
  return std::equal(
      a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(),
      [](const MeshAxis& x, const MeshAxis& y) { return x.name == y.name && x.size == y.size; });
}

// Is every piece of `layout` a part of one of `whole`?
bool cuts_further(const Layout& layout, const Layout& whole) {
  for (size_t d = 0; d < whole.shards.size(); ++d) {
    const Axes &axes = layout.shards[d], &outer = whole.shards[d];
    if (outer.size() > axes.size() || !std::equal(outer.begin(), outer.end(), axes.begin()))
      return false;
    if (!outer.empty() && layout.grain[d] != whole.grain[d]) return false;
  }
  return true;
}

}  // namespace

bool share_ranks(const Mesh& a, const Mesh& b) {
  Axes axes;
  for (size_t i = 0; i < a.axes.size(); ++i) axes.emplace_back(i);
  const std::vector<int> ranks = a.group(std::vector<int64_t>(a.axes.size(), 0), axes);
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return b.contains(rank); });
}

Layout shared_landing(const Layout& need, const Mesh& mesh, const std::vector<int64_t>& shape) {
  Axes whole_over;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (mesh.axes[a].size > 1 && !need.uses(AxisId(a))) whole_over.emplace_back(a);
  }
  // The rank at the origin has the largest piece of every uneven cut.
  const std::vector<int64_t> origin(mesh.axes.size(), 0);
  Layout best = need;
  int64_t least = region_of(need, mesh, shape, origin).volume();
  for (size_t d = 0; d < shape.size() && !whole_over.empty(); ++d) {
    Layout cut = need;
    cut.shards[d].insert(cut.shards[d].end(), whole_over.begin(), whole_over.end());
    const int64_t share = region_of(cut, mesh, shape, origin).volume();
    if (share >= least) continue;
    least = share;
    best = std::move(cut);
  }
  return normalise(std::move(best), mesh, shape);
}

Layout arriving_layout(std::string_view resharding, const Mesh& from_mesh, const Layout& from,
                       const Mesh& to_mesh, const Layout& need, const std::vector<int64_t>& shape) {
  if (resharding == "direct" || share_ranks(from_mesh, to_mesh)) return need;
  if (resharding == "gather" || !axes_match(from_mesh, to_mesh))
    return shared_landing(need, to_mesh, shape);
  return cuts_further(from, need) ? from : need;
}

std::shared_ptr<const CrossRoutes> plan_routes(const Mesh& from_mesh, const Layout& from,
                                               const Mesh& to_mesh, const Layout& to,
                                               const std::vector<int64_t>& shape) {
  constexpr int64_t kMostPairs = int64_t{1} << 22;
  if (axes_match(from_mesh, to_mesh) || share_ranks(from_mesh, to_mesh)) return nullptr;
  if (from_mesh.size() * to_mesh.size() > kMostPairs) return nullptr;
  ReshardOptions options;
  options.order = ReshardOrder::kGenerated;
  options.way = ReshardWay::kSendRecv;
  const auto plan = reshard(reshard_side(from_mesh, from, shape, 1),
                            reshard_side(to_mesh, to, shape, 1), options);
  TESSERA_CHECK(plan.has_value(), "{}", plan.error().message);
  CrossRoutes routes;
  for (const ReshardStep& step : plan->steps) {
    routes.push_back({step.sender, step.receivers[0], step.region});
  }
  std::stable_sort(routes.begin(), routes.end(),
                   [](const CrossRoute& a, const CrossRoute& b) { return a.to < b.to; });
  return std::make_shared<const CrossRoutes>(std::move(routes));
}

}  // namespace tessera
