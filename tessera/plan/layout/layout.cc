#include "tessera/plan/layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <queue>

#include "tessera/base/check.h"
#include "tessera/plan/layout/overlapping_parts.h"

namespace tessera {

Layout Layout::whole(size_t rank) {
  Layout layout;
  layout.shards.resize(rank);
  layout.grain.assign(rank, 1);
  return layout;
}

bool Layout::shards_over(AxisId axis) const {
  return std::any_of(shards.begin(), shards.end(), [&](const Axes& dim) {
    return std::find(dim.begin(), dim.end(), axis) != dim.end();
  });
}

bool Layout::uses(AxisId axis) const {
  return shards_over(axis) || pins(axis) ||
         std::find(partial.begin(), partial.end(), axis) != partial.end();
}

bool Layout::pins(AxisId axis) const {
  return std::any_of(at.begin(), at.end(), [&](const AxisPin& pin) { return pin.axis == axis; });
}

bool Layout::holds_at(const std::vector<int64_t>& coordinates) const {
  return std::all_of(at.begin(), at.end(), [&](const AxisPin& pin) {
    return coordinates[pin.axis.index()] == pin.coordinate;
  });
}

bool parts_overlap(const Layout& layout, size_t dim) {
  const auto is_partial = [&](AxisId axis) {
    return std::find(layout.partial.begin(), layout.partial.end(), axis) != layout.partial.end();
  };
  return layout.window(dim) != nullptr && std::ranges::any_of(layout.shards[dim], is_partial);
}

bool parts_overlap(const Layout& layout) {
  return std::ranges::any_of(layout.windows, [&](const Layout::DimWindow& window) {
    return parts_overlap(layout, window.dim);
  });
}

Axes Layout::axes() const {
  Axes out;
  for (const Axes& dim : shards) out.insert(out.end(), dim.begin(), dim.end());
  std::sort(out.begin(), out.end());
  return out;
}

const Layout::DimWindow* Layout::window(size_t dim) const {
  for (const DimWindow& window : windows) {
    if (window.dim == dim) return &window;
  }
  return nullptr;
}

namespace {

// Calls visit(coordinates) for all coordinates on the axes; those on other axes are 0.
template <class Visit>
void for_each_piece(const Axes& axes, const Mesh& mesh, Visit&& visit) {
  std::vector<int64_t> coordinates(mesh.axes.size(), 0);
  for (;;) {
    visit(std::as_const(coordinates));
    size_t a = 0;
    for (; a < axes.size(); ++a) {
      int64_t& at = coordinates[axes[a].index()];
      if (++at < mesh.axis(axes[a]).size) break;
      at = 0;
    }
    if (a == axes.size()) return;
  }
}

// Returns whether the window of the dim makes no difference, because each rank has the same
// interval of the dim without it.
bool reads_no_halo(const Layout& layout, size_t dim, int64_t size, const Mesh& mesh) {
  bool same = true;
  for_each_piece(layout.shards[dim], mesh, [&](const std::vector<int64_t>& at) {
    same = same && dim_interval(layout, dim, size, mesh, at) ==
                       cut_interval(size, layout.grain[dim], layout.shards[dim], mesh, at);
  });
  return same;
}

}  // namespace

Layout normalise(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape) {
  TESSERA_CHECK(layout.shards.size() == shape.size(), "layout of rank {} for shape of rank {}",
                layout.shards.size(), shape.size());
  const auto trivial = [&](AxisId axis) { return mesh.axis(axis).size == 1; };
  layout.grain.resize(shape.size(), 1);
  for (size_t d = 0; d < shape.size(); ++d) {
    erase_if(layout.shards[d], trivial);
    int64_t pieces = 1;
    for (AxisId axis : layout.shards[d]) pieces *= mesh.axis(axis).size;
    const int64_t grain = std::max<int64_t>(1, layout.grain[d]);
    if (layout.shards[d].empty() || (shape[d] / grain) % pieces == 0) layout.grain[d] = 1;
  }
  std::erase_if(layout.windows, [&](const Layout::DimWindow& window) {
    return layout.shards[window.dim].empty() ||
           reads_no_halo(layout, window.dim, shape[window.dim], mesh);
  });
  std::erase_if(layout.at, [&](const AxisPin& pin) { return shape.empty() || trivial(pin.axis); });
  std::sort(layout.at.begin(), layout.at.end());
  erase_if(layout.partial, trivial);
  for (size_t d = 0; d < shape.size() && !layout.partial.empty(); ++d) {
    if (layout.window(d) != nullptr) continue;
    for (const AxisId axis : layout.shards[d]) erase_value(layout.partial, axis);
  }
  std::sort(layout.partial.begin(), layout.partial.end());
  if (layout.partial.empty()) layout.combiner = Combiner::kSum;
  return layout;
}

Interval cut_interval(int64_t size, int64_t grain, const Axes& axes, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates) {
  Interval interval{0, size / grain};
  for (AxisId axis : axes) {
    interval = split_interval(interval, mesh.axis(axis).size, coordinates[axis.index()]);
  }
  return {interval.begin * grain, interval.size * grain};
}

Interval grown_interval(const std::vector<WindowRead>& grown, int64_t size, const Axes& axes,
                        const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  Interval interval =
      cut_interval(grown.empty() ? size : grown.back().size, 1, axes, mesh, coordinates);
  for (auto read = grown.rbegin(); read != grown.rend(); ++read) interval = read->of(interval);
  return interval;
}

Interval dim_interval(const Layout& layout, size_t dim, int64_t size, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates) {
  const Layout::DimWindow* window = layout.window(dim);
  if (window == nullptr)
    return cut_interval(size, layout.grain[dim], layout.shards[dim], mesh, coordinates);
  return window->read.of(
      grown_interval(window->behind, window->read.size, layout.shards[dim], mesh, coordinates));
}

Layout without_windows(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape) {
  layout.windows.clear();
  return normalise(std::move(layout), mesh, shape);
}

Layout completed(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape) {
  if (parts_overlap(layout)) layout.windows.clear();
  layout.partial.clear();
  return normalise(std::move(layout), mesh, shape);
}

Box region_of(const Layout& layout, const Mesh& mesh, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& coordinates) {
  Box box;
  box.dims.reserve(shape.size());
  if (!layout.holds_at(coordinates)) {
    box.dims.assign(shape.size(), Interval{});
    return box;
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    box.dims.push_back(dim_interval(layout, d, shape[d], mesh, coordinates));
  }
  return box;
}

std::string to_string(const Layout& layout, const Mesh& mesh, const std::vector<Dim>& dims) {
  std::string out = "[";
  for (size_t d = 0; d < layout.shards.size(); ++d) {
    if (d > 0) out += ", ";
    out += d < dims.size() ? dims[d].name : "?";
    out += ": ";
    if (layout.shards[d].empty()) out += "-";
    for (size_t i = 0; i < layout.shards[d].size(); ++i) {
      if (i > 0) out += ".";
      out += mesh.axis(layout.shards[d][i]).name;
    }
    if (layout.window(d) != nullptr) out += " with halo";
  }
  out += "]";
  for (const AxisPin& pin : layout.at)
    out += fmt::format(" at({}: {})", mesh.axis(pin.axis).name, pin.coordinate);
  if (!layout.partial.empty()) {
    out += " partial(";
    for (size_t i = 0; i < layout.partial.size(); ++i) {
      if (i > 0) out += ", ";
      out += mesh.axis(layout.partial[i]).name;
    }
    out += fmt::format(": {})", combiner_name(layout.combiner));
  }
  return out;
}

double cost_by_elements(CollectiveKind kind, int64_t members, int64_t before, int64_t after) {
  const double n = static_cast<double>(members);
  const double held = static_cast<double>(before);
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * (n - 1) / n * held + 1;
    case CollectiveKind::kAllGather: return (n - 1) * held + 1;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll: return (n - 1) / n * held + 1;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce: return held + 1;
    case CollectiveKind::kPermute:
    case CollectiveKind::kExchange: return static_cast<double>(after) + 1;
  }
  return 0;
}

namespace {

int64_t members_of(const Mesh& mesh, const Axes& axes) {
  int64_t n = 1;
  for (AxisId axis : axes) n *= mesh.axis(axis).size;
  return n;
}

void go_to_pins(const Layout& layout, std::vector<int64_t>& coordinates) {
  for (const AxisPin& pin : layout.at) coordinates[pin.axis.index()] = pin.coordinate;
}

// Returns the number of elements that the rank with the largest pieces holds. Its coordinates are 0
// on all axes that are not pinned.
int64_t local_elements(const Layout& layout, const Mesh& mesh, const std::vector<int64_t>& shape) {
  std::vector<int64_t> coordinates(mesh.axes.size(), 0);
  go_to_pins(layout, coordinates);
  return region_of(layout, mesh, shape, coordinates).volume();
}

// Returns the number of elements that the busiest rank of an exchange sends or receives, whichever
// is more.
int64_t busiest_of_exchange(const Layout& from, const Layout& to, const Mesh& mesh,
                            const std::vector<int64_t>& shape) {
  Axes used;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (from.uses(AxisId(a)) || to.uses(AxisId(a))) used.emplace_back(a);
  }
  Redistribution what;
  for_each_piece(used, mesh, [&](const std::vector<int64_t>& at) {
    what.hold.push_back(region_of(from, mesh, shape, at));
    what.need.push_back(region_of(to, mesh, shape, at));
  });
  std::vector<int64_t> sent(what.hold.size(), 0);
  int64_t most = 0;
  for (size_t member = 0; member < what.hold.size(); ++member) {
    int64_t received = 0;
    for (const Take& piece : takes(what, member)) {
      if (piece.source == member) continue;
      received += piece.box.volume();
      sent[piece.source] += piece.box.volume();
    }
    most = std::max(most, received);
  }
  return std::max(most, *std::max_element(sent.begin(), sent.end()));
}

// Returns the number of elements by which CostFunction prices a step, its argument `after`. In
// general this is the number that a rank holds after the step. For an exchange that brings halos it
// is the number that a rank in the middle of the mesh receives. For an exchange to or from one
// coordinate of an axis it is the number that the busiest rank sends or receives; if the mesh has
// too many ranks to find that rank, it is the number that a rank at that coordinate, or a rank in
// the middle, receives.
int64_t elements_after(CollectiveKind kind, const Layout& from, const Layout& to, const Mesh& mesh,
                       const std::vector<int64_t>& shape) {
  const bool adds = parts_overlap(from) && from.partial != to.partial;
  if (kind != CollectiveKind::kExchange ||
      (!adds && to.windows.empty() && to.at.empty() && from.at.empty()))
    return local_elements(to, mesh, shape);
  constexpr int64_t kManyRanks = 256;
  if (!adds && to.windows.empty() && mesh.size() <= kManyRanks)
    return busiest_of_exchange(from, to, mesh, shape);
  std::vector<int64_t> middle;
  for (const MeshAxis& axis : mesh.axes) middle.push_back(axis.size / 2);
  go_to_pins(to, middle);
  const Box needs = region_of(to, mesh, shape, middle);
  const Box holds = region_of(from, mesh, shape, middle);
  // If overlapping parts are added, a rank sends the elements of its box that are in the pieces of
  // others, and it receives as many elements as it sends.
  return (adds ? holds : needs).volume() - intersect(needs, holds).volume();
}

// Returns all non-empty selections from `axes`, each in every order. They are not too many, because
// a mesh has few axes.
std::vector<Axes> ordered_selections(const Axes& axes) {
  std::vector<Axes> out;
  Axes current;
  const std::function<void()> extend = [&] {
    for (AxisId axis : axes) {
      if (std::find(current.begin(), current.end(), axis) != current.end()) continue;
      current.push_back(axis);
      out.push_back(current);
      extend();
      current.pop_back();
    }
  };
  extend();
  return out;
}

std::vector<Axes> suffixes(const Axes& axes) {
  std::vector<Axes> out;
  for (size_t k = 1; k <= axes.size(); ++k) {
    out.emplace_back(axes.end() - static_cast<std::ptrdiff_t>(k), axes.end());
  }
  return out;
}

// Returns whether the value is partial and its parts are merged by moments. Such parts have triples
// along their last dim. No axis may cut this dim while the value is partial, and the collective
// that merges the parts must not cut it either.
bool has_triples(const Layout& layout) {
  return !layout.partial.empty() && layout.combiner == Combiner::kMoments;
}

bool counts_elements(const CostFunction& cost) {
  const auto* plain = cost.target<decltype(&cost_by_elements)>();
  return plain != nullptr && *plain == &cost_by_elements;
}

// A `LeastCost` is a lower bound on the cost of every path from a layout to the target, for
// cost_by_elements. It is the sum of two terms, plus 1 for a hop. The first term is what a rank
// must send so that its parts of sums are added up; this is less if axes that the layout does not
// use can cut its piece before. The second term is the elements that the target wants on a rank and
// that the rank does not hold. A step lowers this sum by at most its own cost, so the sum never
// exceeds the cost of the rest of the path. For uneven cuts the mean piece of all ranks counts.
// With halos or pins the bound is 1, the cost of one hop.
class LeastCost {
 public:
  LeastCost(const Layout& to, const Mesh& mesh, const std::vector<int64_t>& shape, const Axes& axes)
      : to_(to), mesh_(mesh), axes_(axes) {
    for (const int64_t size : shape) elements_ *= static_cast<double>(size);
    wanted_ = held_by(to);
  }

  double operator()(const Layout& layout) const {
    if (layout == to_) return 0;
    if (!layout.windows.empty() || !to_.windows.empty() || !layout.at.empty() || !to_.at.empty())
      return 1;
    const auto parts = static_cast<double>(to_.complete() ? members_of(mesh_, layout.partial) : 1);
    double idle = 1;
    for (const AxisId axis : axes_) {
      if (!layout.uses(axis)) idle *= static_cast<double>(mesh_.axis(axis).size);
    }
    const double held = held_by(layout);
    return (1 - 1 / parts) * held / idle + std::max(0.0, wanted_ - held / parts) + 1;
  }

 private:
  double held_by(const Layout& layout) const {
    double pieces = 1;
    for (const Axes& dim : layout.shards) pieces *= static_cast<double>(members_of(mesh_, dim));
    return elements_ / pieces;
  }

  const Layout& to_;
  const Mesh& mesh_;
  const Axes& axes_;
  double elements_ = 1, wanted_ = 0;
};

class PathSearch {
 public:
  PathSearch(const Layout& from, const Layout& to, const Mesh& mesh,
             const std::vector<int64_t>& shape, const CostFunction& cost)
      : from_(from), to_(to), mesh_(mesh), shape_(shape), cost_(cost) {
    // The search uses only axes that `from` or `to` uses.
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      const AxisId axis(a);
      if (mesh.axis(axis).size > 1 && (from.uses(axis) || to.uses(axis))) axes_.push_back(axis);
    }
    if (counts_elements(cost)) least_.emplace(to, mesh, shape, axes_);
  }

  std::vector<ConversionStep> run() {
    best_[from_] = {0, {}, {}};
    queue_.push({0, from_});
    while (!queue_.empty()) {
      const auto [distance, layout] = queue_.top();
      queue_.pop();
      if (best_.at(layout).done) continue;
      best_.at(layout).done = true;
      if (layout == to_) break;
      if (leads_farther(layout, distance)) continue;
      before_ = local_elements(layout, mesh_, shape_);
      expand(layout, distance);
    }
    TESSERA_CHECK(best_.contains(to_), "no conversion path");
    std::vector<ConversionStep> path;
    for (Layout at = to_; at != from_; at = best_.at(at).previous)
      path.push_back(best_.at(at).step);
    std::reverse(path.begin(), path.end());
    return path;
  }

 private:
  struct Node {
    double distance = 0;
    Layout previous;
    ConversionStep step;
    bool done = false;
  };

  // Returns whether no path through the layout, which is at this distance from the start, is
  // shorter than the best path found so far. A path whose length differs from that by less than a
  // relative 1e-12 is not refused, so that rounding decides nothing.
  bool leads_farther(const Layout& layout, double distance) const {
    if (distance >= reached_) return true;
    constexpr double kRounding = 1e-12;
    return least_ && (distance + (*least_)(layout)) * (1 - kRounding) >= reached_;
  }

  double weight_of(const Layout& layout, CollectiveKind kind, bool slice, const Axes& axes,
                   const Layout& next) const {
    if (slice) return 1;
    return cost_(kind, members_of(mesh_, axes), before_,
                 elements_after(kind, layout, next, mesh_, shape_));
  }

  void reach(const Layout& layout, double distance, CollectiveKind kind, bool slice, Axes axes,
             Layout next) {
    next = normalise(std::move(next), mesh_, shape_);
    if (has_triples(next) && !next.shards.back().empty()) return;
    const double total = distance + weight_of(layout, kind, slice, axes, next);
    if (leads_farther(next, total)) return;
    if (next == to_) reached_ = total;
    auto [it, fresh] = best_.try_emplace(next);
    if (!fresh && it->second.distance <= total) return;
    it->second.distance = total;
    it->second.previous = layout;
    it->second.step = {kind, slice, slice ? Axes{} : std::move(axes), next};
    queue_.push({total, next});
  }

  void expand(const Layout& layout, double distance) {
    if (parts_overlap(layout)) return add_overlaps(layout, distance);
    Axes free;
    for (AxisId axis : axes_) {
      if (!layout.uses(axis)) free.push_back(axis);
    }
    expand_partial(layout, distance);
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (layout.grain[d] != 1 && !layout.shards[d].empty() && layout != from_) continue;
      if (layout.window(d) != nullptr) continue;
      for (const Axes& run : suffixes(layout.shards[d])) {
        Layout gathered = layout;
        gathered.shards[d].resize(gathered.shards[d].size() - run.size());
        // If the target wants the tensor only at one coordinate of an axis of the run, the pieces
        // are sent there directly instead of being gathered by all ranks first.
        const auto pinned = [&](AxisId axis) { return to_.pins(axis); };
        if (std::all_of(run.begin(), run.end(), pinned)) {
          go_to(run, gathered);
          reach(layout, distance, CollectiveKind::kExchange, false, run, gathered);
        }
        if (std::any_of(run.begin(), run.end(), pinned)) continue;
        reach(layout, distance, CollectiveKind::kAllGather, false, run, gathered);
        for (size_t e = 0; e < shape_.size(); ++e) {
          if (e == d || shape_[e] == 1) continue;
          Layout moved = gathered;
          moved.shards[e].insert(moved.shards[e].end(), run.begin(), run.end());
          reach(layout, distance, CollectiveKind::kAllToAll, false, run, moved);
        }
      }
      for (const Axes& run : ordered_selections(free)) {
        Layout sliced = layout;
        if (sliced.shards[d].empty()) sliced.grain[d] = to_.grain[d];
        sliced.shards[d].insert(sliced.shards[d].end(), run.begin(), run.end());
        reach(layout, distance, CollectiveKind::kExchange, true, {}, sliced);
      }
    }
    for (const AxisPin& pin : to_.at) {
      if (layout.uses(pin.axis)) continue;
      Layout left = layout;
      left.at.push_back(pin);
      reach(layout, distance, CollectiveKind::kExchange, true, {}, left);
    }
    if (has_everywhere(layout, to_))
      reach(layout, distance, CollectiveKind::kExchange, true, {}, to_);
    // One exchange over the axes on which the layouts differ moves everything to its place.
    if (layout.partial == to_.partial && layout != to_) {
      Axes axes;
      for (AxisId axis : axes_) {
        if (moves_over(axis, layout)) axes.push_back(axis);
      }
      if (layout.complete() && !crosses_once(layout))
        reach(layout, distance, CollectiveKind::kExchange, false, axes, to_);
    }
  }

  // Adds the step that sums overlapping parts: an exchange after which each element is complete on
  // the rank that has it in its own piece.
  void add_overlaps(const Layout& layout, double distance) {
    Layout next = layout;
    Axes axes;
    std::erase_if(next.windows, [&](const Layout::DimWindow& window) {
      if (!parts_overlap(layout, window.dim)) return false;
      for (const AxisId axis : layout.shards[window.dim]) {
        axes.push_back(axis);
        erase_value(next.partial, axis);
      }
      return true;
    });
    reach(layout, distance, CollectiveKind::kExchange, false, std::move(axes), std::move(next));
  }

  // Pins the layout to the coordinates that the target has on these axes.
  void go_to(const Axes& axes, Layout& layout) const {
    for (const AxisPin& pin : to_.at) {
      if (std::find(axes.begin(), axes.end(), pin.axis) != axes.end()) layout.at.push_back(pin);
    }
    std::sort(layout.at.begin(), layout.at.end());
  }

  // Returns whether a path is possible on which each element is sent only once to the coordinate
  // that the target pins, although several ranks there want it. On such a path each of these ranks
  // first gets a share, and then they spread the shares among themselves (docs/theory/lowering.md
  // section 7).
  bool crosses_once(const Layout& layout) const {
    for (size_t d = 0; d < shape_.size(); ++d) {
      const bool gathers = layout.window(d) == nullptr && (layout.grain[d] == 1 || layout == from_);
      const Axes& axes = layout.shards[d];
      if (!gathers) continue;
      size_t shared = axes.size();
      while (shared > 0 && to_.pins(axes[shared - 1])) --shared;
      const bool comes = shared < axes.size();
      if (comes && std::any_of(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(shared),
                               [&](AxisId axis) { return !to_.uses(axis); }))
        return true;
    }
    return false;
  }

  // Returns whether data moves along the axis on the way to the target: the axis is pinned
  // otherwise there, or it cuts a dim that the target cuts otherwise.
  bool moves_over(AxisId axis, const Layout& layout) const {
    const auto pin_of = [&](const Layout& of) {
      const auto found = std::find_if(of.at.begin(), of.at.end(),
                                      [&](const AxisPin& pin) { return pin.axis == axis; });
      return found == of.at.end() ? -1 : found->coordinate;
    };
    if (pin_of(layout) != pin_of(to_)) return true;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const Layout::DimWindow *from = layout.window(d), *to = to_.window(d);
      const bool same_window = from == nullptr || to == nullptr ? from == to : *from == *to;
      if (same_window && layout.shards[d] == to_.shards[d] && layout.grain[d] == to_.grain[d])
        continue;
      // If the outermost axes of the dim are the same in both layouts, no data moves along
      // these axes.
      const Axes &before = layout.shards[d], &after = to_.shards[d];
      size_t alike = 0;
      while (same_window && layout.grain[d] == to_.grain[d] && alike < before.size() &&
             alike < after.size() && before[alike] == after[alike])
        ++alike;
      for (const Axes* cut : {&before, &after}) {
        if (std::find(cut->begin() + alike, cut->end(), axis) != cut->end()) return true;
      }
    }
    return false;
  }

  // Returns whether each rank already has all that it needs in the layout `wanted`; false if
  // neither layout has halos.
  bool has_everywhere(const Layout& layout, const Layout& wanted) const {
    if (layout.windows.empty() && wanted.windows.empty()) return false;
    if (layout == wanted || !layout.complete() || !wanted.complete()) return false;
    // A value that only the ranks at one coordinate hold does not serve the ranks at
    // other coordinates.
    if (!std::includes(wanted.at.begin(), wanted.at.end(), layout.at.begin(), layout.at.end()))
      return false;
    for (size_t d = 0; d < shape_.size(); ++d) {
      Axes axes = layout.shards[d];
      for (AxisId axis : wanted.shards[d]) {
        if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
      }
      bool inside = true;
      for_each_piece(axes, mesh_, [&](const std::vector<int64_t>& at) {
        const Interval has = dim_interval(layout, d, shape_[d], mesh_, at);
        const Interval needs = dim_interval(wanted, d, shape_[d], mesh_, at);
        inside = inside && (needs.empty() || intersect(has, needs) == needs);
      });
      if (!inside) return false;
    }
    return true;
  }

  void expand_partial(const Layout& layout, double distance) {
    for (const Axes& run : ordered_selections(layout.partial)) {
      Layout reduced = layout;
      erase_if(reduced.partial,
               [&](AxisId axis) { return std::find(run.begin(), run.end(), axis) != run.end(); });
      if (std::is_sorted(run.begin(), run.end())) {
        reach(layout, distance, CollectiveKind::kAllReduce, false, run, reduced);
      }
      const size_t dims = has_triples(layout) ? shape_.size() - 1 : shape_.size();
      for (size_t d = 0; d < dims; ++d) {
        Layout scattered = reduced;
        if (scattered.shards[d].empty()) scattered.grain[d] = to_.grain[d];
        scattered.shards[d].insert(scattered.shards[d].end(), run.begin(), run.end());
        reach(layout, distance, CollectiveKind::kReduceScatter, false, run, scattered);
      }
    }
  }

  const Layout& from_;
  const Layout& to_;
  const Mesh& mesh_;
  const std::vector<int64_t>& shape_;
  const CostFunction& cost_;
  Axes axes_;
  std::optional<LeastCost> least_;
  int64_t before_ = 0;  // elements that a rank has in the layout that is expanded
  double reached_ =
      // Length of the shortest path to the target found so far.
      std::numeric_limits<double>::infinity();
  std::map<Layout, Node> best_;
  using Entry = std::pair<double, Layout>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

std::vector<ConversionStep> conversion_path(const Layout& from, const Layout& to, const Mesh& mesh,
                                            const std::vector<int64_t>& shape,
                                            const CostFunction& cost) {
  if (from == to) return {};
  return PathSearch(from, to, mesh, shape, cost).run();
}

double path_cost(const Layout& from, const std::vector<ConversionStep>& path, const Mesh& mesh,
                 const std::vector<int64_t>& shape, const CostFunction& cost) {
  double total = 0;
  const Layout* at = &from;
  for (const ConversionStep& step : path) {
    total += step.slice
                 ? 1
                 : cost(step.kind, members_of(mesh, step.axes), local_elements(*at, mesh, shape),
                        elements_after(step.kind, *at, step.to, mesh, shape));
    at = &step.to;
  }
  return total;
}

CollectiveKind classify(const Redistribution& what) {
  const size_t n = what.hold.size();
  if (what.combiner) {
    size_t takers = 0;
    for (const Box& need : what.need) takers += need.empty() ? 0 : 1;
    return takers <= 1 ? CollectiveKind::kReduce : CollectiveKind::kExchange;
  }
  std::vector<int> gives(n, 0);
  bool single_source = true;
  bool equal_needs = true;
  size_t source = n;
  bool one_root = true;
  for (size_t member = 0; member < n; ++member) {
    equal_needs = equal_needs && what.need[member] == what.need[0];
    const std::vector<Take> pieces = takes(what, member);
    single_source = single_source && pieces.size() <= 1;
    for (const Take& piece : pieces) {
      ++gives[piece.source];
      one_root = one_root && (source == n || source == piece.source);
      source = piece.source;
    }
  }
  if (equal_needs && one_root) return CollectiveKind::kBroadcast;
  if (single_source && *std::max_element(gives.begin(), gives.end()) <= 1) {
    return CollectiveKind::kPermute;
  }
  return CollectiveKind::kExchange;
}

}  // namespace tessera
