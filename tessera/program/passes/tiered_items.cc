#include "tessera/program/passes/tiered_items.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tessera/plan/resolve/selector.h"
#include "tessera/program/passes/op_tiers.h"
#include "tessera/program/passes/prefetch.h"

namespace tessera {
namespace {

// Returns, for each position of an instruction, the position at which copies for this instruction
// are issued. This is the beginning of an earlier unit (prefetch.h), or, without units, the
// position of the reader before this one.
std::vector<size_t> issue_positions(const std::vector<TieredItem>& items, size_t size,
                                    BlockRef block, const Graph& graph, const ResolvedPlan& plan) {
  std::vector<bool> reads(size + 1, false);
  for (const TieredItem& item : items) reads[item.origin] = reads[item.origin] || item.ahead;
  std::vector<size_t> positions(size + 1, 0);
  size_t before = 0;
  for (size_t i = 0; i <= size; ++i) {
    positions[i] = before;
    if (reads[i]) before = i;
  }
  if (!plan.plan.prefetch || block.once()) return positions;
  const auto ahead = static_cast<size_t>(plan.plan.prefetch->ahead);
  const Glob glob(plan.plan.prefetch->units);
  std::vector<std::pair<std::string, size_t>> runs;
  for (const TieredItem& item : items) {
    if (item.inserted) continue;
    const auto* issue = std::get_if<TextIssue>(&item.instruction.body);
    const bool moved = issue != nullptr && issue->unit >= 0;
    const OpId cause = item.instruction.cause;
    const std::string unit = cause.valid() ? unit_of(glob, graph.op(cause).path) : "";
    if (!moved && !unit.empty() && (runs.empty() || runs.back().first != unit))
      runs.emplace_back(unit, item.origin);
    if (runs.empty() || (!moved && unit.empty())) continue;
    // A collective that was moved ahead is just before the first instruction of a unit. Its
    // copies are issued one unit earlier still.
    const size_t back = std::min(moved ? 0 : ahead, runs.size() - 1);
    positions[item.origin] = std::min(item.origin, runs[runs.size() - 1 - back].second);
  }
  return positions;
}

bool writes_to(const TextInstruction& instruction, int buffer) {
  bool found = false;
  for_each_view(instruction, [&](const TextView& view, bool writing) {
    found = found || (writing && view.buffer == buffer);
  });
  return found;
}

}  // namespace

std::vector<TextInstruction> issue_ahead(std::vector<TieredItem> items, size_t size, BlockRef block,
                                         const Graph& graph, const ResolvedPlan& plan) {
  const std::vector<size_t> positions = issue_positions(items, size, block, graph, plan);
  std::vector<std::pair<size_t, int>> target(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    target[i] = {i, 1};
    if (!items[i].ahead) continue;
    const int source = std::get<TextCopy>(items[i].instruction.body).from.buffer;
    size_t to = i;
    while (to > 0 && items[to - 1].origin >= positions[items[i].origin] &&
           !writes_to(items[to - 1].instruction, source)) {
      --to;
    }
    // If the instruction before writes the source and is still under way, the copy stays, because
    // it would wait there.
    const bool travels = to > 0 && writes_to(items[to - 1].instruction, source) &&
                         handle_of(items[to - 1].instruction) >= 0;
    target[i] = {travels ? i : to, 0};
  }
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return target[a] < target[b]; });
  std::vector<TextInstruction> text;
  for (size_t i : order) text.push_back(std::move(items[i].instruction));
  // An inserted instruction gets the order of writing of the instruction that follows it.
  for (size_t i = order.size(); i-- > 0;) {
    if (!items[order[i]].inserted) continue;
    text[i].order = i + 1 < order.size() ? text[i + 1].order : std::numeric_limits<int64_t>::max();
  }
  return text;
}

}  // namespace tessera
