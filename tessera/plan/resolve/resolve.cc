// Applies a plan to a graph: first stages (stages.h), which decide to which mesh the axes of an
// entry belong, then splits and stores. Time: entries x (distinct path prefixes + selected ops).
#include "tessera/plan/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/limits.h"
#include "tessera/graph/kinds.h"
#include "tessera/plan/islands.h"
#include "tessera/plan/micro_batches.h"
#include "tessera/plan/resolve/halos.h"
#include "tessera/plan/resolve/update_expansions.h"

namespace tessera {

bool is_frozen(const Op& op, size_t dim) {
  if (op.annotation.dims[dim].mark == Mark::kFrozen) return true;
  for (const auto* operands : {&op.annotation.inputs, &op.annotation.outputs}) {
    for (const OperandDims& operand : *operands) {
      for (const DimGroup& group : operand.dims) {
        for (size_t i = 1; i < group.size(); ++i) {
          if (static_cast<size_t>(group[i]) == dim) return true;
        }
      }
    }
  }
  return false;
}

bool expands(const Op& op, const std::string& dim) {
  const KindInfo* kind = op.info;
  if (kind == nullptr || kind->expandable == nullptr || !kind->expand) return false;
  const std::vector<std::string> names = kind->expandable(op);
  return std::find(names.begin(), names.end(), dim) != names.end();
}
int64_t pieces(const DimSplit& split, const Mesh& mesh) {
  int64_t count = split.steps;
  for (AxisId axis : split.axes) count *= mesh.axis(axis).size;
  return count;
}

namespace {

// Drops ops from `to_expand` whose frozen dims are not split after all, because a later entry
// overrode the split.
void drop_overridden_expansions(const Resolving& r) {
  std::erase_if(r.out.to_expand, [&](OpId id) {
    const Op& op = r.graph.op(id);
    const std::vector<DimSplit>& splits = r.out.ops[id.index()].dims;
    for (size_t d = 0; d < splits.size(); ++d) {
      if (pieces(splits[d], r.mesh_of(id)) > 1 && is_frozen(op, d)) return false;
    }
    return true;
  });
}

// Applies the split entries of forward ops if `forward`, else those of the other phases.
Status apply_split_entries(const Resolving& r, bool forward) {
  for (size_t e = 0; e < r.plan().splits.size(); ++e) {
    if ((r.plan().splits[e].phase.value_or(Phase::kForward) == Phase::kForward) == forward)
      TESSERA_TRY_VOID(apply_split(r, e));
  }
  return apply_pins(r, forward);
}

Status apply_splits(const Resolving& r) {
  // Backward ops inherit from forward entries; entries with another phase then override that.
  TESSERA_TRY_VOID(apply_split_entries(r, true));
  for (const Op& op : r.graph.ops()) {
    if (op.phase == Phase::kBackward && op.mirror.valid()) inherit(r, op);
  }
  TESSERA_TRY_VOID(apply_split_entries(r, false));
  for (const Op& op : r.graph.ops()) TESSERA_TRY_VOID(settle_pins(r, op));
  for (const Op& op : r.graph.ops()) TESSERA_TRY_VOID(check_op(r, op));
  for (const auto& [where, left] : r.left_whole) r.out.left_whole.push_back(left);
  std::vector<OpId>& to_expand = r.out.to_expand;
  std::sort(to_expand.begin(), to_expand.end());
  to_expand.erase(std::unique(to_expand.begin(), to_expand.end()), to_expand.end());
  drop_overridden_expansions(r);
  for (const OpId id : updates_to_expand(r.graph, r.out.ops)) to_expand.push_back(id);
  settle_halos(r.graph, r.out);
  return {};
}

}  // namespace

Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph, GraphNames& names) {
  if (plan.outer) return tl::unexpected(refuse_outer_steps(plan));
  ResolvedPlan out;
  out.plan = plan;
  out.ops.resize(graph.ops().size());
  out.tensors.resize(graph.tensors().size());
  for (const Op& op : graph.ops()) out.ops[op.id.index()].dims.resize(op.annotation.dims.size());
  TESSERA_TRY(const auto meshes, stage_meshes(plan));
  out.ranks = plan.ranks();
  if (out.ranks > kMostRanks) {
    return invalid_input(fmt::format("{}: expected at most {} ranks over all stages, found {}",
                                     plan.file, kMostRanks, out.ranks));
  }
  TESSERA_TRY(out.devices, rank_devices(plan));
  make_places(out, meshes);
  TESSERA_TRY_VOID(check_micro_batches(plan, graph));
  Selection selection(plan, graph, names);
  Stages stages(plan, graph, out);
  TESSERA_TRY_VOID(stages.assign(selection));
  TESSERA_TRY_VOID(stages.check());
  TESSERA_TRY(out.schedule, plan_schedule(plan, pipeline_shape(out, graph)));
  std::map<std::pair<OpId, int>, LeftWhole> left_whole;
  const Resolving r{graph, selection, stages, out, left_whole};
  TESSERA_TRY_VOID(apply_splits(r));
  TESSERA_TRY_VOID(apply_stores(r));
  TESSERA_TRY_VOID(apply_compress(r));
  return out;
}

Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph) {
  GraphNames names(graph);
  return resolve(plan, graph, names);
}

}  // namespace tessera
