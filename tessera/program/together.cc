// Pass: issue_together. Everything that a block issues goes before what needs it, so that the norms
// of all blocks are completed by one collective, and the gathering of one parameter runs beside the
// update of the next.
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
  // Returns whether the instruction writes what these instructions read, or touches what they
  // write.
  bool meet(const TextInstruction& instruction) const {
    return touches(
        instruction, [&](int buffer) { return writes_.contains(buffer); },
        [&](int buffer) { return writes_.contains(buffer) || reads_.contains(buffer); });
  }

 private:
  std::set<int> reads_, writes_;
};

// Renumbers the orders of writing so that they ascend in the block's new order. A handle that is
// due somewhere in the block stays due before the same instruction.
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
    bool messages = false;  // whether one is held; messages keep their order, as both places do
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
