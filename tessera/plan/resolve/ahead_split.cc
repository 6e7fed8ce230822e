#include "tessera/plan/resolve/ahead_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

namespace tessera {
namespace {

bool stale(const SplitEntry& entry) {
  return entry.over == std::vector<std::string>{std::string(kStale)};
}

}  // namespace

Status write_out_micro_batches(Plan& plan) {
  const auto entry = std::find_if(plan.splits.begin(), plan.splits.end(), is_ahead);
  if (entry == plan.splits.end() || plan.micro_batches == 1) return {};
  const bool looped = std::any_of(plan.loops.begin(), plan.loops.end(), [&](const LoopEntry& loop) {
    return loop.dim == plan.micro_batch_dim;
  });
  if (looped) return {};  // shape_forward reports that one of the two has to go
  constexpr std::string_view kOneAfterTheOther = "gpipe";
  const bool other = !plan.schedule_table.empty() || plan.schedule != kOneAfterTheOther;
  if (plan.schedule_line > 0 && plan.named_stages() > 1 && other) {
    return plan_error(
        plan, plan.schedule_line,
        fmt::format("schedule: expected \"{}\", found {}: beside dim \"{}\" (line {}) the {} "
                    "micro-batches are steps of a loop, all forward and then all backward",
                    kOneAfterTheOther,
                    plan.schedule_table.empty() ? fmt::format("\"{}\"", plan.schedule) : "a list",
                    kStepDim, entry->line, plan.micro_batches));
  }
  LoopEntry loop;
  loop.ops = "*";
  loop.dim = plan.micro_batch_dim;
  loop.steps = plan.micro_batches;
  loop.line = plan.micro_batches_line;
  plan.loops.push_back(std::move(loop));
  plan.micro_batches = 1;
  plan.schedule = kOneAfterTheOther;
  return {};
}

Result<AheadOps> ops_ahead(const Plan& plan, const Graph& graph, GraphNames& names) {
  Selection selection(plan, graph, names);
  std::map<OpId, bool> found;
  for (const SplitEntry& entry : plan.splits) {
    if (!is_ahead(entry)) continue;
    TESSERA_TRY(const auto selected, selection.ops(entry.ops, Phase::kForward, entry.line));
    for (const OpId op : selected) found[op] = stale(entry);
  }
  AheadOps out;
  for (const auto& [op, is_old] : found) (is_old ? out.stale : out.exact).push_back(op);
  return out;
}

}  // namespace tessera
