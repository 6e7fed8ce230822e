// Split entries: which dims of which ops are cut, and how.
#include "tessera/plan/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/plan/resolve/ahead_split.h"

namespace tessera {
namespace {

// Returns the split of entry `e` on the mesh; nothing if the mesh lacks an axis of the entry.
std::optional<DimSplit> split_on(const Resolving& r, const Mesh& mesh, size_t e) {
  const SplitEntry& entry = r.plan().splits[e];
  DimSplit split;
  split.steps = entry.steps;
  split.order = entry.order;
  split.rims = entry.rims;
  split.computes_halo = entry.computes_halo;
  split.entry = static_cast<int>(e);
  for (const std::string& name : entry.over) split.axes.push_back(mesh.find(name));
  for (const std::string& name : entry.skew) {
    const bool falls = name.starts_with("-");
    split.skew.push_back({mesh.find(name.substr(falls ? 1 : 0)), falls});
  }
  for (AxisId axis : split.axes) {
    if (!axis.valid()) return std::nullopt;
  }
  for (const SkewAxis& skew : split.skew) {
    if (!skew.axis.valid()) return std::nullopt;
  }
  // An axis of one rank shifts nothing.
  std::erase_if(split.skew, [&](const SkewAxis& skew) { return mesh.axis(skew.axis).size == 1; });
  if (split.skew.empty()) split.order = StepOrder::kAligned;
  return split;
}

// Checks that a nested loop has one step for each combination of coordinates on its skew axes.
Status check_nested(const Resolving& r, const SplitEntry& entry, const DimSplit& split,
                    const Mesh& mesh) {
  if (split.order != StepOrder::kNested) return {};
  int64_t product = 1;
  for (const SkewAxis& skew : split.skew) product *= mesh.axis(skew.axis).size;
  if (product == split.steps) return {};
  return r.error(entry.line,
                 fmt::format("expected time:{} (the product of the axes in skew = \"{}\"), found "
                             "time:{}",
                             product, join(entry.skew, ", "), split.steps));
}

// Checks that no axis cuts a dim over which the op makes weighted parts. Only a time loop may cut
// it, because the op itself merges such parts; at each step it has the values and their weights.
Status check_space(const Resolving& r, const SplitEntry& entry, const DimSplit& split, const Op& op,
                   size_t dim) {
  if (pieces(split, r.mesh_of(op.id)) == split.steps) return {};
  for (size_t o = 0; o < op.outputs.size(); ++o) {
    const bool weighted = op.annotation.outputs[o].combiner == Combiner::kWeighted;
    if (!weighted || !op.annotation.reduces(static_cast<int>(dim), o)) continue;
    return r.error(entry.line,
                   fmt::format("dim '{}' of op '{}' ({}) cannot be cut over '{}': expected "
                               "over = \"time:N\", or no split",
                               entry.dim, op.path, op.kind, join(entry.over, ", ")));
  }
  return {};
}

tl::unexpected<Error> lacks_dim(const Resolving& r, const SplitEntry& entry,
                                const std::vector<OpId>& selected) {
  std::set<std::string> names;
  for (OpId id : selected) {
    for (const OpDim& dim : r.graph.op(id).annotation.dims) names.insert(dim.name);
  }
  const std::string best = nearest(entry.dim, std::vector<std::string>(names.begin(), names.end()));
  const Op* shown = &r.graph.op(selected.front());  // the first op that has the suggested dim
  for (OpId id : selected) {
    if (r.graph.op(id).annotation.find(best) < 0) continue;
    shown = &r.graph.op(id);
    break;
  }
  std::vector<std::string> dims;
  for (const OpDim& dim : shown->annotation.dims) dims.push_back(dim.name);
  return r.error(
      entry.line,
      fmt::format("no op that ops = \"{}\" selects has the dim '{}': op '{}' has ({}){}", entry.ops,
                  entry.dim, shown->path, join(dims, ", "), suggestion(best)));
}

tl::unexpected<Error> cuts_frozen(const Resolving& r, const SplitEntry& entry, const Op& op) {
  std::vector<std::string> free;
  for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
    if (!is_frozen(op, d)) free.push_back(op.annotation.dims[d].name);
  }
  return r.error(
      entry.line,
      fmt::format("dim '{}' of op '{}' ({}) cannot be split; dims that can: {}", entry.dim, op.path,
                  op.kind, free.empty() ? "none" : join(free, ", ")));
}

}  // namespace

Status apply_split(const Resolving& r, size_t e) {
  const SplitEntry& entry = r.plan().splits[e];
  if (is_ahead(entry)) return {};  // moves ops (prepare.h)
  TESSERA_TRY(const auto selected,
              r.selection.ops(entry.ops, entry.phase.value_or(Phase::kForward), entry.line));
  OpId with_dim, without_axis, frozen, windowed;
  StageId stage;  // the one whose mesh `split` is for
  std::optional<DimSplit> split;
  bool applied = false;
  for (OpId id : selected) {
    const Op& op = r.graph.op(id);
    const int dim = op.annotation.find(entry.dim);
    if (dim < 0) continue;
    if (!with_dim.valid()) with_dim = id;
    const Mesh& mesh = r.mesh_of(id);
    if (const StageId here = r.out.ops[id.index()].stage; here != stage) {
      split = split_on(r, mesh, e);
      stage = here;
    }
    if (!split) {
      if (!without_axis.valid()) without_axis = id;
      r.leave_whole(id, dim, e, WhyWhole::kNoAxis);
      continue;
    }
    const auto d = static_cast<size_t>(dim);
    TESSERA_TRY_VOID(check_nested(r, entry, *split, mesh));
    TESSERA_TRY_VOID(check_space(r, entry, *split, op, d));
    if (pieces(*split, mesh) > 1 && is_frozen(op, d)) {
      if (!expands(op, entry.dim)) {
        if (!frozen.valid()) frozen = id;
        r.leave_whole(id, dim, e, WhyWhole::kFrozen);
        continue;
      }
      r.out.to_expand.push_back(id);
    }
    if (split->steps > 1 && !split->skew.empty() && op.annotation.dims[d].window) {
      if (!windowed.valid()) windowed = id;
      r.leave_whole(id, dim, e, WhyWhole::kWindow);
      continue;
    }
    const int64_t size = op.annotation.dims[d].size;
    if (split->steps > size) {
      return r.error(
          entry.line,
          fmt::format("time:{} has more steps than dim '{}' of op '{}' has elements ({})",
                      split->steps, entry.dim, op.path, size));
    }
    r.out.ops[id.index()].dims[d] = *split;
    r.left_whole.erase({id, dim});
    applied = true;
  }
  if (applied) return {};
  if (!with_dim.valid()) return lacks_dim(r, entry, selected);
  if (frozen.valid()) return cuts_frozen(r, entry, r.graph.op(frozen));
  if (windowed.valid()) {
    const Op& op = r.graph.op(windowed);
    return r.error(entry.line, fmt::format("dim '{}' of op '{}' ({}) is read through windows: "
                                           "expected aligned steps, found time:{} with a skew",
                                           entry.dim, op.path, op.kind, entry.steps));
  }
  return r.error(
      entry.line,
      fmt::format("over = \"{}\": op '{}' runs on the mesh {} of stage {}, which lacks that axis",
                  join(entry.over, ", "), r.graph.op(without_axis).path,
                  r.mesh_of(without_axis).to_string(),
                  r.out.ops[without_axis.index()].stage.value));
}

}  // namespace tessera
