#include "tessera/plan/ahead_split.h"

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

bool is_stale(const Plan& plan) {
  return std::any_of(plan.splits.begin(), plan.splits.end(),
                     [](const SplitEntry& entry) { return is_ahead(entry) && stale(entry); });
}

Result<AheadOps> ops_ahead(const Plan& plan, const Graph& graph, GraphNames& names) {
  Selection selection(plan, graph, names);
  std::map<OpId, bool> found;
  for (const SplitEntry& entry : plan.splits) {
    if (!is_ahead(entry)) continue;
    if (plan.micro_batches > 1) {
      return plan_error(
          plan, entry.line,
          fmt::format(
              "dim \"step\": expected one micro-batch, as what is made ahead is kept for a "
              "whole batch, or loop = [{{ ops = \"*\", dim = \"{}\", steps = {} }}] in place "
              "of them, found micro_batches = {}",
              plan.micro_batch_dim, plan.micro_batches, plan.micro_batches));
    }
    if (plan.named_stages() > 1) {
      return plan_error(
          plan, entry.line,
          fmt::format("dim \"step\": expected one stage, found {}", plan.named_stages()));
    }
    TESSERA_TRY(const auto selected, selection.ops(entry.ops, Phase::kForward, entry.line));
    for (const OpId op : selected) found[op] = stale(entry);
  }
  AheadOps out;
  for (const auto& [op, is_old] : found) (is_old ? out.stale : out.exact).push_back(op);
  return out;
}

}  // namespace tessera
