// Pin entries: ops that are computed at one coordinate of an axis.
#include "tessera/plan/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

Status apply_pin(const Resolving& r, const PinEntry& entry) {
  TESSERA_TRY(const auto selected,
              r.selection.ops(entry.ops, entry.phase.value_or(Phase::kForward), entry.line));
  OpId without_axis, without_dims;
  bool applied = false;
  for (OpId id : selected) {
    const Mesh& mesh = r.mesh_of(id);
    const AxisId axis = mesh.find(entry.axis);
    if (!axis.valid()) {
      if (!without_axis.valid()) without_axis = id;
      continue;
    }
    if (entry.at >= mesh.axis(axis).size) {
      return r.error(entry.line,
                     fmt::format("at = {}: expected a coordinate below {}, the size of axis '{}'",
                                 entry.at, mesh.axis(axis).size, entry.axis));
    }
    if (r.graph.op(id).annotation.dims.empty()) {  // no rank would have an empty part of it
      if (!without_dims.valid()) without_dims = id;
      continue;
    }
    pin(r.out.ops[id.index()], {axis, entry.at});
    applied = true;
  }
  if (applied) return {};
  if (without_dims.valid()) {
    return r.error(entry.line,
                   fmt::format("op '{}' ({}) has no dims: every rank computes it",
                               r.graph.op(without_dims).path, r.graph.op(without_dims).kind));
  }
  return r.error(
      entry.line,
      fmt::format("axis = \"{}\": op '{}' runs on the mesh {} of stage {}, which lacks "
                  "that axis",
                  entry.axis, r.graph.op(without_axis).path, r.mesh_of(without_axis).to_string(),
                  r.out.ops[without_axis.index()].stage.value));
}

}  // namespace

void pin(OpPlan& to, AxisPin pin) {
  std::erase_if(to.at, [&](const AxisPin& other) { return other.axis == pin.axis; });
  to.at.push_back(pin);
  std::sort(to.at.begin(), to.at.end());
}

Status apply_pins(const Resolving& r, bool forward) {
  for (const PinEntry& entry : r.plan().pins) {
    if ((entry.phase.value_or(Phase::kForward) == Phase::kForward) == forward)
      TESSERA_TRY_VOID(apply_pin(r, entry));
  }
  return {};
}

Status settle_pins(const Resolving& r, const Op& op) {
  OpPlan& plan_of_op = r.out.ops[op.id.index()];
  for (const AxisPin& pin : plan_of_op.at) {
    for (DimSplit& split : plan_of_op.dims) {
      erase_value(split.axes, pin.axis);
      if (std::none_of(split.skew.begin(), split.skew.end(),
                       [&](const SkewAxis& skew) { return skew.axis == pin.axis; }))
        continue;
      return r.error(r.plan().splits[static_cast<size_t>(split.entry)].line,
                     fmt::format("op '{}' is at one coordinate of axis '{}' alone ([[pin]]): "
                                 "expected no time loop that is skewed by it",
                                 op.path, r.mesh_of(op.id).axis(pin.axis).name));
    }
  }
  return {};
}

}  // namespace tessera
