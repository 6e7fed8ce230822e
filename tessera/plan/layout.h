// Layouts: a layout says who holds which part of a tensor, as a function of mesh coordinates
// (docs/theory/lowering.md section 1).
//
// The regular form has for each tensor dim an ordered list of mesh axes (outermost first) that cut
// it, and the axes over which the value is partial (parts merged by a combiner); the tensor is
// whole over all other axes. It includes uneven cuts: piece sizes are functions of the coordinates.
// It includes halos: for a dim that is read through windows, each rank has the region that its
// piece of the op's dim reads, and neighbours overlap. A tensor may also be held at one coordinate
// of an axis alone (an embedding table on the rank that looks up its rows); ranks at other
// coordinates have nothing of it. The general form is one box for each rank (Redistribution).
//
// conversion_path() turns one layout into another by the cheapest sequence of collectives: a
// shortest path over layouts (docs/theory/superscaler.md section 6) whose edges join any run of
// axes at once. The cost of an edge is elements that a rank sends + 1 (hop), replaceable by a
// CostFunction. All ranks find the same path, because it depends only on shapes and layouts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/mesh.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct Layout {
  SmallVector<Axes, 4> shards;  // by tensor dim, outermost first
  // By tensor dim: cuts fall on multiples of this number (the inner size of a bracket). Normalised.
  SmallVector<int64_t, 4> grain;
  // Dims that are read through windows, in order: the axes cut the op's dim, and a rank has the
  // region that its piece reads. An op needs such a layout, or makes it: as parts
  // (overlapping_parts.h), or as pieces with halos that it computes (DimSplit::grown). No tensor is
  // at rest in such a layout.
  struct DimWindow {
    size_t dim = 0;
    WindowRead read;
    // If not empty, the op's dim is itself read through these windows, nearest first; the axes cut
    // the dim behind them.
    std::vector<WindowRead> behind{};
    friend bool operator==(const DimWindow&, const DimWindow&) = default;
    friend auto operator<=>(const DimWindow&, const DimWindow&) = default;
  };
  std::vector<DimWindow> windows;
  // Axes along which only the ranks at one coordinate have anything, sorted by axis. A tensor
  // without dims has no such axes: its one element is on all ranks.
  std::vector<AxisPin> at;
  Axes partial;                        // sorted
  Combiner combiner = Combiner::kSum;  // of the parts; kSum if complete

  static Layout whole(size_t rank);
  bool complete() const { return partial.empty(); }
  bool shards_over(AxisId axis) const;  // whether the axis cuts a dim
  bool uses(AxisId axis) const;         // whether it is cut, partial or pinned
  bool pins(AxisId axis) const;
  // Returns whether the coordinates lie where the tensor is held.
  bool holds_at(const std::vector<int64_t>& coordinates) const;
  Axes axes() const;                          // the axes that cut a dim, sorted
  const DimWindow* window(size_t dim) const;  // null: not read through one
  friend bool operator==(const Layout&, const Layout&) = default;
  friend auto operator<=>(const Layout&, const Layout&) = default;
};

// Drops axes of size 1 and windows that read no more than the cut without them has, sorts
// `partial`, and sets grains that make no difference to 1. Afterwards two layouts that cut alike
// compare equal.
Layout normalise(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);

// Returns the interval of a dim of `size` cut by `axes` (outermost first) at the coordinates, on
// multiples of `grain`.
Interval cut_interval(int64_t size, int64_t grain, const Axes& axes, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);
// Returns the interval of a dim of `size` that is read through `grown`, one window behind the
// other, nearest first: the axes cut the dim behind the last window.
Interval grown_interval(const std::vector<WindowRead>& grown, int64_t size, const Axes& axes,
                        const Mesh& mesh, const std::vector<int64_t>& coordinates);
// Returns the interval of a dim of the layout, with its halo.
Interval dim_interval(const Layout& layout, size_t dim, int64_t size, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);
// Returns the layout without halos: the cut of the tensor's own dims.
Layout without_windows(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);
Box region_of(const Layout& layout, const Mesh& mesh, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& coordinates);
// Returns a text: "[batch: dp, seq: -, hidden: row.col] partial(tp: sum)".
std::string to_string(const Layout& layout, const Mesh& mesh, const std::vector<Dim>& dims);

struct ConversionStep {
  CollectiveKind kind = CollectiveKind::kExchange;
  bool slice = false;  // local: a view, nothing moves
  Axes axes;           // axes of the group that takes part (empty for a slice)
  Layout to;
};
// The cost of one edge, from its kind, its number of members, and the elements that one rank holds
// before and after it.
using CostFunction =
    std::function<double(CollectiveKind kind, int64_t members, int64_t before, int64_t after)>;
double cost_by_elements(CollectiveKind kind, int64_t members, int64_t before, int64_t after);

// Returns the cheapest path; empty if the layouts are equal. Both layouts must be normalised, and
// `to` complete, or with the same partial axes as `from`. There always is a path.
std::vector<ConversionStep> conversion_path(const Layout& from, const Layout& to, const Mesh& mesh,
                                            const std::vector<int64_t>& shape,
                                            const CostFunction& cost = cost_by_elements);
double path_cost(const Layout& from, const std::vector<ConversionStep>& path, const Mesh& mesh,
                 const std::vector<int64_t>& shape, const CostFunction& cost = cost_by_elements);

// Returns the class of a redistribution (broadcast, permute, reduce, exchange), which follows from
// who holds and needs which box.
CollectiveKind classify(const Redistribution& what);

}  // namespace tessera
