// The pass that gathers tensors at rest ahead of their use (prefetch.h). It moves collectives that
// serve an op of a unit and read only tensors at rest. Fetches of a time loop's steps stay, because
// the purpose of such a loop is to hold only one piece at a time.
#include <algorithm>
#include <compare>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/resolve/selector.h"
#include "tessera/program/memory/touches.h"
#include "tessera/program/needs.h"
#include "tessera/program/passes/prefetch.h"
#include "tessera/program/place_text.h"

namespace tessera {

std::string unit_of(const Glob& glob, const std::string& path) {
  for (size_t end = 0; end < path.size();) {
    end = std::min(path.find_first_of(".@#", end + 1), path.size());
    if (glob.matches(std::string_view(path).substr(0, end))) return path.substr(0, end);
  }
  return "";
}

namespace {

// Returns by buffer whether its value is ready before blocks of micro-batches run. This is so for
// buffers at rest, and for buffers that are written and awaited in the prologue and written by no
// other block (narrow copies of parameters).
std::vector<bool> ready_before_blocks(const PlaceText& text, const BlockOrder& order) {
  std::vector<bool> ready(text.buffers.size());
  std::set<int> late;  // handles that are awaited in other blocks than the prologue
  for (const Need& need : find_needs(text, order)) {
    if (need.block != BlockKind::kPrologue) late.insert(need.handle);
  }
  const auto arrives_late = [&](const TextInstruction& instruction) {
    return late.contains(handle_of(instruction));
  };
  const auto set_written = [&](const TextInstruction& instruction, bool value) {
    touches(
        instruction, [](int) { return false; },
        [&](int buffer) {
          ready[static_cast<size_t>(buffer)] = value;
          return false;
        });
  };
  for (const bool prologue : {true, false}) {
    for (const auto& [ref, block] : text.blocks) {
      if ((ref == BlockKind::kPrologue) != prologue) continue;
      for (const TextInstruction& instruction : block) {
        set_written(instruction, prologue && !arrives_late(instruction));
      }
    }
  }
  for (size_t i = 0; i < ready.size(); ++i) ready[i] = ready[i] || text.buffers[i].persistent;
  return ready;
}

bool reads_only_what_rests(const TextInstruction& instruction, const std::vector<bool>& ready) {
  const auto* issue = std::get_if<TextIssue>(&instruction.body);
  if (issue == nullptr || issue->classify || issue->combiner || instruction.when != When::kAlways) {
    return false;
  }
  return std::all_of(issue->transfers.begin(), issue->transfers.end(), [&](const auto& transfer) {
    return ready[static_cast<size_t>(transfer.from.buffer)];
  });
}

// Marks the buffers as ready, for a block of the backward pass, into which the forward block of the
// same stage has gathered tensors.
void add_kept(const PlaceText& text, BlockRef block, std::vector<bool>& ready) {
  const auto forward = text.blocks.find({BlockKind::kForward, block.chunk});
  if (block.kind <= BlockKind::kForward || forward == text.blocks.end()) return;
  for (const TextInstruction& instruction : forward->second) {
    if (!reads_only_what_rests(instruction, ready)) continue;
    for (const TextTransfer& transfer : std::get<TextIssue>(instruction.body).transfers)
      ready[static_cast<size_t>(transfer.to.buffer)] = true;
  }
}

}  // namespace

void prefetch_at_rest(PlaceText& text, const Graph& graph, const BlockOrder& order_of_blocks,
                      const Prefetch& prefetch) {
  const Glob glob(prefetch.units);
  const auto path_of = [&](OpId op) { return op.valid() ? graph.op(op).path : std::string(); };
  const std::vector<bool> at_rest = ready_before_blocks(text, order_of_blocks);
  for (auto& [ref, block] : text.blocks) {
    if (ref.once()) continue;
    std::vector<bool> ready = at_rest;
    add_kept(text, ref, ready);
    // The sequences of instructions that serve ops of the same unit: the unit's name, and the
    // position of the first instruction.
    std::vector<std::pair<std::string, size_t>> runs;
    // Says where an instruction goes: before the instruction at `before`. Gathers that go there
    // come first, in the order of their units. Within a unit, gathers that read tensors at rest
    // come before gathers that read the results of these.
    constexpr size_t kStays = std::numeric_limits<size_t>::max();
    struct Target {
      size_t before = 0, unit = kStays, further = 0;
      auto operator<=>(const Target&) const = default;
    };
    std::vector<Target> target(block.size());
    std::vector<size_t> further(text.buffers.size(), 0);
    for (size_t i = 0; i < block.size(); ++i) {
      target[i].before = i;
      const std::string unit = unit_of(glob, path_of(block[i].cause));
      if (unit.empty()) continue;
      if (runs.empty() || runs.back().first != unit) runs.emplace_back(unit, i);
      if (!reads_only_what_rests(block[i], ready)) continue;
      auto& issue = std::get<TextIssue>(block[i].body);
      issue.unit = static_cast<int>(runs.size()) - 1;
      size_t steps = 0;
      for (const TextTransfer& transfer : issue.transfers)
        steps = std::max(steps, further[static_cast<size_t>(transfer.from.buffer)]);
      for (const TextTransfer& transfer : issue.transfers) {
        ready[static_cast<size_t>(transfer.to.buffer)] = true;
        further[static_cast<size_t>(transfer.to.buffer)] = steps + 1;
      }
      const auto ahead = static_cast<size_t>(prefetch.ahead);
      const size_t unit_index = runs.size() - 1;
      target[i] = {runs[unit_index - std::min(unit_index, ahead)].second, unit_index, steps};
    }
    // A moved instruction gets the order of writing of the instruction before which it now is.
    for (size_t i = 0; i < block.size(); ++i) {
      if (target[i].unit != kStays) block[i].order = block[target[i].before].order;
    }
    std::vector<size_t> order(block.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return target[a] < target[b]; });
    std::vector<TextInstruction> moved;
    for (size_t i : order) moved.push_back(std::move(block[i]));
    block = std::move(moved);
  }
}

}  // namespace tessera
