#include "tessera/graph/kinds.h"
#include "tessera/program/instructions.h"
#include "tessera/program/place_text.h"
#include "tessera/program/walk.h"

namespace tessera {

Interval step_interval(Interval whole, int64_t steps, int64_t step, StepOrder order,
                       const std::vector<SkewAxis>& skew, const Mesh& mesh,
                       const std::vector<int64_t>& coordinates) {
  const auto modulo = [](int64_t value, int64_t n) { return (value % n + n) % n; };
  if (order == StepOrder::kNested) {
    int64_t inside = steps;
    for (const SkewAxis& s : skew) {
      const int64_t n = mesh.axis(s.axis).size;
      inside /= n;
      const int64_t digit = step / inside % n;
      const int64_t at = coordinates[s.axis.index()] + (s.falls ? -digit : digit);
      whole = split_interval(whole, n, modulo(at, n));
    }
    return whole;
  }
  int64_t index = order == StepOrder::kRotated && !skew.empty() && skew[0].falls ? -step : step;
  if (order == StepOrder::kRotated) {
    for (const SkewAxis& s : skew) index += coordinates[s.axis.index()];
  }
  return split_interval(whole, steps, modulo(index, steps));
}

Box evaluate(const Region& region, const Mesh& mesh, const std::vector<int64_t>& shape,
             const std::vector<int64_t>& coordinates) {
  Box box = region_of(region.layout, mesh, shape, coordinates);
  if (!region.piece) return box;
  const StepPiece& piece = *region.piece;
  for (const StepPiece::Rim& rim : piece.rims) {
    const Interval made = rim_interval(rim.cut, piece.step, mesh, coordinates);
    box.dims[rim.dim] = intersect(box.dims[rim.dim], rim.read ? rim.read->of(made) : made);
  }
  if (!piece.rims.empty()) return box;
  const Axes& axes = region.layout->shards[piece.dim];
  const Axes outer(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(piece.prefix));
  const Interval whole = cut_interval(piece.read ? piece.read->size : shape[piece.dim], piece.grain,
                                      outer, mesh, coordinates);
  const Interval cut =
      step_interval({whole.begin / piece.grain, whole.size / piece.grain}, piece.steps, piece.step,
                    piece.order, piece.skew, mesh, coordinates);
  Interval step{cut.begin * piece.grain, cut.size * piece.grain};
  if (piece.read) step = piece.read->of(step);
  if (piece.queries > 0) {
    const Interval queries = cut_interval(piece.queries, 1, piece.query_axes, mesh, coordinates);
    const bool too_early = piece.reach > 0 && step.end() <= queries.begin - piece.reach;
    if (queries.end() <= step.begin || too_early) step.size = 0;
  }
  box.dims[piece.dim] = intersect(box.dims[piece.dim], step);
  return box;
}

Box compute_box(const Op& op, const OpPlan& plan, const ShapeRule& shapes, const Mesh& mesh,
                const std::vector<int64_t>& coordinates, int64_t step) {
  const std::vector<int64_t> space = shapes.space(op);
  Box box;
  if (!plan.computes_at(coordinates)) {
    box.dims.assign(space.size(), Interval{});
    return box;
  }
  for (size_t d = 0; d < space.size(); ++d) {
    const DimSplit& split = plan.dims[d];
    if (split.rims) {
      const RimCut cut = rim_cut(op, plan, static_cast<int>(d), *shapes.graph);
      box.dims.push_back(rim_interval(cut, step, mesh, coordinates));
      continue;
    }
    Interval interval = grown_interval(split.grown, space[d], split.axes, mesh, coordinates);
    if (split.steps > 1) {
      interval =
          step_interval(interval, split.steps, step, split.order, split.skew, mesh, coordinates);
    }
    box.dims.push_back(interval);
  }
  if (const auto band = narrowing_band(op, plan)) {  // has all queries of the rank, in every step
    const auto query = static_cast<size_t>(band->query);
    Interval& keys = box.dims[static_cast<size_t>(band->key)];
    keys = intersect(keys, band->keys_seen(cut_interval(space[query], 1, plan.dims[query].axes,
                                                        mesh, coordinates)));
  }
  return box;
}

}  // namespace tessera
