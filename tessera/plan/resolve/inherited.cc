// The splits and pins that backward ops inherit from their mirrors.
#include "tessera/plan/resolve/resolve.h"

#include <algorithm>
#include <utility>

#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// Replaces the axes of the split by those of the same names in the mesh of stage `to`. Returns
// false if an axis is missing there or has another size.
bool move_split(const Resolving& r, DimSplit& split, StageId from, StageId to) {
  const Mesh& here = r.out.stages[from.index()].mesh;
  const Mesh& there = r.out.stages[to.index()].mesh;
  const auto move = [&](AxisId& axis) {
    const AxisId moved = there.find(here.axis(axis).name);
    if (!moved.valid() || there.axis(moved).size != here.axis(axis).size) return false;
    axis = moved;
    return true;
  };
  return std::all_of(split.axes.begin(), split.axes.end(), move) &&
         std::all_of(split.skew.begin(), split.skew.end(),
                     [&](SkewAxis& skew) { return move(skew.axis); });
}

// Copies those pins of `from` to `to` whose axis the mesh of `to`'s stage has with the same size.
void inherit_pins(const Resolving& r, const OpPlan& from, OpPlan& to) {
  const Mesh &there = r.out.stages[from.stage.index()].mesh,
             &here = r.out.stages[to.stage.index()].mesh;
  for (const AxisPin& pin : from.at) {
    const MeshAxis& axis = there.axis(pin.axis);
    const AxisId found = here.find(axis.name);
    if (found.valid() && here.axis(found).size == axis.size)
      tessera::pin(to, {found, pin.coordinate});
  }
}

// Gives a view the splits of its operand and returns true if another backward op of the same
// mirror makes the operand in pieces. Dims are matched by position, because a derivative may
// rename a dim that the forward op read by position. Returns false if the operand is made in
// steps of a time loop, because its pieces are joined before the view.
bool follow(const Resolving& r, const Op& op) {
  const OpId from = op.inputs.empty() ? OpId() : r.graph.tensor(op.inputs[0]).producer;
  if (!info_of(op).view || !from.valid()) return false;
  const Op& maker = r.graph.op(from);
  if (maker.mirror != op.mirror || maker.outputs.size() != 1) return false;
  const std::vector<DimGroup>&read = op.annotation.inputs[0].dims,
        &made = maker.annotation.outputs[0].dims;
  std::vector<std::pair<size_t, DimSplit>> cut;
  for (size_t t = 0; t < read.size(); ++t) {
    if (read[t].size() != 1 || made[t].size() != 1) return false;
    DimSplit split = r.out.ops[from.index()].dims[static_cast<size_t>(made[t][0])];
    if (split.steps > 1) return false;
    split.rims = split.computes_halo = false;
    const StageId here = r.out.ops[op.id.index()].stage, there = r.out.ops[from.index()].stage;
    if (here != there && !move_split(r, split, there, here)) return false;
    if (split.split()) cut.emplace_back(static_cast<size_t>(read[t][0]), split);
  }
  for (const auto& [dim, split] : cut) r.out.ops[op.id.index()].dims[dim] = split;
  if (!cut.empty()) inherit_pins(r, r.out.ops[from.index()], r.out.ops[op.id.index()]);
  return !cut.empty();
}

}  // namespace

void inherit(const Resolving& r, const Op& op) {
  if (follow(r, op)) return;
  const Op& mirror = r.graph.op(op.mirror);
  const OpPlan& from = r.out.ops[op.mirror.index()];
  OpPlan& to = r.out.ops[op.id.index()];
  if (!op.annotation.dims.empty()) inherit_pins(r, from, to);
  for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
    const OpDim& dim = op.annotation.dims[d];
    const int m = mirror.annotation.find(dim.name);
    if (m < 0 || from.dims[static_cast<size_t>(m)].entry < 0) continue;
    DimSplit split = from.dims[static_cast<size_t>(m)];
    const auto leave = [&](WhyWhole why) {
      r.leave_whole(op.id, static_cast<int>(d), static_cast<size_t>(split.entry), why);
    };
    if (from.stage != to.stage && !move_split(r, split, from.stage, to.stage)) {
      leave(WhyWhole::kNoAxis);
      continue;
    }
    if (split.steps > std::max<int64_t>(dim.size, 1)) continue;
    if (pieces(split, r.mesh_of(op.id)) > 1 && is_frozen(op, d)) {
      if (!expands(op, dim.name)) {
        leave(WhyWhole::kFrozen);
        continue;
      }
      r.out.to_expand.push_back(op.id);
    }
    to.dims[d] = std::move(split);
  }
}

}  // namespace tessera
