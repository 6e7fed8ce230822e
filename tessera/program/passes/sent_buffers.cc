#include "tessera/program/passes/sent_buffers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tessera/program/crossing.h"
#include "tessera/program/memory/touches.h"

namespace tessera {

RowOrders::RowOrders(const ResolvedPlan& of) : plan(of), rows_of_(of.places.size()) {
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    for (const PlaceId place : plan.rows[row]) rows_of_[place.index()].push_back(row);
    std::vector<BlockRef>& order = orders_.emplace_back();
    std::set<BlockRef> seen;
    for (const BlockRun& run : plan.schedule[row]) {
      if (seen.insert(block_of(run)).second) order.push_back(block_of(run));
    }
  }
}

size_t RowOrders::position(size_t row, BlockRef block) const {
  const std::vector<BlockRef>& order = orders_[row];
  return static_cast<size_t>(std::find(order.begin(), order.end(), block) - order.begin());
}

bool writes_buffer(const TextInstruction& instruction, int buffer) {
  return touches(
      instruction, [](int) { return false; }, [&](int written) { return written == buffer; });
}

namespace {

// ---- more copies of a buffer

std::vector<bool> no_micro_batches(const RowOrders& orders) {
  return std::vector<bool>(static_cast<size_t>(orders.plan.plan.micro_batches), false);
}

// Returns whether each message is awaited later than before: `lag` runs after its send, instead
// of in the run of sent.at for the same micro-batch.
bool waits_behind(const RowOrders& orders, const Sent& sent) {
  for (const size_t row : orders.rows_of(sent.place)) {
    std::vector<int64_t> sending;                       // micro-batches of the block's runs so far
    std::vector<bool> over = no_micro_batches(orders);  // those for which `at` has run
    for (const BlockRun& run : orders.plan.schedule[row]) {
      if (block_of(run) == sent.at) over[static_cast<size_t>(run.micro_batch)] = true;
      if (block_of(run) != sent.block) continue;
      const auto lag = static_cast<size_t>(sent.lag);
      if (sending.size() >= lag && !over[static_cast<size_t>(sending[sending.size() - lag])])
        return false;
      sending.push_back(run.micro_batch);
    }
  }
  return true;
}
// Returns whether two micro-batches would use a slot at the same time.
bool in_use_twice(const RowOrders& orders, const Sent& sent) {
  for (const size_t row : orders.rows_of(sent.place)) {
    std::map<int64_t, size_t> left;  // slot -> runs that still use it
    size_t users = 0;
    for (const BlockRef use : sent.uses) users += orders.runs(row, use) ? 1 : 0;
    for (const BlockRun& run : orders.plan.schedule[row]) {
      if (!sent.uses.contains(block_of(run))) continue;
      size_t& slot = left[run.micro_batch % sent.slots];
      if (block_of(run) == sent.block) {
        if (slot > 0) return true;
        slot = users;
      }
      if (slot > 0) --slot;
    }
  }
  return false;
}
// Returns the smallest number of runs of the sending block from one use of a slot to the next use
// of the same slot.
int64_t reuse(const RowOrders& orders, const Sent& sent, size_t row) {
  auto fewest = orders.plan.plan.micro_batches;
  std::map<int64_t, int64_t> before;  // slot -> run of the block
  int64_t index = 0;
  for (const BlockRun& run : orders.plan.schedule[row]) {
    if (block_of(run) != sent.block) continue;
    const auto [it, fresh] = before.try_emplace(run.micro_batch % sent.slots, index);
    if (!fresh) fewest = std::min(fewest, index - std::exchange(it->second, index));
    ++index;
  }
  return fewest;
}

}  // namespace

bool add_slot(Sent& sent, const RowOrders& orders) {
  const auto most = orders.plan.plan.micro_batches;
  if (sent.first_write == Sent::kNoPosition || (sent.way == Way::kRing && sent.slots >= most))
    return false;
  const bool ran_on = sent.way == Way::kNextRun || sent.way == Way::kRing;
  const int64_t before = ran_on ? sent.lag : 0;
  if (!ran_on) sent.uses.insert(sent.at);
  sent.way = Way::kRing;
  do {
    sent.slots = std::min(sent.slots + 1, most);
    sent.lag = most;
    for (const size_t row : orders.rows_of(sent.place))
      sent.lag = std::min(sent.lag, reuse(orders, sent, row));
  } while (sent.slots < most && (sent.lag <= before || in_use_twice(orders, sent) ||
                                 (!ran_on && !waits_behind(orders, sent))));
  return true;
}

namespace {

// ---- how a buffer begins

// Returns whether the block that waits (sent.at) runs after all other blocks that use the buffer,
// in every micro-batch of the row.
bool runs_last(const RowOrders& orders, const Sent& sent, size_t row) {
  std::vector<bool> over = no_micro_batches(orders);
  for (const BlockRun& run : orders.plan.schedule[row]) {
    const auto m = static_cast<size_t>(run.micro_batch);
    if (over[m] && sent.uses.contains(block_of(run))) return false;
    if (block_of(run) == sent.at) over[m] = true;
  }
  return true;
}
BlockRef last_use(const RowOrders& orders, const Sent& sent, size_t row) {
  BlockRef last = sent.block;
  for (const BlockRef use : sent.uses) {
    if (orders.runs(row, use) && orders.position(row, use) > orders.position(row, last)) last = use;
  }
  return last;
}

// Returns whether each micro-batch runs all blocks that use the buffer, the sending block first,
// before the next micro-batch runs any of them.
bool run_in_turn(const RowOrders& orders, const Sent& sent, size_t row) {
  for (const BlockRef use : sent.uses) {
    if (orders.position(row, use) < orders.position(row, sent.block)) return false;
  }
  int64_t open = -1;
  size_t left = 0, users = 0;
  for (const BlockRef use : sent.uses) users += orders.runs(row, use) ? 1 : 0;
  for (const BlockRun& run : orders.plan.schedule[row]) {
    const BlockRef block = block_of(run);
    if (!sent.uses.contains(block)) continue;
    if (block == sent.block) {
      if (left > 0) return false;
      open = run.micro_batch;
      left = users;
    } else if (open != run.micro_batch) {
      return false;
    }
    --left;
  }
  return true;
}

// Sets the way with which the buffer begins: the first of the ways that the readers of the buffer
// allow in all rows that have the place.
void begin_with(Sent& sent, const RowOrders& orders, const PlaceText& text) {
  const BlockRef backward{BlockKind::kBackward, sent.block.chunk};
  const bool turns = sent.block != backward && text.blocks.contains(backward);
  if (turns && sent.block.kind == BlockKind::kForward) {
    sent.way = Way::kBackward;
    sent.at = backward;
    return;
  }
  bool alone = true, behind = turns, in_turn = true, same = true;
  sent.at = last_use(orders, sent, orders.rows_of(sent.place)[0]);
  for (const size_t row : orders.rows_of(sent.place)) {
    const BlockRef last = last_use(orders, sent, row);
    alone = alone && last == sent.block;
    behind = behind && orders.runs(row, backward) &&
             orders.position(row, backward) > orders.position(row, last);
    in_turn = in_turn && run_in_turn(orders, sent, row);
    same = same && last == sent.at && runs_last(orders, sent, row);
  }
  if (alone || (in_turn && !behind)) return;
  sent.way = behind ? Way::kBackward : Way::kLastUse;
  if (behind) {
    sent.at = backward;
  } else if (!same) {
    add_slot(sent, orders);
  }
}

// ---- what is sent

// Finds the blocks of micro-batches that touch each sent buffer.
void find_uses(const std::vector<PlaceText>& texts, std::vector<Sent>& buffers) {
  std::vector<std::vector<Sent*>> sent_of(texts.size());  // by place
  for (Sent& sent : buffers) sent_of[sent.place.index()].push_back(&sent);
  for (size_t p = 0; p < texts.size(); ++p) {
    if (sent_of[p].empty()) continue;
    std::vector<bool> is_sent(texts[p].buffers.size(), false);
    for (const Sent* sent : sent_of[p]) is_sent[static_cast<size_t>(sent->buffer)] = true;
    for (const auto& [ref, block] : texts[p].blocks) {
      if (ref.once()) continue;
      const auto use = [&, here = ref](int buffer) {
        if (!is_sent[static_cast<size_t>(buffer)]) return false;
        for (Sent* sent : sent_of[p]) {
          if (sent->buffer == buffer) sent->uses.insert(here);
        }
        return false;
      };
      for (const TextInstruction& instruction : block) touches(instruction, use, use);
    }
  }
}

// Notes the messages that the prologue or the update sends, which are awaited in the update.
void await_in_update(PlaceId place, BlockRef ref, const std::vector<TextInstruction>& block,
                     SentMessages& out) {
  for (const TextInstruction& instruction : block) {
    const auto* cross = std::get_if<TextCross>(&instruction.body);
    if (cross == nullptr || !cross->sends) continue;
    (ref == BlockKind::kUpdate ? out.at_end : out.at_begin)[place].push_back(cross->handle);
  }
}

}  // namespace

SentMessages find_sent(const std::vector<PlaceText>& texts, const RowOrders& orders) {
  SentMessages out;
  std::vector<Sent>& buffers = out.buffers;
  const auto mesh = [&](PlaceId place) -> const Mesh& {
    return orders.plan.places[place.index()].mesh;
  };
  std::vector<std::tuple<PlaceId, int, BlockRef>> copied;  // place, buffer, block that receives
  std::map<std::tuple<PlaceId, BlockRef, int>, size_t> known;
  for (size_t p = 0; p < texts.size(); ++p) {
    const PlaceId place(p);
    for (const auto& [ref, block] : texts[p].blocks) {
      if (ref.once()) {
        await_in_update(place, ref, block, out);
        continue;
      }
      for (const TextInstruction& instruction : block) {
        const auto* cross = std::get_if<TextCross>(&instruction.body);
        if (cross == nullptr) continue;
        // A rank at both places copies from the sender's buffer in the block that receives, so
        // that this block uses the buffer too.
        if (!cross->sends) {
          if (share_ranks(mesh(cross->from_place), mesh(cross->to_place)))
            copied.emplace_back(cross->from_place, cross->from.buffer, ref);
          continue;
        }
        const auto [it, fresh] =
            known.try_emplace({place, ref, cross->from.buffer}, buffers.size());
        if (fresh) buffers.emplace_back().place = place;
        Sent& sent = buffers[it->second];
        sent.block = ref;
        sent.buffer = cross->from.buffer;
        sent.handles.push_back(cross->handle);
      }
    }
  }
  find_uses(texts, buffers);
  for (const auto& [place, buffer, ref] : copied) {
    for (Sent& sent : buffers) {
      if (sent.place == place && sent.buffer == buffer) sent.uses.insert(ref);
    }
  }
  for (Sent& sent : buffers) {
    const std::vector<TextInstruction>& block = texts[sent.place.index()].blocks.at(sent.block);
    for (size_t i = 0; i < block.size() && sent.first_write == Sent::kNoPosition; ++i) {
      if (writes_buffer(block[i], sent.buffer)) sent.first_write = i;
    }
  }
  for (Sent& sent : buffers) begin_with(sent, orders, texts[sent.place.index()]);
  return out;
}

}  // namespace tessera
