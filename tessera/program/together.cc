// The pass issue_together. It reorders a block such that all transfers are issued before the
// instructions that need results of transfers. Then one collective can complete the norms of all
// model blocks, and one parameter can be gathered while the next one is updated.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tessera/program/place_text.h"
#include "tessera/program/touches.h"

namespace tessera {
namespace {

class Buffers {
 public:
  void add(const TextInstruction& instruction) {
    accesses(instruction, [&](const TextAccess& access) {
      (access.mode == AccessMode::kRead ? reads_ : writes_).insert(access.view->buffer);
    });
  }
  // Returns whether the instruction must keep its order relative to the instructions that were
  // added: it writes a buffer that they read, or touches a buffer that they write.
  bool meet(const TextInstruction& instruction) const {
    return touches(
        instruction, [&](int buffer) { return writes_.contains(buffer); },
        [&](int buffer) { return writes_.contains(buffer) || reads_.contains(buffer); });
  }

 private:
  std::set<int> reads_, writes_;
};

// Gives the instructions new orders of writing that ascend in the block's new order. Due marks are
// changed too, so that a handle stays due before the same instruction.
void renumber(std::vector<TextInstruction>& block, std::map<int, int64_t>& due,
              const std::set<int64_t>& orders) {
  std::map<int64_t, int64_t> renumbered;
  auto next = orders.begin();
  for (TextInstruction& instruction : block) {
    renumbered.emplace(instruction.order, *next);
    instruction.order = *next++;
  }
  for (const TextInstruction& instruction : block) {
    const auto mark = due.find(handle_of(instruction));
    if (mark == due.end()) continue;
    const auto target = renumbered.lower_bound(mark->second);
    if (target != renumbered.end()) mark->second = target->second;
  }
}

}  // namespace

void issue_together(PlaceText& text, BlockRef ref) {
  std::vector<TextInstruction>& block = text.blocks[ref];
  std::set<int64_t> orders;
  for (const TextInstruction& instruction : block) orders.insert(instruction.order);
  std::vector<TextInstruction> rest = std::move(block);
  block.clear();
  while (!rest.empty()) {
    std::vector<TextInstruction> behind;
    Buffers under_way, held;
    // Whether a message is held back. Later messages are then held back too, because messages must
    // have the same order at both places.
    bool messages = false;
    for (TextInstruction& instruction : rest) {
      const bool message = std::holds_alternative<TextCross>(instruction.body);
      if (under_way.meet(instruction) || held.meet(instruction) || (messages && message)) {
        held.add(instruction);
        messages = messages || message;
        behind.push_back(std::move(instruction));
        continue;
      }
      if (handle_of(instruction) >= 0) under_way.add(instruction);
      block.push_back(std::move(instruction));
    }
    rest = std::move(behind);
  }
  renumber(block, text.due, orders);
}

}  // namespace tessera
