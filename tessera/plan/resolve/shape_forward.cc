// Applies a plan to the forward graph, one transform after the other.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/carried.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/transform.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/resolve/selector.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::string nearest_input(const std::string& wanted, const std::set<std::string>& known) {
  const std::string best = nearest(wanted, Names(known.begin(), known.end()));
  return best.empty() ? "" : fmt::format(", did you mean '{}'?", best);
}

class Loop {
 public:
  Loop(const Graph& graph, const Plan& plan, const LoopEntry& entry)
      : graph_(graph), plan_(plan), entry_(entry), paths_(op_paths(graph)) {}

  Result<Graph> run() {
    TESSERA_TRY_VOID(select());
    Unrolling how;
    how.dim = entry_.dim;
    how.recompute = entry_.recompute;
    how.stages = entry_.stages;
    set_blocks(how);
    how.sizes = entry_.sizes;
    how.steps = entry_.steps;
    auto unrolled = unroll(graph_, selected_, how);
    if (!unrolled) return error(unrolled.error().message);
    return unrolled;
  }

 private:
  static std::vector<std::string_view> op_paths(const Graph& graph) {
    std::vector<std::string_view> paths;
    for (const Op& op : graph.ops()) paths.push_back(op.path);
    return paths;
  }

  tl::unexpected<Error> error(const std::string& message) const {
    return invalid_input(entry_.line > 0
                             ? fmt::format("{}:{}: {}", plan_.file, entry_.line, message)
                             : fmt::format("{}: {}", plan_.file, message));
  }

  Status select() {
    if (plan_.micro_batches > 1 && entry_.dim == plan_.micro_batch_dim) {
      return error(
          fmt::format("micro_batches = {} cut dim '{}' already: a loop over it needs "
                      "micro_batches = 1",
                      plan_.micro_batches, entry_.dim));
    }
    selected_ = paths_.select(entry_.ops);
    std::set<std::string> paths, dims;
    bool any = false, found = false;
    for (const Op& op : graph_.ops()) {
      paths.insert(op.path);
      paths.insert(op.path.substr(0, op.path.find('.')));
      if (!selected_[op.id.index()]) continue;
      any = true;
      for (const OpDim& dim : op.annotation.dims) dims.insert(dim.name);
      const int d = op.annotation.find(entry_.dim);
      if (d < 0) continue;
      TESSERA_TRY_VOID(check_sizes(op, op.annotation.dims[static_cast<size_t>(d)].size));
      found = true;
    }
    if (!any) {
      return error(fmt::format("ops = \"{}\" selects no forward op{}", entry_.ops,
                               nearest_input(entry_.ops, paths)));
    }
    if (found) return {};
    return error(fmt::format("no op that ops = \"{}\" selects has the dim '{}'{}", entry_.ops,
                             entry_.dim, nearest_input(entry_.dim, dims)));
  }

  Status check_sizes(const Op& op, int64_t size) const {
    const int64_t sum = std::accumulate(entry_.sizes.begin(), entry_.sizes.end(), int64_t{0});
    if (entry_.sizes.empty() || size % sum == 0) return {};
    return error(
        fmt::format("expected sizes that add up to {}, the size of dim '{}' of op '{}', found the "
                    "sum {}",
                    size, entry_.dim, op.path, sum));
  }

  // Sets `blocks`, the number of shards into which the plan splits the loop's dim in the selected
  // ops. A step then takes a part of every shard, so that each rank finds its piece in the shard
  // that it has. If a selected op is causal along the dim, or if the dim is the rows of a table,
  // `blocks` is 1, because each step must then take an interval of the dim. If the shards are cut
  // over several axes, they must have equal sizes; `even_blocks` is the error otherwise.
  void set_blocks(Unrolling& how) {
    // Sizes of the axes that cut the dim, one vector for each way.
    std::set<std::vector<int64_t>> cuts;
    for (const Op& op : graph_.ops()) {
      const int d = selected_[op.id.index()] ? op.annotation.find(entry_.dim) : -1;
      if (d < 0) continue;
      const auto in_order = [&](const OpDim& dim) { return dim.causal_of == d; };
      // The steps cut the rows of a table into tables of their own, each of which the plan
      // cuts separately.
      const bool rows = looks_up_rows(op) && op.annotation.inputs[1].dims[0] == DimGroup{d};
      if (rows || std::ranges::any_of(op.annotation.dims, in_order)) {
        how.blocks = 1;
        return;
      }
      const std::vector<int64_t> own = cut_of(op);
      if (own.empty()) continue;
      cuts.insert(own);
      how.blocks = std::lcm(
          how.blocks, std::accumulate(own.begin(), own.end(), int64_t{1}, std::multiplies<>()));
    }
    const bool one_axis = cuts.size() == 1 && cuts.begin()->size() == 1;
    if (!one_axis && how.blocks > 1) {
      how.even_blocks = fmt::format(
          "is split over {} ranks by several axes, and they do not divide it: a loop over it needs "
          "equal shards, or shards over one axis",
          how.blocks);
    }
  }

  // Returns the sizes of the axes that cut the loop's dim in the op, without axes of size 1.
  std::vector<int64_t> cut_of(const Op& op) {
    std::vector<int64_t> sizes;
    for (const SplitEntry& split : plan_.splits) {
      if (split.dim != entry_.dim || split.phase.value_or(Phase::kForward) != Phase::kForward ||
          !paths_.select(split.ops)[op.id.index()]) {
        continue;
      }
      sizes.clear();
      for (const std::string& axis : split.over) {
        if (const int64_t size = axis_size(axis); size > 1) sizes.push_back(size);
      }
    }
    return sizes;
  }

  int64_t axis_size(const std::string& name) const {
    int64_t size = 1;
    const auto look = [&](const std::vector<std::pair<std::string, int64_t>>& mesh) {
      for (const auto& [axis, axis_size] : mesh) {
        if (axis == name) size = std::lcm(size, axis_size);
      }
    };
    std::map<int64_t, bool> has_own;  // by stage: whether some entry gives it a mesh of its own
    for (const StageEntry& stage : plan_.stages) {
      look(stage.mesh);
      has_own[stage.at] = has_own[stage.at] || !stage.mesh.empty();
    }
    const bool all_own =
        !has_own.empty() &&
        std::all_of(has_own.begin(), has_own.end(), [](const auto& own) { return own.second; });
    if (!all_own) look(plan_.mesh);
    return size;
  }

  const Graph& graph_;
  const Plan& plan_;
  const LoopEntry& entry_;
  PathIndex paths_;
  std::vector<bool> selected_;  // by op: whether the loop has it
};

// Returns the forward ops that `pattern` selects and that have an expansion.
Result<std::vector<OpId>> select_expandable(const Plan& plan, const std::string& pattern,
                                            const Graph& forward) {
  std::vector<std::string_view> paths;
  for (const Op& op : forward.ops()) paths.push_back(op.path);
  PathIndex index(paths);
  const std::vector<bool>& hit = index.select(pattern);
  std::vector<OpId> out;
  const Op* found = nullptr;
  for (const Op& op : forward.ops()) {
    if (!hit[op.id.index()]) continue;
    found = found == nullptr ? &op : found;
    const KindInfo* kind = op.info;
    // Expansions that free a frozen dim are left out here. prepare makes those that a split needs.
    if (kind != nullptr && kind->expand && kind->expandable == nullptr) out.push_back(op.id);
  }
  if (!out.empty()) return out;
  std::vector<std::string> names(paths.begin(), paths.end());
  const std::string what =
      found == nullptr ? fmt::format("no forward op, did you mean '{}'?", nearest(pattern, names))
                       : fmt::format("no op that can be taken apart, only such as '{}' ({})",
                                     found->path, found->kind);
  return invalid_input(
      fmt::format("{}:{}: expand = \"{}\" selects {}", plan.file, plan.expand_line, pattern, what));
}

// Returns the graph after the expansions and the reorderings that the plan asks for.
Result<Graph> apart_and_reordered(const Graph& forward, const Plan& plan) {
  Graph graph = forward;
  std::vector<OpId> expand;
  for (const std::string& pattern : plan.expand) {
    TESSERA_TRY(const auto selected, select_expandable(plan, pattern, forward));
    expand.insert(expand.end(), selected.begin(), selected.end());
  }
  std::sort(expand.begin(), expand.end());
  expand.erase(std::unique(expand.begin(), expand.end()), expand.end());
  if (!expand.empty()) {
    TESSERA_TRY(graph, expand_ops(graph, expand));
  }
  for (const ReorderEntry& entry : plan.reorders) {
    auto reordered = reorder_dim(graph, entry.dim, entry.order());
    if (!reordered) {
      return invalid_input(
          fmt::format("{}:{}: {}", plan.file, entry.line, reordered.error().message));
    }
    graph = std::move(*reordered);
  }
  return graph;
}

}  // namespace

Result<Graph> shape_forward(const Graph& forward, const Plan& plan, std::optional<DType> compute,
                            std::optional<DType> parameter) {
  if (has_updates(forward)) {
    TESSERA_TRY(const WithoutUpdates parts, without_updates(forward));
    TESSERA_TRY(Graph shaped, shape_forward(parts.forward, plan, compute, parameter));
    return with_updates(std::move(shaped), parts.updates);
  }
  TESSERA_TRY(Graph graph, apart_and_reordered(forward, plan));
  if (compute) {
    TESSERA_TRY(graph, apply_precision(graph, *compute, parameter));
  }
  for (const LoopEntry& entry : plan.loops) {
    TESSERA_TRY(graph, Loop(graph, plan, entry).run());
  }
  return graph;
}

}  // namespace tessera
