// Layouts: a layout says who holds which part of a tensor, as a function of mesh coordinates
// (docs/theory/lowering.md section 1).
//
// The regular form, `Layout`, lists for each tensor dim the mesh axes that cut it (outermost
// first). It also lists the axes over which the value is partial, which means that the ranks along
// these axes hold parts that a combiner merges. The tensor is whole over all other axes. Cuts may
// be uneven, because the size of a piece is a function of the coordinates. Pieces may overlap in
// halos: if an op reads a dim through windows, each rank has the region that its piece of the op's
// dim reads. A tensor may also be held at only one coordinate of an axis (an embedding table on the
// rank that looks up its rows); ranks at other coordinates then have nothing of the tensor. The
// general form is one box for each rank (Redistribution).
//
// conversion_path() finds the cheapest sequence of collectives that turns one layout into another.
// It is a shortest path in the graph of layouts (docs/theory/superscaler.md section 6). An edge of
// that graph is one collective, which may run over several axes at once. The cost of an edge is the
// number of elements that a rank sends, plus 1 for the hop; a caller may give another CostFunction.
// All ranks find the same path, because the path depends only on shapes and layouts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/mesh.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct Layout {
  SmallVector<Axes, 4> shards;  // by tensor dim: the axes that cut it, outermost first
  // By tensor dim: cuts fall on multiples of this number, which is the inner size of a bracket.
  // normalise() sets it to 1 where it makes no difference.
  SmallVector<int64_t, 4> grain;
  // The tensor dims that an op reads through windows, in ascending order. For such a dim, the axes
  // in `shards` cut the dim of the op, and a rank has the region that its piece of the op's dim
  // reads. An op needs such a layout of an input. Or it makes such a layout of its output, either
  // as parts (overlapping_parts.h) or as pieces with a halo that it computes (DimSplit::grown). No
  // tensor is at rest in such a layout.
  struct DimWindow {
    size_t dim = 0;
    WindowRead read;
    // The windows through which later ops read the op's dim in turn; the window of the next op
    // comes first. The axes cut the dim of the last of these ops; if the list is empty, the op's
    // own dim.
    std::vector<WindowRead> behind{};
    friend bool operator==(const DimWindow&, const DimWindow&) = default;
    friend auto operator<=>(const DimWindow&, const DimWindow&) = default;
  };
  std::vector<DimWindow> windows;
  // Axes along which only the ranks at one coordinate hold the tensor, with that coordinate; sorted
  // by axis. A tensor without dims has no such axes, because its one element is on all ranks.
  std::vector<AxisPin> at;
  Axes partial;                        // axes over which the value is partial, sorted
  Combiner combiner = Combiner::kSum;  // merges the parts; kSum if complete

  static Layout whole(size_t rank);
  bool complete() const { return partial.empty(); }
  bool shards_over(AxisId axis) const;  // whether the axis cuts a dim
  bool uses(AxisId axis) const;         // whether the axis cuts a dim, is partial or is pinned
  bool pins(AxisId axis) const;         // whether `at` has the axis
  // Returns whether the rank at the coordinates holds any of the tensor, by `at`.
  bool holds_at(const std::vector<int64_t>& coordinates) const;
  Axes axes() const;                          // the axes that cut a dim, sorted
  const DimWindow* window(size_t dim) const;  // null if the dim is not read through a window
  friend bool operator==(const Layout&, const Layout&) = default;
  friend auto operator<=>(const Layout&, const Layout&) = default;
};

// Drops axes of size 1 and windows that add no halo to any piece, sorts `partial` and `at`, and
// sets each grain that makes no difference to 1. Afterwards two layouts that differ only in this
// compare equal.
Layout normalise(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);

// Returns the piece of a dim of `size` that the rank at the coordinates has if `axes` (outermost
// first) cut the dim at multiples of `grain`.
Interval cut_interval(int64_t size, int64_t grain, const Axes& axes, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);
// Returns the interval of a dim of `size` that the rank at the coordinates needs if later ops read
// the dim through a chain of windows. `grown` lists the windows, that of the first reader first.
// The axes cut the dim of the last reader. If `grown` is empty, the axes cut the dim itself.
Interval grown_interval(const std::vector<WindowRead>& grown, int64_t size, const Axes& axes,
                        const Mesh& mesh, const std::vector<int64_t>& coordinates);
// Returns the interval of tensor dim `dim` that the rank at the coordinates has, including the
// halo. `size`: the size of the dim.
Interval dim_interval(const Layout& layout, size_t dim, int64_t size, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);
// Returns the layout without halos, in which the axes cut the tensor's own dims.
Layout without_windows(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);
// Returns the box of the tensor that the rank at the coordinates has; empty where `at` gives it
// nothing.
Box region_of(const Layout& layout, const Mesh& mesh, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& coordinates);
// Returns a text like "[batch: dp, seq: -, hidden: row.col] partial(tp: sum)".
std::string to_string(const Layout& layout, const Mesh& mesh, const std::vector<Dim>& dims);

struct ConversionStep {
  CollectiveKind kind = CollectiveKind::kExchange;
  bool slice = false;  // true: each rank takes a view of what it has, nothing moves
  Axes axes;           // axes of the groups that take part; empty for a slice
  Layout to;
};
// The cost of one edge of a path, from the kind of its collective, the number of members, and the
// elements that one rank holds before and after the collective.
using CostFunction =
    std::function<double(CollectiveKind kind, int64_t members, int64_t before, int64_t after)>;
// Returns the elements that a rank sends, plus 1.
double cost_by_elements(CollectiveKind kind, int64_t members, int64_t before, int64_t after);

// Returns the cheapest path; empty if the layouts are equal. Both layouts must be normalised. `to`
// must be complete or have the same partial axes as `from`. Then a path always exists.
std::vector<ConversionStep> conversion_path(const Layout& from, const Layout& to, const Mesh& mesh,
                                            const std::vector<int64_t>& shape,
                                            const CostFunction& cost = cost_by_elements);
double path_cost(const Layout& from, const std::vector<ConversionStep>& path, const Mesh& mesh,
                 const std::vector<int64_t>& shape, const CostFunction& cost = cost_by_elements);

// Returns the kind of a redistribution: broadcast, permute, reduce or exchange. The kind follows
// from the boxes that the members hold and need.
CollectiveKind classify(const Redistribution& what);

}  // namespace tessera
