#include "tessera/program/crossing.h"

#include <algorithm>
#include <functional>
#include <span>

#include "tessera/base/check.h"
#include "tessera/plan/layout/overlapping_parts.h"
#include "tessera/plan/layout/reshard.h"

namespace tessera {
namespace {

bool axes_match(const Mesh& a, const Mesh& b) {
  return std::equal(
      a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(),
      [](const MeshAxis& x, const MeshAxis& y) { return x.name == y.name && x.size == y.size; });
}

// Returns whether every piece of `layout` is a part of a piece of `whole`.
bool cuts_further(const Layout& layout, const Layout& whole) {
  for (size_t d = 0; d < whole.shards.size(); ++d) {
    const Axes &axes = layout.shards[d], &outer = whole.shards[d];
    if (outer.size() > axes.size() || !std::equal(outer.begin(), outer.end(), axes.begin()))
      return false;
    if (!outer.empty() && layout.grain[d] != whole.grain[d]) return false;
  }
  return true;
}

// Returns, for each axis of the sending mesh that does not cut the tensor, the axis of the
// receiving mesh whose coordinate the sender must have (cross_sources); invalid: there is none.
// This is the axis of the same name and size, with one exception: if that axis cuts the receiver's
// piece, it is an axis along which all receivers need the same piece and senders are cut, if there
// is one of this size.
std::vector<AxisId> followed_axes(const TextCross& cross, const Mesh& from_mesh,
                                  const Mesh& to_mesh) {
  const Layout &from = cross.from.region.layout, &to = cross.to.region.layout;
  const auto twin = [](const Mesh& mesh, const MeshAxis& axis) {
    const AxisId found = mesh.find(axis.name);
    return found.valid() && mesh.axis(found).size == axis.size ? found : AxisId();
  };
  // Receiver's axes along which all receivers need the same piece, while the senders' tensor is
  // cut.
  std::vector<AxisId> replicas;
  for (size_t a = 0; a < to_mesh.axes.size(); ++a) {
    const AxisId there = twin(from_mesh, to_mesh.axes[a]);
    if (!to.shards_over(AxisId(a)) && there.valid() && from.shards_over(there))
      replicas.push_back(AxisId(a));
  }
  std::vector<AxisId> out;
  for (size_t a = 0; a < from_mesh.axes.size(); ++a) {
    AxisId followed = twin(to_mesh, from_mesh.axes[a]);
    if (followed.valid() && !from.shards_over(AxisId(a)) && to.shards_over(followed)) {
      const auto free = std::ranges::find_if(
          replicas, [&](AxisId axis) { return to_mesh.axis(axis).size == from_mesh.axes[a].size; });
      if (free != replicas.end()) {
        followed = *free;
        replicas.erase(free);
      }
    }
    out.push_back(followed);
  }
  return out;
}

// Returns the receivers with each box of at least kLeastCut elements cut into `pieces` along its
// longest dim other than `whole`. Smaller boxes are not cut, because their messages are so short
// that it does not matter which rank sends them.
constexpr int64_t kMostPieces = 4, kLeastCut = int64_t{1} << 14;
ReshardSide in_pieces(const ReshardSide& side, int64_t pieces, std::optional<size_t> whole) {
  ReshardSide out;
  for (const ReshardHolder& holder : side) {
    if (pieces == 1 || holder.box.volume() < kLeastCut) {
      out.push_back(holder);
      continue;
    }
    size_t longest = whole == size_t{0} && holder.box.rank() > 1 ? 1 : 0;
    for (size_t d = 0; d < holder.box.rank(); ++d) {
      if (d != whole && holder.box.dims[d].size > holder.box.dims[longest].size) longest = d;
    }
    for (int64_t i = 0; i < pieces; ++i) {
      out.push_back(holder);
      out.back().box.dims[longest] = split_interval(holder.box.dims[longest], pieces, i);
    }
  }
  return out;
}

// Returns whether some rank sends over a tenth more than it would if all holders of each piece sent
// equal parts of it.
bool is_uneven(const ReshardPlan& plan) {
  return 10 * plan.busiest_bytes > 11 * plan.busiest_bound;
}

// Returns whether two ranks of a mesh with these axes, which are sorted by falling strides, are
// `distance` apart.
bool has_distance(std::span<const MeshAxis> axes, int64_t distance) {
  if (axes.empty()) return distance == 0;
  const MeshAxis& axis = axes.front();
  const auto below = axes.subspan(1);
  int64_t reach = 0;  // of the axes below
  for (const MeshAxis& other : below) reach += (other.size - 1) * other.stride;
  for (int64_t steps = std::max((distance - reach) / axis.stride - 1, 1 - axis.size);
       steps < axis.size && steps * axis.stride <= distance + reach; ++steps) {
    if (has_distance(below, distance - steps * axis.stride)) return true;
  }
  return false;
}

}  // namespace

bool share_ranks(const Mesh& a, const Mesh& b) {
  if (a.axes == b.axes) {
    std::vector<MeshAxis> axes = a.axes;
    std::ranges::sort(axes, std::greater<>(), &MeshAxis::stride);
    return has_distance(axes, b.first_device - a.first_device);
  }
  Axes axes;
  for (size_t i = 0; i < a.axes.size(); ++i) axes.emplace_back(i);
  const std::vector<int> ranks = a.group(std::vector<int64_t>(a.axes.size(), 0), axes);
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return b.contains(rank); });
}

Layout cut_into_shares(const Layout& layout, const Axes& axes, const Mesh& mesh,
                       const std::vector<int64_t>& shape, const Layout* sender) {
  Axes whole_over;
  for (const AxisId axis : axes) {
    if (mesh.axis(axis).size > 1 && !layout.uses(axis)) whole_over.push_back(axis);
  }
  std::stable_sort(whole_over.begin(), whole_over.end(),
                   [&](AxisId a, AxisId b) { return mesh.axis(a).stride < mesh.axis(b).stride; });
  // The rank at the origin has the largest piece of every uneven cut.
  const std::vector<int64_t> origin(mesh.axes.size(), 0);
  Layout best = layout;
  int64_t least = region_of(layout, mesh, shape, origin).volume();
  size_t chosen = 0;
  for (size_t d = 0; d < shape.size() && !whole_over.empty(); ++d) {
    Layout cut = layout;
    cut.shards[d].insert(cut.shards[d].end(), whole_over.begin(), whole_over.end());
    const int64_t share = region_of(cut, mesh, shape, origin).volume();
    const bool within = sender != nullptr && best != layout && 16 * share <= 17 * least &&
                        !sender->shards[d].empty() && sender->shards[chosen].empty();
    if (share >= least && !within) continue;
    least = share;
    chosen = d;
    best = std::move(cut);
  }
  return normalise(std::move(best), mesh, shape);
}

Layout shared_landing(const Layout& need, const Mesh& mesh, const std::vector<int64_t>& shape,
                      const Layout* sender) {
  Axes all;
  for (size_t a = 0; a < mesh.axes.size(); ++a) all.emplace_back(a);
  return cut_into_shares(need, all, mesh, shape, sender);
}

std::vector<Layout> gather_steps(const Layout& landing, const Layout& need, const Mesh& mesh,
                                 const std::vector<int64_t>& shape) {
  const auto nearer = [&](AxisId a, AxisId b) { return mesh.axis(a).stride < mesh.axis(b).stride; };
  std::vector<Layout> steps;
  Layout at = landing;
  for (size_t d = 0; d < need.shards.size() && cuts_further(landing, need); ++d) {
    const Axes &shares = landing.shards[d], &kept = need.shards[d];
    if (!std::is_sorted(shares.begin() + kept.size(), shares.end(), nearer)) continue;
    while (at.shards[d].size() > kept.size() + 1) {
      at.shards[d].pop_back();
      steps.push_back(normalise(at, mesh, shape));
    }
  }
  steps.push_back(need);
  return steps;
}

std::optional<Axes> gathered_axes(const Layout& cut, const Layout& whole) {
  if (!cut.complete() || !whole.complete() || cut.at != whole.at || !cut.windows.empty() ||
      !whole.windows.empty() || !cuts_further(cut, whole))
    return std::nullopt;
  std::optional<Axes> axes;
  for (size_t d = 0; d < cut.shards.size(); ++d) {
    const Axes &finer = cut.shards[d], &kept = whole.shards[d];
    if (finer == kept) continue;
    if (axes) return std::nullopt;  // two dims change, which one gather cannot do
    axes = Axes(finer.begin() + static_cast<std::ptrdiff_t>(kept.size()), finer.end());
  }
  return axes;
}

std::optional<StepPiece> first_chunk(const Layout& from, const Layout& landing,
                                     const std::vector<Layout>& spread, const Mesh& mesh,
                                     const std::vector<int64_t>& shape, int64_t bytes_per_element) {
  // A chunk has at least kLeastBytes, because smaller messages are not worth their latency. There
  // are at most kMostChunks, because with 8 chunks only 1/8 of the gather is not hidden.
  constexpr int64_t kMostChunks = 8, kLeastBytes = int64_t{1} << 20;
  const std::vector<int64_t> origin(mesh.axes.size(), 0);
  const Box share = region_of(landing, mesh, shape, origin);
  const int64_t chunks = std::min(kMostChunks, share.volume() * bytes_per_element / kLeastBytes);
  if (chunks < 2) return std::nullopt;
  const Layout* at = &landing;
  std::vector<bool> gathered(shape.size(), false);
  for (const Layout& step : spread) {
    if (step == *at) continue;
    if (!gathered_axes(*at, step)) return std::nullopt;
    for (size_t d = 0; d < shape.size(); ++d)
      gathered[d] = gathered[d] || step.shards[d] != at->shards[d];
    at = &step;
  }
  if (at == &landing) return std::nullopt;  // nothing is gathered
  for (size_t d = 0; d < shape.size(); ++d) {
    if (gathered[d] || !from.shards[d].empty()) continue;
    if (share.dims[d].size / landing.grain[d] < chunks) continue;
    StepPiece piece;
    piece.dim = d;
    piece.prefix = landing.shards[d].size();
    piece.steps = chunks;
    piece.grain = landing.grain[d];
    return piece;
  }
  return std::nullopt;
}

Layout leaving_layout(const Layout& made, const std::optional<Layout>& need, const Mesh& mesh,
                      const std::vector<int64_t>& shape) {
  Layout complete = completed(made, mesh, shape);
  complete.at.clear();  // not only the ranks at a pinned coordinate get the value, since all send
  complete = normalise(std::move(complete), mesh, shape);
  if (need && need->complete() && need->at.empty()) complete = *need;
  return cut_into_shares(complete, made.partial, mesh, shape);
}

Layout arriving_layout(std::string_view resharding, const Mesh& from_mesh, const Layout& from,
                       const Mesh& to_mesh, Layout need, const std::vector<int64_t>& shape) {
  need.at.clear();  // a tensor that only one coordinate needs arrives at all of them
  if (resharding == "direct" || share_ranks(from_mesh, to_mesh)) return need;
  if (resharding == "gather" || !axes_match(from_mesh, to_mesh))
    return shared_landing(need, to_mesh, shape, &from);
  if (cuts_further(from, need)) return from;
  return cuts_further(need, from) ? need : shared_landing(need, to_mesh, shape, &from);
}

std::shared_ptr<const CrossRoutes> plan_routes(const Mesh& from_mesh, const Layout& from,
                                               const Mesh& to_mesh, const Layout& to,
                                               const std::vector<int64_t>& shape,
                                               std::optional<size_t> chunked) {
  constexpr int64_t kMostPairs = int64_t{1} << 22;
  if (axes_match(from_mesh, to_mesh) && (cuts_further(from, to) || cuts_further(to, from)))
    return nullptr;
  if (share_ranks(from_mesh, to_mesh)) return nullptr;
  if (from_mesh.size() * to_mesh.size() > kMostPairs) return nullptr;
  ReshardOptions options;
  options.order = ReshardOrder::kGenerated;
  options.way = ReshardWay::kSendRecv;
  const ReshardSide senders = reshard_side(from_mesh, from, shape, 1);
  const ReshardSide receivers = reshard_side(to_mesh, to, shape, 1);
  ReshardPlan best;
  for (int64_t pieces = 1; pieces == 1 || (pieces <= kMostPieces && is_uneven(best)); ++pieces) {
    auto plan = reshard(senders, in_pieces(receivers, pieces, chunked), options);
    TESSERA_CHECK(plan.has_value(), "{}", plan.error().message);
    if (pieces == 1 || plan->busiest_bytes < best.busiest_bytes) best = std::move(*plan);
  }
  CrossRoutes routes;
  for (const ReshardStep& step : best.steps) {
    routes.push_back({step.sender, step.receivers[0], step.region});
  }
  std::stable_sort(routes.begin(), routes.end(),
                   [](const CrossRoute& a, const CrossRoute& b) { return a.to < b.to; });
  return std::make_shared<const CrossRoutes>(std::move(routes));
}

TextCross of_size(TextCross cross, bool smaller) {
  if (smaller && cross.smaller_routes) cross.routes = cross.smaller_routes;
  return cross;
}

bool crosses_to_twins(const TextCross& cross, const Mesh& from_mesh, const Mesh& to_mesh) {
  return axes_match(from_mesh, to_mesh) && !cross.routes && cross.from.region == cross.to.region;
}

std::vector<CrossPiece> cross_sources(const TextCross& cross, const Mesh& from_mesh,
                                      const Mesh& to_mesh, const std::vector<int64_t>& whole,
                                      const std::vector<int64_t>& to) {
  const Box need = evaluate(cross.to.region, to_mesh, whole, to);
  std::vector<CrossPiece> out;
  if (need.empty()) return out;
  if (cross.routes) {
    const auto [first, last] = std::equal_range(
        cross.routes->begin(), cross.routes->end(), CrossRoute{0, to_mesh.rank_at(to), {}},
        [](const CrossRoute& a, const CrossRoute& b) { return a.to < b.to; });
    for (auto it = first; it != last; ++it) {
      Box region = intersect(it->region, need);
      if (!region.empty()) out.push_back({from_mesh.coordinates(it->from), std::move(region)});
    }
    return out;
  }
  std::vector<int64_t> source(from_mesh.axes.size(), 0);
  int64_t position = 0;
  for (size_t a = 0; a < to_mesh.axes.size(); ++a)
    position = position * to_mesh.axes[a].size + to[a];
  const std::vector<AxisId> follows = followed_axes(cross, from_mesh, to_mesh);
  for (size_t a = 0; a < from_mesh.axes.size(); ++a) {
    source[a] = follows[a].valid() ? to[follows[a].index()] : position % from_mesh.axes[a].size;
  }
  const Layout& layout = cross.from.region.layout;
  const std::function<void(size_t, size_t, Interval)> descend = [&](size_t dim, size_t level,
                                                                    Interval at) {
    if (dim == whole.size()) {
      out.push_back({source, intersect(region_of(layout, from_mesh, whole, source), need)});
      return;
    }
    if (level == layout.shards[dim].size()) {
      const size_t next = dim + 1;
      const Interval all =
          next < whole.size() ? Interval{0, whole[next] / layout.grain[next]} : Interval{};
      descend(next, 0, all);
      return;
    }
    const AxisId axis = layout.shards[dim][level];
    const int64_t n = from_mesh.axis(axis).size;
    const int64_t grain = layout.grain[dim];
    for (int64_t i = 0; i < n; ++i) {
      const Interval piece = split_interval(at, n, i);
      if (intersect(Interval{piece.begin * grain, piece.size * grain}, need.dims[dim]).empty())
        continue;
      source[axis.index()] = i;
      descend(dim, level + 1, piece);
    }
  };
  const Interval first = whole.empty() ? Interval{} : Interval{0, whole[0] / layout.grain[0]};
  descend(0, 0, first);
  return out;
}

std::vector<std::vector<int64_t>> cross_receivers(const TextCross& cross, const Mesh& from_mesh,
                                                  const Mesh& to_mesh,
                                                  const std::vector<int64_t>& at) {
  const Layout& from = cross.from.region.layout;
  const Layout& to = cross.to.region.layout;
  if (cross.routes) {
    const int64_t rank = from_mesh.rank_at(at);
    std::vector<std::vector<int64_t>> served;
    for (const CrossRoute& route : *cross.routes) {
      if (route.from != rank) continue;
      std::vector<int64_t> coordinates = to_mesh.coordinates(route.to);
      if (served.empty() || served.back() != coordinates) {
        served.push_back(std::move(coordinates));
      }
    }
    return served;
  }
  const std::vector<AxisId> follows = followed_axes(cross, from_mesh, to_mesh);
  std::vector<std::vector<int64_t>> out = {{}};
  for (size_t a = 0; a < to_mesh.axes.size(); ++a) {
    const AxisId here = from_mesh.find(to_mesh.axes[a].name);
    const bool same = here.valid() && from_mesh.axis(here).size == to_mesh.axes[a].size;
    bool pinned = same && !from.shards_over(here) && follows[here.index()] == AxisId(a);
    for (size_t d = 0; same && !pinned && d < from.shards.size(); ++d) {
      if (from.grain[d] != to.grain[d]) continue;
      for (size_t i = 0; i < std::min(from.shards[d].size(), to.shards[d].size()); ++i) {
        const MeshAxis& x = from_mesh.axis(from.shards[d][i]);
        const MeshAxis& y = to_mesh.axis(to.shards[d][i]);
        if (x.name != y.name || x.size != y.size) break;
        if (from.shards[d][i] == here) pinned = true;
      }
    }
    std::vector<std::vector<int64_t>> next;
    for (const std::vector<int64_t>& partial : out) {
      const int64_t own = same ? at[here.index()] : 0;
      for (int64_t i = 0; i < (pinned ? 1 : to_mesh.axes[a].size); ++i) {
        next.push_back(partial);
        next.back().push_back((own + i) % to_mesh.axes[a].size);
      }
    }
    out = std::move(next);
  }
  return out;
}

}  // namespace tessera
