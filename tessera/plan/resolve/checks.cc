// Checks of all splits of an op together.
#include "tessera/plan/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// Returns the value of `over` of a split as plans write it: ["a", "time:2"].
std::string over_text(const Resolving& r, const Op& op, const DimSplit& split) {
  std::vector<std::string> items;
  for (const AxisId axis : split.axes)
    items.push_back(fmt::format("\"{}\"", r.mesh_of(op.id).axis(axis).name));
  if (split.steps > 1) items.push_back(fmt::format("\"time:{}\"", split.steps));
  return fmt::format("[{}]", join(items, ", "));
}

// Checks dims whose elements are uneven shards, which a loop over a cut dim makes when it is
// written out. Such a dim must be whole, or one axis must cut it into one piece for each shard.
Status check_blocks(const Resolving& r, const Op& op) {
  for (const auto* operands : {&op.annotation.inputs, &op.annotation.outputs}) {
    for (const OperandDims& operand : *operands) {
      for (const DimGroup& group : operand.dims) {
        if (uneven_extent(op.annotation.dims, group) < 0) continue;
        const auto d = static_cast<size_t>(group.front());
        const DimSplit& split = r.out.ops[op.id.index()].dims[d];
        const OpDim& dim = op.annotation.dims[d];
        const int64_t found = pieces(split, r.mesh_of(op.id));
        if (found == 1 || (found == dim.size && split.axes.size() == 1)) continue;
        return r.error(r.plan().splits[static_cast<size_t>(split.entry)].line,
                       fmt::format("dim '{}' of op '{}' lies in {} uneven shards, each of which a "
                                   "loop takes in steps: expected no cut of it but over the one "
                                   "axis of {} ranks, found over = {} (op '{}'); a dim that {} "
                                   "divides may be cut so",
                                   dim.name, op.path.substr(0, op.path.find('@')), dim.size,
                                   dim.size, over_text(r, op, split), op.path, dim.size));
      }
    }
  }
  return {};
}

}  // namespace

Status check_op(const Resolving& r, const Op& op) {
  TESSERA_TRY_VOID(check_blocks(r, op));
  const OpPlan& op_plan = r.out.ops[op.id.index()];
  const auto line = [&](const DimSplit& split) {
    return r.plan().splits[static_cast<size_t>(split.entry)].line;
  };
  for (size_t d = 0; d < op_plan.dims.size(); ++d) {
    const DimSplit& one = op_plan.dims[d];
    if (!one.split()) continue;
    for (size_t f = 0; f < d; ++f) {
      const DimSplit& two = op_plan.dims[f];
      if (!two.split()) continue;
      const DimSplit& first = line(one) < line(two) ? one : two;
      const DimSplit& second = line(one) < line(two) ? two : one;
      const auto dim_of = [&](const DimSplit& split) {
        return op.annotation.dims[&split == &one ? d : f].name;
      };
      for (AxisId axis : second.axes) {
        if (std::find(first.axes.begin(), first.axes.end(), axis) == first.axes.end()) continue;
        return r.error(
            line(second),
            fmt::format("axis '{}' splits two dims of op '{}': '{}' (line {}) and '{}' (line {})",
                        r.mesh_of(op.id).axis(axis).name, op.path, dim_of(first), line(first),
                        dim_of(second), line(second)));
      }
      if ((first.steps > 1 || first.rims) && (second.steps > 1 || second.rims) &&
          !(first.rims && second.rims)) {
        return r.error(
            line(second),
            fmt::format("op '{}' has two time loops: over '{}' (line {}) and '{}' (line {})",
                        op.path, dim_of(first), line(first), dim_of(second), line(second)));
      }
    }
  }
  return {};
}

}  // namespace tessera
