// Two passes that reorder the instructions of a block so that collectives can share a bucket
// (bucket.cc).
//
// issue_together: all transfers are issued before the instructions that need results of transfers.
// Then one collective can complete the norms of all model blocks, and one parameter can be gathered
// while the next one is updated.
//
// gather_second_steps: some conversions take two collectives, of which the second moves what the
// first has made (the reduce-scatter and the all-gather of a compressed all-reduce; a sum inside a
// node and then one over nodes). Written one after the other for each gradient, each second step
// would need its first step at once, and no two first steps could share a bucket. So
// second steps are written together, for up to a bucket's size at a time.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tessera/program/memory/touches.h"
#include "tessera/program/place_text.h"

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

std::set<int64_t> orders_of(const std::vector<TextInstruction>& block) {
  std::set<int64_t> orders;
  for (const TextInstruction& instruction : block) orders.insert(instruction.order);
  return orders;
}

// `SecondSteps` walks over one block and holds second steps back.
class SecondSteps {
 public:
  SecondSteps(const PlaceText& text, const ShapeRule& shapes, int64_t bytes)
      : text_(text), shapes_(shapes), most_(bytes) {}

  // Returns the instructions in their new order.
  std::vector<TextInstruction> reorder(std::vector<TextInstruction> block) {
    for (TextInstruction& instruction : block) {
      const auto* issue = std::get_if<TextIssue>(&instruction.body);
      if (issue != nullptr && follows_a_collective(*issue)) {
        hold_back(std::move(instruction), issue->transfers.front());
        continue;
      }
      if (held_.meet(instruction)) let_go();
      accesses(instruction, [&](const TextAccess& access) {
        if (access.mode != AccessMode::kRead) first_.erase(access.view->buffer);
      });
      if (issue != nullptr && !issue->classify) {
        for (const TextTransfer& transfer : issue->transfers) first_.insert(transfer.to.buffer);
      }
      out_.push_back(std::move(instruction));
    }
    let_go();
    return std::move(out_);
  }

 private:
  // Returns whether the issue moves the result of one collective that nothing else has used yet.
  bool follows_a_collective(const TextIssue& issue) const {
    return !issue.classify && !issue.named && issue.transfers.size() == 1 &&
           first_.contains(issue.transfers.front().from.buffer);
  }
  void hold_back(TextInstruction instruction, const TextTransfer& transfer) {
    const std::vector<int64_t> origin(text_.mesh.axes.size(), 0);
    const std::vector<int64_t> shape = shapes_.shape(transfer.tensor);
    const int64_t own = evaluate(transfer.to.region, text_.mesh, shape, origin).volume() *
                        dtype_bytes(shapes_.graph->tensor(transfer.tensor).dtype);
    if (bytes_ + own > most_) let_go();
    bytes_ += own;
    first_.erase(transfer.from.buffer);
    held_.add(instruction);
    waiting_.push_back(std::move(instruction));
  }
  void let_go() {
    for (TextInstruction& instruction : waiting_) out_.push_back(std::move(instruction));
    waiting_.clear();
    held_ = {};
    bytes_ = 0;
  }

  const PlaceText& text_;
  const ShapeRule& shapes_;
  const int64_t most_;
  std::set<int> first_;  // buffers with the result of a collective that nothing has used yet
  int64_t bytes_ = 0;    // that the second steps in `waiting_` make
  std::vector<TextInstruction> waiting_, out_;
  Buffers held_;  // what the instructions in `waiting_` touch
};

}  // namespace

void gather_second_steps(PlaceText& text, const ShapeRule& shapes, int64_t bytes) {
  if (bytes == 0) return;
  for (auto& [ref, block] : text.blocks) {
    const std::set<int64_t> orders = orders_of(block);
    block = SecondSteps(text, shapes, bytes).reorder(std::move(block));
    renumber(block, text.due, orders);
  }
}

void issue_together(PlaceText& text, BlockRef ref) {
  std::vector<TextInstruction>& block = text.blocks[ref];
  const std::set<int64_t> orders = orders_of(block);
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
