// Facts about the pieces of a time loop.
#include "tessera/program/walk/loop_pieces.h"

#include <algorithm>

namespace tessera {

bool starts_at_home(const StepPiece& piece, const Axes& axes, const Mesh& mesh) {
  int64_t product = 1;
  for (AxisId axis : axes) product *= mesh.axis(axis).size;
  const bool same = piece.skew.size() == axes.size() && product == piece.steps &&
                    std::equal(axes.begin(), axes.end(), piece.skew.begin(),
                               [](AxisId axis, const SkewAxis& skew) { return axis == skew.axis; });
  return same && (piece.order == StepOrder::kNested ||
                  (piece.order == StepOrder::kRotated && axes.size() == 1));
}

int64_t inner_steps(const StepPiece& piece, const Mesh& mesh) {
  return mesh.axis(piece.skew.back().axis).size;
}

void leave_out_masked(const Facts& facts, const Op& op, StepPiece& piece) {
  const OpPlan& plan = facts.op_plan(op);
  const int key = loop_of(plan).op_dim;
  const int query = op.annotation.dims[static_cast<size_t>(key)].causal_of;
  if (query < 0) return;
  const Axes& axes = plan.dims[static_cast<size_t>(query)].axes;
  const bool falls = std::all_of(piece.skew.begin(), piece.skew.end(),
                                 [](const SkewAxis& skew) { return skew.falls; });
  if (piece.order != StepOrder::kAligned &&
      (!falls || !starts_at_home(piece, axes, facts.mesh(facts.place_of(op)))))
    return;
  piece.queries = facts.analysis().shapes.space(op)[static_cast<size_t>(query)];
  piece.query_axes = axes;
  // In a nested ring a piece may come from a rank with later queries. That rank must then have the
  // piece, although the piece ends before its band.
  if (piece.order == StepOrder::kNested) return;
  if (const auto band = band_of(op)) piece.reach = band->before;
}

}  // namespace tessera
