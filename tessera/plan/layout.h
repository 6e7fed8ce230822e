// Layouts: who holds what of a tensor, as a function of mesh coordinates (docs/theory/lowering.md
// section 1).
//
// Regular form: for each tensor dim an ordered list of mesh axes (outermost first) that cut it,
// plus the axes over which the value is partial (parts merged by a combiner); the tensor is whole
// over all other axes. Uneven cuts are part of it: piece sizes are functions of the coordinates.
// So are halos: of a dim that is read through windows each rank has what its piece of the op's dim
// reads, and neighbours overlap. A tensor may also be held at one coordinate of an axis alone (an
// embedding table on the rank that looks up its rows); the ranks at the others have nothing of it.
// General form: one box a rank (Redistribution).
//
// conversion_path() turns one layout into another by the cheapest sequence of collectives: a
// shortest path over layouts (docs/theory/superscaler.md section 6) whose edges join any run of
// axes at once. Cost of an edge = elements that a rank sends + 1 (hop), replaceable by a
// CostFunction. All ranks find the same path: it depends on shapes and layouts alone.
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
  // Dims that are read through windows, in order: the axes cut the op's dim, and a rank has what
  // its piece reads. An op needs such a layout, or makes it: parts (overlapping_parts.h), or pieces
  // with halos that it computes (DimSplit::grown). Nothing is at rest in it.
  struct DimWindow {
    size_t dim = 0;
    WindowRead read;
    // The op's dim is read through windows in turn, nearest first; the axes cut the dim behind them.
    std::vector<WindowRead> behind{};
    friend bool operator==(const DimWindow&, const DimWindow&) = default;
    friend auto operator<=>(const DimWindow&, const DimWindow&) = default;
  };
  std::vector<DimWindow> windows;
  // Axes along which only the ranks at one coordinate have anything, sorted by axis. Of a tensor
  // without dims there are none: its one element is on all ranks.
  std::vector<AxisPin> at;
  Axes partial;                        // sorted
  Combiner combiner = Combiner::kSum;  // of the parts; kSum if complete

  static Layout whole(size_t rank);
  bool complete() const { return partial.empty(); }
  bool shards_over(AxisId axis) const;  // does the axis cut some dim
  bool uses(AxisId axis) const;         // cut, partial or pinned
  bool pins(AxisId axis) const;
  // Do the coordinates lie where the tensor is held?
  bool holds_at(const std::vector<int64_t>& coordinates) const;
  Axes axes() const;                          // the axes that cut a dim, sorted
  const DimWindow* window(size_t dim) const;  // null: not read through one
  friend bool operator==(const Layout&, const Layout&) = default;
  friend auto operator<=>(const Layout&, const Layout&) = default;
};

// Drops axes of size 1, sorts `partial`, sets grains that make no difference to 1, and drops windows
// that read what the cut without them has. Two layouts that cut alike compare equal after it.
Layout normalise(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);

// The interval of a dim of `size` cut by `axes` (outermost first) at the coordinates, on multiples
// of `grain`.
Interval cut_interval(int64_t size, int64_t grain, const Axes& axes, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);
// What a dim of `size` has of it that is read through `grown`, one behind the other, nearest first:
// the axes cut the dim behind the last one.
Interval grown_interval(const std::vector<WindowRead>& grown, int64_t size, const Axes& axes,
                        const Mesh& mesh, const std::vector<int64_t>& coordinates);
// The same of a dim of the layout, with its halo.
Interval dim_interval(const Layout& layout, size_t dim, int64_t size, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);
// Without halos: the cut of the tensor's own dims.
Layout without_windows(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);
Box region_of(const Layout& layout, const Mesh& mesh, const std::vector<int64_t>& shape,
              const std::vector<int64_t>& coordinates);
// "[batch: dp, seq: -, hidden: row.col] partial(tp: sum)".
std::string to_string(const Layout& layout, const Mesh& mesh, const std::vector<Dim>& dims);

struct ConversionStep {
  CollectiveKind kind = CollectiveKind::kExchange;
  bool slice = false;  // local: a view, nothing moves
  Axes axes;           // of the group that takes part (empty for a slice)
  Layout to;
};
// Cost of one edge: kind, number of members, elements that one rank holds before it, elements it
// holds after it.
using CostFunction =
    std::function<double(CollectiveKind kind, int64_t members, int64_t before, int64_t after)>;
double cost_by_elements(CollectiveKind kind, int64_t members, int64_t before, int64_t after);

// Empty if equal. Both layouts normalised; `to` complete, or with the same partial axes as `from`.
// Always succeeds.
std::vector<ConversionStep> conversion_path(const Layout& from, const Layout& to, const Mesh& mesh,
                                            const std::vector<int64_t>& shape,
                                            const CostFunction& cost = cost_by_elements);
double path_cost(const Layout& from, const std::vector<ConversionStep>& path, const Mesh& mesh,
                 const std::vector<int64_t>& shape, const CostFunction& cost = cost_by_elements);

// Names the class of a redistribution (broadcast, permute, reduce, exchange) from who holds and
// needs what.
CollectiveKind classify(const Redistribution& what);

}  // namespace tessera
