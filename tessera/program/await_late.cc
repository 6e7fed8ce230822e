// Passes that move waits. await_late: what the prologue gathers for the micro-batches (parameters
// that rest in shards and are kept for the step) is awaited where it is first used, so that it
// travels beside the first micro-batch's work on what came before; the prologue itself would wait
// for all of it. await_together: what the update issues is awaited behind all that does not need
// it, so that the norms of all blocks are completed by one collective, and the gathering of one
// parameter runs beside the update of the next.
#include <map>
#include <optional>
#include <set>
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

// The buffers that a wait for the instruction gives free: those it reads, those it writes.
struct InFlight {
  std::vector<int> reads, writes;
};

std::map<int, InFlight> issued_in(const std::vector<TextInstruction>& block) {
  std::map<int, InFlight> out;
  for (const TextInstruction& instruction : block) {
    int handle = -1;
    if (const auto* issue = std::get_if<TextIssue>(&instruction.body)) handle = issue->handle;
    if (const auto* cross = std::get_if<TextCross>(&instruction.body)) handle = cross->handle;
    if (handle < 0) continue;
    InFlight& buffers = out[handle];
    touches(
        instruction,
        [&](int buffer) {
          buffers.reads.push_back(buffer);
          return false;
        },
        [&](int buffer) {
          buffers.writes.push_back(buffer);
          return false;
        });
  }
  return out;
}

// What may not pass instructions that stay behind.
class Behind {
 public:
  bool holds(const TextInstruction& instruction) const {
    if (messages_ && std::holds_alternative<TextCross>(instruction.body)) return true;
    return touches(
        instruction, [&](int buffer) { return writes_.contains(buffer); },
        [&](int buffer) { return writes_.contains(buffer) || reads_.contains(buffer); });
  }
  void add(const TextInstruction& instruction) {
    messages_ = messages_ || std::holds_alternative<TextCross>(instruction.body);
    touches(
        instruction,
        [&](int buffer) {
          reads_.insert(buffer);
          return false;
        },
        [&](int buffer) {
          writes_.insert(buffer);
          return false;
        });
  }
  void add(const InFlight& buffers) {
    reads_.insert(buffers.reads.begin(), buffers.reads.end());
    writes_.insert(buffers.writes.begin(), buffers.writes.end());
  }

 private:
  std::set<int> reads_, writes_;
  bool messages_ = false;  // they keep their order, which two places share
};

}  // namespace

void await_together(std::vector<TextInstruction>& block) {
  std::vector<TextInstruction> rest = std::move(block);
  block.clear();
  while (!rest.empty()) {
    const std::map<int, InFlight> issued = issued_in(rest);
    std::vector<TextInstruction> behind;
    Behind held;
    for (TextInstruction& instruction : rest) {
      const auto* wait = std::get_if<TextWait>(&instruction.body);
      const auto of_this = wait == nullptr ? issued.end() : issued.find(wait->handle);
      if (of_this != issued.end()) {
        held.add(of_this->second);
      } else if (held.holds(instruction)) {
        held.add(instruction);
      } else {
        block.push_back(std::move(instruction));
        continue;
      }
      behind.push_back(std::move(instruction));
    }
    rest = std::move(behind);
  }
}

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
