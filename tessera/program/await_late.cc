// Pass: await_late. What the prologue gathers for the micro-batches (parameters that rest in shards
// and are kept for the step) is awaited where it is first used, so that it travels beside the first
// micro-batch's work on what came before; the prologue itself would wait for all of it.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/program/place_text.h"
#include "tessera/program/touches.h"

namespace tessera {
namespace {

// Where the prologue writes what an issue moves.
std::vector<int> results_of(const TextIssue& issue) {
  std::vector<int> out;
  for (const TextTransfer& transfer : issue.transfers) out.push_back(transfer.to.buffer);
  return out;
}

// Calls what(buffer) for each that the instruction reads or writes.
template <class F>
void each_buffer(const TextInstruction& instruction, const F& what) {
  const auto note = [&](int buffer) {
    what(buffer);
    return false;
  };
  touches(instruction, note, note);
}

}  // namespace

BlockRef block_of(const BlockRun& run) {
  constexpr BlockKind kKinds[]{BlockKind::kForward, BlockKind::kBackward, BlockKind::kWeight};
  return {kKinds[run.kind], static_cast<int32_t>(run.stage)};
}

void await_late(PlaceText& text, const std::vector<BlockRef>& order) {
  const auto prologue = text.blocks.find(BlockKind::kPrologue);
  if (prologue == text.blocks.end()) return;
  std::vector<TextInstruction>& early = prologue->second;
  // The first use of each buffer in the micro-batches' blocks: index into `order` and position.
  std::map<int, std::pair<size_t, size_t>> first;
  for (size_t b = order.size(); b-- > 0;) {
    const auto block = text.blocks.find(order[b]);
    if (block == text.blocks.end()) continue;
    for (size_t i = block->second.size(); i-- > 0;) {
      each_buffer(block->second[i], [&](int buffer) { first[buffer] = {b, i}; });
    }
  }
  std::map<int, size_t> last;  // use in the prologue
  for (size_t i = 0; i < early.size(); ++i)
    each_buffer(early[i], [&](int buffer) { last[buffer] = i; });
  // Waits before each position of the blocks.
  std::map<std::pair<size_t, size_t>, std::vector<TextInstruction>> moved;
  std::map<int, size_t> issued;
  std::vector<bool> gone(early.size(), false);
  for (size_t i = 0; i < early.size(); ++i) {
    if (const auto* issue = std::get_if<TextIssue>(&early[i].body)) issued[issue->handle] = i;
    const auto* wait = std::get_if<TextWait>(&early[i].body);
    if (wait == nullptr || wait->lag != 0) continue;
    const auto found = issued.find(wait->handle);
    if (found == issued.end()) continue;
    TextIssue& issue = std::get<TextIssue>(early[found->second].body);
    const std::vector<int> results = results_of(issue);
    std::optional<std::pair<size_t, size_t>> use;
    for (const int buffer : results) {
      const auto at = first.find(buffer);
      if (at != first.end() && (!use || at->second < *use)) use = at->second;
    }
    const bool in_prologue = std::any_of(results.begin(), results.end(), [&](int buffer) {
      return last.at(buffer) > found->second;
    });
    if (!use || in_prologue) continue;
    // What one block waits for is joined with nothing that another waits for.
    issue.unit = static_cast<int>(use->first);
    TextInstruction& target = text.blocks.at(order[use->first])[use->second];
    moved[*use].push_back({*wait, When::kFirst, target.cause, target.order});
    gone[i] = true;
  }
  for (auto it = moved.rbegin(); it != moved.rend(); ++it) {
    std::vector<TextInstruction>& block = text.blocks.at(order[it->first.first]);
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(it->first.second), it->second.begin(),
                 it->second.end());
  }
  size_t at = 0;
  std::erase_if(early, [&](const TextInstruction&) { return gone[at++]; });
}

}  // namespace tessera
