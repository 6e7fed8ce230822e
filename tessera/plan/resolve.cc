// Applies a plan to a graph: first stages (stages.h), which decide to which mesh the axes of an
// entry belong, then splits and stores. Time: entries x (distinct path prefixes + selected ops).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/ahead_split.h"
#include "tessera/plan/halos.h"
#include "tessera/plan/islands.h"
#include "tessera/plan/micro_batches.h"
#include "tessera/plan/selection.h"
#include "tessera/plan/stages.h"
#include "tessera/plan/update_expansions.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// Returns for each op dim whether it is frozen. It is frozen if its mark says so, or if it is a
// later dim of a bracket, because only the first dim of a bracket may be split.
std::vector<bool> frozen_dims(const Op& op) {
  std::vector<bool> frozen;
  for (const OpDim& dim : op.annotation.dims) frozen.push_back(dim.mark == Mark::kFrozen);
  for (const auto* operands : {&op.annotation.inputs, &op.annotation.outputs}) {
    for (const OperandDims& operand : *operands) {
      for (const DimGroup& group : operand.dims) {
        for (size_t i = 1; i < group.size(); ++i) frozen[static_cast<size_t>(group[i])] = true;
      }
    }
  }
  return frozen;
}

bool expands(const Op& op, const std::string& dim) {
  const KindInfo* kind = op.info;
  if (kind == nullptr || kind->expandable == nullptr || !kind->expand) return false;
  const Names names = kind->expandable(op);
  return std::find(names.begin(), names.end(), dim) != names.end();
}

class Resolver {
 public:
  Resolver(const Plan& plan, const Graph& graph, GraphNames& names)
      : graph_(graph), selection_(plan, graph, names), stages_(plan, graph, out_) {
    out_.plan = plan;
    out_.ops.resize(graph.ops().size());
    out_.tensors.resize(graph.tensors().size());
    for (const Op& op : graph.ops()) out_.ops[op.id.index()].dims.resize(op.annotation.dims.size());
  }

  Result<ResolvedPlan> run() {
    if (plan().outer) return tl::unexpected(refuse_outer_steps(plan()));
    TESSERA_TRY(const auto meshes, stage_meshes(plan()));
    out_.ranks = plan().ranks();
    if (out_.ranks > kMostRanks) {
      return invalid_input(fmt::format("{}: expected at most {} ranks over all stages, found {}",
                                       plan().file, kMostRanks, out_.ranks));
    }
    TESSERA_TRY(out_.devices, rank_devices(plan()));
    make_places(out_, meshes);
    TESSERA_TRY_VOID(check_micro_batches(plan(), graph_));
    TESSERA_TRY_VOID(stages_.assign(selection_));
    TESSERA_TRY_VOID(stages_.check());
    TESSERA_TRY(out_.schedule, plan_schedule(plan(), pipeline_shape(out_, graph_)));
    TESSERA_TRY_VOID(apply_splits());
    TESSERA_TRY_VOID(apply_stores());
    TESSERA_TRY_VOID(apply_compress());
    return std::move(out_);
  }

 private:
  const Plan& plan() const { return out_.plan; }
  const Mesh& mesh_of(OpId op) const {
    return out_.stages[out_.ops[op.index()].stage.index()].mesh;
  }

  tl::unexpected<Error> error(int line, const std::string& message) const {
    return plan_error(plan(), line, message);
  }

  // ---- splits
  Status apply_splits() {
    // Backward ops inherit from forward entries; entries with another phase then override that.
    for (size_t e = 0; e < plan().splits.size(); ++e) {
      if (plan().splits[e].phase.value_or(Phase::kForward) == Phase::kForward)
        TESSERA_TRY_VOID(apply_split(e));
    }
    TESSERA_TRY_VOID(apply_pins(true));
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::kBackward && op.mirror.valid()) inherit(op);
    }
    for (size_t e = 0; e < plan().splits.size(); ++e) {
      if (plan().splits[e].phase.value_or(Phase::kForward) != Phase::kForward)
        TESSERA_TRY_VOID(apply_split(e));
    }
    TESSERA_TRY_VOID(apply_pins(false));
    for (const Op& op : graph_.ops()) TESSERA_TRY_VOID(settle_pins(op));
    for (const Op& op : graph_.ops()) TESSERA_TRY_VOID(check_op(op));
    for (const auto& [where, left] : left_whole_) out_.left_whole.push_back(left);
    std::sort(out_.to_expand.begin(), out_.to_expand.end());
    const auto last = std::unique(out_.to_expand.begin(), out_.to_expand.end());
    out_.to_expand.erase(last, out_.to_expand.end());
    drop_overridden_expansions();
    for (const OpId id : updates_to_expand(graph_, out_.ops)) out_.to_expand.push_back(id);
    settle_halos(graph_, out_);
    return {};
  }

  // ---- pins
  // Applies the pin entries of forward ops if `forward`, else those of the other phases.
  Status apply_pins(bool forward) {
    for (const PinEntry& entry : plan().pins) {
      if ((entry.phase.value_or(Phase::kForward) == Phase::kForward) == forward)
        TESSERA_TRY_VOID(apply_pin(entry));
    }
    return {};
  }

  Status apply_pin(const PinEntry& entry) {
    TESSERA_TRY(const auto selected,
                selection_.ops(entry.ops, entry.phase.value_or(Phase::kForward), entry.line));
    OpId without_axis, without_dims;
    bool applied = false;
    for (OpId id : selected) {
      const Mesh& mesh = mesh_of(id);
      const AxisId axis = mesh.find(entry.axis);
      if (!axis.valid()) {
        if (!without_axis.valid()) without_axis = id;
        continue;
      }
      if (entry.at >= mesh.axis(axis).size) {
        return error(entry.line,
                     fmt::format("at = {}: expected a coordinate below {}, the size of axis '{}'",
                                 entry.at, mesh.axis(axis).size, entry.axis));
      }
      if (graph_.op(id).annotation.dims.empty()) {  // no rank would have an empty part of it
        if (!without_dims.valid()) without_dims = id;
        continue;
      }
      pin(out_.ops[id.index()], {axis, entry.at});
      applied = true;
    }
    if (applied) return {};
    if (without_dims.valid()) {
      return error(entry.line,
                   fmt::format("op '{}' ({}) has no dims: every rank computes it",
                               graph_.op(without_dims).path, graph_.op(without_dims).kind));
    }
    return error(
        entry.line,
        fmt::format("axis = \"{}\": op '{}' runs on the mesh {} of stage {}, which lacks "
                    "that axis",
                    entry.axis, graph_.op(without_axis).path, mesh_of(without_axis).to_string(),
                    out_.ops[without_axis.index()].stage.value));
  }

  static void pin(OpPlan& to, AxisPin pin) {
    std::erase_if(to.at, [&](const AxisPin& other) { return other.axis == pin.axis; });
    to.at.push_back(pin);
    std::sort(to.at.begin(), to.at.end());
  }

  // Removes the axis of each pin from the splits of the op, so that a pin overrides split entries.
  // A time loop that is skewed by that axis is an error.
  Status settle_pins(const Op& op) {
    OpPlan& plan_of_op = out_.ops[op.id.index()];
    for (const AxisPin& pin : plan_of_op.at) {
      for (DimSplit& split : plan_of_op.dims) {
        erase_value(split.axes, pin.axis);
        if (std::none_of(split.skew.begin(), split.skew.end(),
                         [&](const SkewAxis& skew) { return skew.axis == pin.axis; }))
          continue;
        return error(plan().splits[static_cast<size_t>(split.entry)].line,
                     fmt::format("op '{}' is at one coordinate of axis '{}' alone ([[pin]]): "
                                 "expected no time loop that is skewed by it",
                                 op.path, mesh_of(op.id).axis(pin.axis).name));
      }
    }
    return {};
  }

  // Returns the split of entry `e` on the mesh; nothing if the mesh lacks an axis of the entry.
  std::optional<DimSplit> split_on(const Mesh& mesh, size_t e) const {
    const SplitEntry& entry = plan().splits[e];
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

  static int64_t pieces(const DimSplit& split, const Mesh& mesh) {
    int64_t count = split.steps;
    for (AxisId axis : split.axes) count *= mesh.axis(axis).size;
    return count;
  }

  Status apply_split(size_t e) {
    const SplitEntry& entry = plan().splits[e];
    if (is_ahead(entry)) return {};  // moves ops (prepare.h)
    TESSERA_TRY(const auto selected,
                selection_.ops(entry.ops, entry.phase.value_or(Phase::kForward), entry.line));
    OpId with_dim, without_axis, frozen, windowed;
    bool applied = false;
    for (OpId id : selected) {
      const Op& op = graph_.op(id);
      const int dim = op.annotation.find(entry.dim);
      if (dim < 0) continue;
      if (!with_dim.valid()) with_dim = id;
      const Mesh& mesh = mesh_of(id);
      const auto split = split_on(mesh, e);
      if (!split) {
        if (!without_axis.valid()) without_axis = id;
        leave_whole(id, dim, e, WhyWhole::kNoAxis);
        continue;
      }
      const auto d = static_cast<size_t>(dim);
      TESSERA_TRY_VOID(check_nested(entry, *split, mesh));
      TESSERA_TRY_VOID(check_space(entry, *split, op, d));
      if (pieces(*split, mesh) > 1 && frozen_dims(op)[d]) {
        if (!expands(op, entry.dim)) {
          if (!frozen.valid()) frozen = id;
          leave_whole(id, dim, e, WhyWhole::kFrozen);
          continue;
        }
        out_.to_expand.push_back(id);
      }
      if (split->steps > 1 && !split->skew.empty() && op.annotation.dims[d].window) {
        if (!windowed.valid()) windowed = id;
        leave_whole(id, dim, e, WhyWhole::kWindow);
        continue;
      }
      const int64_t size = op.annotation.dims[d].size;
      if (split->steps > size) {
        return error(
            entry.line,
            fmt::format("time:{} has more steps than dim '{}' of op '{}' has elements ({})",
                        split->steps, entry.dim, op.path, size));
      }
      out_.ops[id.index()].dims[d] = *split;
      left_whole_.erase({id, dim});
      applied = true;
    }
    if (applied) return {};
    if (!with_dim.valid()) return lacks_dim(entry, selected);
    if (frozen.valid()) return is_frozen(entry, graph_.op(frozen));
    if (windowed.valid()) {
      const Op& op = graph_.op(windowed);
      return error(entry.line, fmt::format("dim '{}' of op '{}' ({}) is read through windows: "
                                           "expected aligned steps, found time:{} with a skew",
                                           entry.dim, op.path, op.kind, entry.steps));
    }
    return error(
        entry.line,
        fmt::format("over = \"{}\": op '{}' runs on the mesh {} of stage {}, which lacks that axis",
                    join(entry.over, ", "), graph_.op(without_axis).path,
                    mesh_of(without_axis).to_string(), out_.ops[without_axis.index()].stage.value));
  }

  void leave_whole(OpId op, int dim, size_t entry, WhyWhole why) {
    left_whole_[{op, dim}] = {op, dim, static_cast<int>(entry), why};
  }

  // Checks that a nested loop has one step for each combination of coordinates on its skew axes.
  Status check_nested(const SplitEntry& entry, const DimSplit& split, const Mesh& mesh) const {
    if (split.order != StepOrder::kNested) return {};
    int64_t product = 1;
    for (const SkewAxis& skew : split.skew) product *= mesh.axis(skew.axis).size;
    if (product == split.steps) return {};
    return error(entry.line,
                 fmt::format("expected time:{} (the product of the axes in skew = \"{}\"), found "
                             "time:{}",
                             product, join(entry.skew, ", "), split.steps));
  }

  // Checks that no axis cuts a dim over which the op makes weighted parts. Only a time loop may cut
  // it, because the op itself merges such parts; at each step it has the values and their weights.
  Status check_space(const SplitEntry& entry, const DimSplit& split, const Op& op,
                     size_t dim) const {
    if (pieces(split, mesh_of(op.id)) == split.steps) return {};
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const bool weighted = op.annotation.outputs[o].combiner == Combiner::kWeighted;
      if (!weighted || !op.annotation.reduces(static_cast<int>(dim), o)) continue;
      return error(entry.line,
                   fmt::format("dim '{}' of op '{}' ({}) cannot be cut over '{}': expected "
                               "over = \"time:N\", or no split",
                               entry.dim, op.path, op.kind, join(entry.over, ", ")));
    }
    return {};
  }

  tl::unexpected<Error> lacks_dim(const SplitEntry& entry,
                                  const std::vector<OpId>& selected) const {
    std::set<std::string> names;
    for (OpId id : selected) {
      for (const OpDim& dim : graph_.op(id).annotation.dims) names.insert(dim.name);
    }
    const std::string best = nearest(entry.dim, Names(names.begin(), names.end()));
    const Op* shown = &graph_.op(selected.front());  // the first op that has the suggested dim
    for (OpId id : selected) {
      if (graph_.op(id).annotation.find(best) < 0) continue;
      shown = &graph_.op(id);
      break;
    }
    Names dims;
    for (const OpDim& dim : shown->annotation.dims) dims.push_back(dim.name);
    return error(
        entry.line,
        fmt::format("no op that ops = \"{}\" selects has the dim '{}': op '{}' has ({}){}",
                    entry.ops, entry.dim, shown->path, join(dims, ", "), suggestion(best)));
  }

  tl::unexpected<Error> is_frozen(const SplitEntry& entry, const Op& op) const {
    Names free;
    const std::vector<bool> frozen = frozen_dims(op);
    for (size_t d = 0; d < frozen.size(); ++d) {
      if (!frozen[d]) free.push_back(op.annotation.dims[d].name);
    }
    return error(
        entry.line,
        fmt::format("dim '{}' of op '{}' ({}) cannot be split; dims that can: {}", entry.dim,
                    op.path, op.kind, free.empty() ? "none" : join(free, ", ")));
  }

  // Replaces the axes of the split by those of the same names in the mesh of stage `to`. Returns
  // false if an axis is missing there or has another size.
  bool move_split(DimSplit& split, StageId from, StageId to) const {
    const Mesh& here = out_.stages[from.index()].mesh;
    const Mesh& there = out_.stages[to.index()].mesh;
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

  // Gives a view the splits of its operand and returns true if another backward op of the same
  // mirror makes the operand in pieces. Dims are matched by position, because a derivative may
  // rename a dim that the forward op read by position. Returns false if the operand is made in
  // steps of a time loop, because its pieces are joined before the view.
  bool follow(const Op& op) {
    const OpId from = op.inputs.empty() ? OpId() : graph_.tensor(op.inputs[0]).producer;
    if (!info_of(op).view || !from.valid()) return false;
    const Op& maker = graph_.op(from);
    if (maker.mirror != op.mirror || maker.outputs.size() != 1) return false;
    const std::vector<DimGroup>&read = op.annotation.inputs[0].dims,
          &made = maker.annotation.outputs[0].dims;
    std::vector<std::pair<size_t, DimSplit>> cut;
    for (size_t t = 0; t < read.size(); ++t) {
      if (read[t].size() != 1 || made[t].size() != 1) return false;
      DimSplit split = out_.ops[from.index()].dims[static_cast<size_t>(made[t][0])];
      if (split.steps > 1) return false;
      split.rims = split.computes_halo = false;
      const StageId here = out_.ops[op.id.index()].stage, there = out_.ops[from.index()].stage;
      if (here != there && !move_split(split, there, here)) return false;
      if (split.split()) cut.emplace_back(static_cast<size_t>(read[t][0]), split);
    }
    for (const auto& [dim, split] : cut) out_.ops[op.id.index()].dims[dim] = split;
    if (!cut.empty()) inherit_pins(out_.ops[from.index()], out_.ops[op.id.index()]);
    return !cut.empty();
  }

  // Copies those pins of `from` to `to` whose axis the mesh of `to`'s stage has with the same size.
  void inherit_pins(const OpPlan& from, OpPlan& to) const {
    const Mesh &there = out_.stages[from.stage.index()].mesh,
               &here = out_.stages[to.stage.index()].mesh;
    for (const AxisPin& pin : from.at) {
      const MeshAxis& axis = there.axis(pin.axis);
      const AxisId found = here.find(axis.name);
      if (found.valid() && here.axis(found).size == axis.size)
        this->pin(to, {found, pin.coordinate});
    }
  }

  void inherit(const Op& op) {
    if (follow(op)) return;
    const Op& mirror = graph_.op(op.mirror);
    const OpPlan& from = out_.ops[op.mirror.index()];
    OpPlan& to = out_.ops[op.id.index()];
    if (!op.annotation.dims.empty()) inherit_pins(from, to);
    std::vector<bool> frozen;
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const OpDim& dim = op.annotation.dims[d];
      const int m = mirror.annotation.find(dim.name);
      if (m < 0) continue;
      DimSplit split = from.dims[static_cast<size_t>(m)];
      const auto leave = [&](WhyWhole why) {
        leave_whole(op.id, static_cast<int>(d), static_cast<size_t>(split.entry), why);
      };
      if (from.stage != to.stage && !move_split(split, from.stage, to.stage)) {
        leave(WhyWhole::kNoAxis);
        continue;
      }
      if (split.entry < 0 || split.steps > std::max<int64_t>(dim.size, 1)) continue;
      if (split.split() && pieces(split, mesh_of(op.id)) > 1) {
        if (frozen.empty()) frozen = frozen_dims(op);
        if (frozen[d]) {
          if (!expands(op, dim.name)) {
            leave(WhyWhole::kFrozen);
            continue;
          }
          out_.to_expand.push_back(op.id);
        }
      }
      to.dims[d] = split;
    }
  }

  // Checks dims whose elements are uneven shards, which a loop over a cut dim makes when it is
  // written out. Such a dim must be whole, or one axis must cut it into one piece for each shard.
  Status check_blocks(const Op& op) const {
    for (const auto* operands : {&op.annotation.inputs, &op.annotation.outputs}) {
      for (const OperandDims& operand : *operands) {
        for (const DimGroup& group : operand.dims) {
          if (uneven_extent(op.annotation.dims, group) < 0) continue;
          const auto d = static_cast<size_t>(group.front());
          const DimSplit& split = out_.ops[op.id.index()].dims[d];
          const OpDim& dim = op.annotation.dims[d];
          const int64_t found = pieces(split, mesh_of(op.id));
          if (found == 1 || (found == dim.size && split.axes.size() == 1)) continue;
          return error(plan().splits[static_cast<size_t>(split.entry)].line,
                       fmt::format("dim '{}' of op '{}' lies in {} uneven shards, each of which a "
                                   "loop takes in steps: expected no cut of it but over the one "
                                   "axis of {} ranks, found over = {} (op '{}'); a dim that {} "
                                   "divides may be cut so",
                                   dim.name, op.path.substr(0, op.path.find('@')), dim.size,
                                   dim.size, over_text(op, split), op.path, dim.size));
        }
      }
    }
    return {};
  }

  // Returns the value of `over` of a split as plans write it: ["a", "time:2"].
  std::string over_text(const Op& op, const DimSplit& split) const {
    std::vector<std::string> items;
    for (const AxisId axis : split.axes)
      items.push_back(fmt::format("\"{}\"", mesh_of(op.id).axis(axis).name));
    if (split.steps > 1) items.push_back(fmt::format("\"time:{}\"", split.steps));
    return fmt::format("[{}]", join(items, ", "));
  }

  // Checks that no axis cuts two dims of the op and that the op has at most one time loop; dims
  // with "time:rims" share one loop.
  Status check_op(const Op& op) const {
    TESSERA_TRY_VOID(check_blocks(op));
    const OpPlan& op_plan = out_.ops[op.id.index()];
    const auto line = [&](const DimSplit& split) {
      return plan().splits[static_cast<size_t>(split.entry)].line;
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
          return error(
              line(second),
              fmt::format("axis '{}' splits two dims of op '{}': '{}' (line {}) and '{}' (line {})",
                          mesh_of(op.id).axis(axis).name, op.path, dim_of(first), line(first),
                          dim_of(second), line(second)));
        }
        if ((first.steps > 1 || first.rims) && (second.steps > 1 || second.rims) &&
            !(first.rims && second.rims)) {
          return error(
              line(second),
              fmt::format("op '{}' has two time loops: over '{}' (line {}) and '{}' (line {})",
                          op.path, dim_of(first), line(first), dim_of(second), line(second)));
        }
      }
    }
    return {};
  }

  // Drops ops from `to_expand` whose frozen dims are not split after all, because a later entry
  // overrode the split.
  void drop_overridden_expansions() {
    std::erase_if(out_.to_expand, [&](OpId id) {
      const Op& op = graph_.op(id);
      const std::vector<bool> frozen = frozen_dims(op);
      for (size_t d = 0; d < frozen.size(); ++d) {
        if (frozen[d] && pieces(out_.ops[id.index()].dims[d], mesh_of(id)) > 1) return false;
      }
      return true;
    });
  }

  // ---- stores
  Status apply_stores() {
    for (const Tensor& tensor : graph_.tensors()) {
      TensorPlan& rule = out_.tensors[tensor.id.index()];
      rule.recompute = tensor.recompute;
      rule.home = stages_.home(tensor.id);
    }
    for (size_t e = 0; e < plan().stores.size(); ++e) {
      const StoreEntry& entry = plan().stores[e];
      TESSERA_TRY(const auto selected, selection_.tensors(entry));
      if (entry.over) TESSERA_TRY_VOID(apply_over(e, selected));
      if (entry.recompute) TESSERA_TRY_VOID(apply_recompute(e, selected));
      const auto share = entry.fraction ? share_of(selected, *entry.fraction) : selected;
      if (entry.keep) {
        for (TensorId id : share) out_.tensors[id.index()].keep = *entry.keep;
      }
      if (entry.keep_over) TESSERA_TRY_VOID(apply_keep_over(e, share));
      if (!entry.tier) continue;
      for (TensorId id : share) {
        TensorPlan& tensor = out_.tensors[id.index()];
        tensor.tier = entry.cache ? Tier::kDevice : *entry.tier;
        tensor.tier_entry = static_cast<int>(e);
        tensor.cache.reset();
        if (entry.cache) tensor.cache = TensorPlan::Cached{*entry.cache, *entry.tier};
      }
    }
    find_recomputed();
    return check_kept();
  }

  // Applies the compress entries. Integers and scalars (the loss, norms, flags) are not compressed.
  Status apply_compress() {
    for (const CompressEntry& entry : plan().compress) {
      StoreEntry selection;
      selection.tensors = entry.tensors;
      selection.line = entry.line;
      TESSERA_TRY(const auto selected, selection_.tensors(selection));
      bool applied = false;
      for (TensorId id : selected) {
        if (!is_floating(graph_.tensor(id).dtype) || graph_.tensor(id).dims.empty()) continue;
        applied = true;
        for (size_t edge = 0; edge < kEdges; ++edge) {
          if (entry.on == "*" || entry.on == edge_name(edge))
            out_.tensors[id.index()].compress[edge] = entry.with;
        }
      }
      if (applied) continue;
      const Tensor& first = graph_.tensor(selected.front());
      return error(entry.line, fmt::format("compress needs arrays of a floating dtype, but "
                                           "tensors = \"{}\" selects none: the first is {}",
                                           entry.tensors, describe(first)));
    }
    return {};
  }

  // Returns the parameter to which a gradient or an optimizer state belongs; any other tensor
  // belongs to itself. A `fraction` takes a parameter, its gradient and its state together.
  TensorId owner(TensorId id) const {
    const Tensor& tensor = graph_.tensor(id);
    const bool belongs = tensor.of.valid() && graph_.tensor(tensor.of).role == Role::kParameter;
    return belongs ? tensor.of : id;
  }

  // Returns the selected tensors whose first use is latest, as many as fit into the fraction of the
  // bytes of all selected tensors.
  std::vector<TensorId> share_of(const std::vector<TensorId>& selected, double fraction) const {
    std::vector<size_t> first_use(graph_.tensors().size(), graph_.ops().size());
    for (const Op& op : graph_.ops()) {
      for (TensorId input : op.inputs)
        first_use[input.index()] = std::min(first_use[input.index()], op.id.index());
    }
    struct Group {
      size_t first_use = 0;
      int64_t bytes = 0;
      std::vector<TensorId> tensors;
    };
    std::map<TensorId, Group> groups;
    int64_t total = 0;
    for (TensorId id : selected) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.update_of.valid()) continue;
      Group& group = groups[owner(id)];
      group.first_use = first_use[owner(id).index()];
      group.bytes += tensor.elements() * dtype_bytes(tensor.dtype);
      group.tensors.push_back(id);
      total += tensor.elements() * dtype_bytes(tensor.dtype);
    }
    std::vector<const Group*> order;
    for (const auto& [id, group] : groups) order.push_back(&group);
    std::stable_sort(order.begin(), order.end(),
                     [](const Group* a, const Group* b) { return a->first_use > b->first_use; });
    auto left = static_cast<int64_t>(std::llround(fraction * static_cast<double>(total)));
    std::vector<TensorId> share;
    for (const Group* group : order) {
      if (group->bytes > left) continue;
      left -= group->bytes;
      share.insert(share.end(), group->tensors.begin(), group->tensors.end());
    }
    return share;
  }

  Status apply_over(size_t e, const std::vector<TensorId>& selected) {
    const StoreEntry& entry = plan().stores[e];
    TensorId without_axis;
    bool applied = false;
    for (TensorId id : selected) {
      const Tensor& tensor = graph_.tensor(id);
      if (entry.dim && std::none_of(tensor.dims.begin(), tensor.dims.end(),
                                    [&](const Dim& dim) { return dim.name == *entry.dim; })) {
        continue;
      }
      const std::optional<OfPlace<Axes>> axes = axes_at_home(id, *entry.over);
      if (!axes) {
        if (!without_axis.valid()) without_axis = id;
        continue;
      }
      TensorPlan& tensor_plan = out_.tensors[id.index()];
      tensor_plan.over = *axes;
      tensor_plan.dim = entry.dim.value_or("");
      tensor_plan.has_over = true;
      tensor_plan.over_entry = static_cast<int>(e);
      applied = true;
    }
    if (applied) return {};
    if (without_axis.valid()) return lacks_axis(entry.line, "over", *entry.over, without_axis);
    std::set<std::string> names;
    for (TensorId id : selected) {
      for (const Dim& dim : graph_.tensor(id).dims) names.insert(dim.name);
    }
    return error(entry.line,
                 fmt::format("no tensor that tensors = \"{}\" selects has the dim '{}'{}",
                             entry.tensors, *entry.dim,
                             suggestion(nearest(*entry.dim, Names(names.begin(), names.end())))));
  }

  // Returns the axes with these names in the mesh of the tensor's home; nothing if one is missing.
  std::optional<OfPlace<Axes>> axes_at_home(TensorId id,
                                            const std::vector<std::string>& names) const {
    const Stage& home = home_of(id);
    Axes axes;
    for (const std::string& name : names) {
      axes.push_back(home.mesh.find(name));
      if (!axes.back().valid()) return std::nullopt;
    }
    return OfPlace<Axes>(home.place, std::move(axes));
  }

  const Stage& home_of(TensorId id) const {
    return out_.stages[out_.tensors[id.index()].home.index()];
  }

  Status apply_keep_over(size_t e, const std::vector<TensorId>& selected) {
    const StoreEntry& entry = plan().stores[e];
    bool applied = false;
    for (TensorId id : selected) {
      const std::optional<OfPlace<Axes>> axes = axes_at_home(id, *entry.keep_over);
      if (!axes) continue;
      out_.tensors[id.index()].keep_over = *axes;
      out_.tensors[id.index()].keep_over_entry = static_cast<int>(e);
      applied = true;
    }
    if (applied || selected.empty()) return {};
    return lacks_axis(entry.line, "keep_over", *entry.keep_over, selected.front());
  }

  // Checks that `keep_over` of a parameter has only axes over which the parameter is cut at rest.
  Status check_kept() const {
    for (const Tensor& tensor : graph_.tensors()) {
      const TensorPlan& rule = out_.tensors[tensor.id.index()];
      if (tensor.role != Role::kParameter || tensor.update_of.valid()) continue;
      const Stage& home = home_of(tensor.id);
      const Axes over = rule.has_over ? rule.over.at(home.place) : Axes();
      for (const AxisId axis : rule.keep_over.numbers()) {
        if (std::find(over.begin(), over.end(), axis) != over.end()) continue;
        const StoreEntry& entry = plan().stores[static_cast<size_t>(rule.keep_over_entry)];
        return error(
            entry.line,
            fmt::format("keep_over = \"{}\": parameter '{}' does not rest over axis '{}' "
                        "(store: over)",
                        join(*entry.keep_over, ", "), tensor.name, home.mesh.axis(axis).name));
      }
    }
    return {};
  }

  Status lacks_axis(int line, std::string_view key, const std::vector<std::string>& axes,
                    TensorId id) const {
    const StageId stage = out_.tensors[id.index()].home;
    return error(line, fmt::format("{} = \"{}\": tensor '{}' is at home on the mesh {} of stage "
                                   "{}, which lacks that axis",
                                   key, join(axes, ", "), graph_.tensor(id).name,
                                   out_.stages[stage.index()].mesh.to_string(), stage.value));
  }

  Status apply_recompute(size_t e, const std::vector<TensorId>& selected) {
    const StoreEntry& entry = plan().stores[e];
    const auto made_forward = [&](TensorId id) {
      const Tensor& tensor = graph_.tensor(id);
      return tensor.producer.valid() && graph_.op(tensor.producer).phase == Phase::kForward;
    };
    // A tensor that is computed from parameters alone (a narrow copy) is no activation. It is
    // computed again only if the entry selects no activation.
    const bool activations = std::any_of(selected.begin(), selected.end(), [&](TensorId id) {
      return made_forward(id) && !stages_.of_parameters(id);
    });
    bool applied = false;
    for (TensorId id : selected) {
      if (!made_forward(id) || (activations && stages_.of_parameters(id))) continue;
      out_.tensors[id.index()].recompute = *entry.recompute;
      out_.tensors[id.index()].recompute_entry = static_cast<int>(e);
      applied = true;
    }
    if (applied) return {};
    return error(
        entry.line,
        fmt::format("recompute needs activations, but tensors = \"{}\" selects none: '{}' is of "
                    "role {}",
                    entry.tensors, graph_.tensor(selected.front()).name,
                    role_name(graph_.tensor(selected.front()).role)));
  }

  // Sets `to_recompute`. It stays empty if no backward op reads a tensor that is to be recomputed
  // or that is needed to make one, so that nothing is left to do after the transform. A tensor that
  // another stage reads for its backward pass is kept, because that backward pass comes first.
  void find_recomputed() {
    std::vector<bool> read(graph_.tensors().size(), false), crosses(graph_.tensors().size(), false);
    const auto remade = [&](const Op& op) {
      return op.phase == Phase::kForward &&
             std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
               return out_.tensors[output.index()].recompute && read[output.index()] &&
                      !crosses[output.index()];
             });
    };
    for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
      if (op->phase != Phase::kBackward && !remade(*op)) continue;
      for (TensorId input : op->inputs) {
        read[input.index()] = true;
        const OpId producer = graph_.tensor(input).producer;
        if (producer.valid() &&
            out_.ops[producer.index()].stage != out_.ops[op->id.index()].stage) {
          crosses[input.index()] = true;
        }
      }
    }
    // If one of the tensors is read, all of them are recomputed, because a clone of one op may read
    // the output of another clone.
    bool wanted = false;
    std::vector<TensorId> not_kept;
    for (const Tensor& tensor : graph_.tensors()) {
      if (!out_.tensors[tensor.id.index()].recompute || crosses[tensor.id.index()] ||
          !tensor.producer.valid() || graph_.op(tensor.producer).phase != Phase::kForward) {
        continue;
      }
      not_kept.push_back(tensor.id);
      wanted = wanted || read[tensor.id.index()];
    }
    if (wanted) out_.to_recompute = std::move(not_kept);
  }

  const Graph& graph_;
  ResolvedPlan out_;
  std::map<std::pair<OpId, int>, LeftWhole> left_whole_;
  Selection selection_;
  Stages stages_;  // writes to out_
};

}  // namespace

Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph, GraphNames& names) {
  return Resolver(plan, graph, names).run();
}

Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph) {
  GraphNames names(graph);
  return resolve(plan, graph, names);
}

}  // namespace tessera
