#include "tessera/plan/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/transform.h"
#include "tessera/plan/selector.h"

namespace tessera {

namespace {

// The forward ops that `pattern` selects and that have an expansion.
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
    const KindInfo* kind = find_kind(op.kind);
    if (kind != nullptr && kind->expand) out.push_back(op.id);
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

}  // namespace

Result<Graph> transform_forward(const Graph& forward, const Plan& plan) {
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

Result<Prepared> prepare(const Graph& differentiated, const Plan& plan) {
  // Expansions first, so that clones are of expanded ops. Each round frees dims for good; a few are
  // enough.
  constexpr int kMostRounds = 8;
  Prepared prepared;
  prepared.graph = differentiated;
  for (int round = 0; round < kMostRounds; ++round) {
    TESSERA_TRY(prepared.plan, resolve(plan, prepared.graph));
    if (!prepared.plan.to_expand.empty()) {
      TESSERA_TRY(prepared.graph, expand_ops(prepared.graph, prepared.plan.to_expand));
    } else if (!prepared.plan.to_recompute.empty()) {
      TESSERA_TRY(prepared.graph, recompute_ops(prepared.graph, prepared.plan.to_recompute));
    } else {
      return prepared;
    }
  }
  TESSERA_CHECK(false, "the graph '{}' still wants transforms after {} rounds", differentiated.name,
                kMostRounds);
}

}  // namespace tessera
