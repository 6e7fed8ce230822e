// Decides, for each message that a block of a micro-batch sends, where the message is awaited and
// how many copies its buffer has. The waits are chosen such that no rank waits for a receive that
// another rank can post only after the waiting rank has gone on.
//
// There are four ways to await a message. With the first three, each micro-batch that is between
// the first and the last use of the buffer has a copy of the buffer. With a ring, the buffer has as
// many copies as the order of blocks needs:
//
//   next run   before the sending block writes the buffer again, one run later (lag 1); the last
//              message in the update
//   backward   where the backward block of the sending stage begins, for the same micro-batch
//   last use   after the last block of the micro-batch that reads the buffer
//   ring       as next run, but `lag` runs later. With a copy for each micro-batch, in the update
//
// A row is a row of the plan's schedule: the order of blocks for all ranks that are at the same
// places. Each buffer begins with the first way that its readers allow. Then the rows are played
// against each other, run by run, and a row waits for a send only where the way says. If no row can
// go on, the first send on the cycle of rows that wait for each other gets one more copy. The part
// that was played stays valid, because with more copies every wait comes later. If the plan's order
// can be carried out when every message leaves as soon as its value exists, the rows are played to
// their end. For any other plan the verifier reports why it cannot be carried out.
//
// A row may be played for all its ranks, because a cycle of ranks that wait for each other is also
// a cycle of their rows. A send counts as received when all rows of the receiving place have posted
// their receives, and a message as arrived when all rows of the sending place have sent it.
#include "tessera/program/passes/send_waits.h"

#include <algorithm>

#include "tessera/program/passes/sent_buffers.h"
#include "tessera/program/rows/row_play.h"

namespace tessera {
namespace {

using Instructions = std::vector<TextInstruction>;

TextInstruction wait_for(int handle, int64_t lag) {
  return {TextWait{handle, static_cast<int>(lag)}, When::kAlways, {}, -1};
}
// Writes the wait for a message where the way of its buffer says.
void write(const Sent& sent, int handle, int64_t micro_batches, ByBlock<Instructions>& blocks) {
  if (sent.way == Way::kBackward) {
    blocks[sent.at].insert(blocks[sent.at].begin(), wait_for(handle, 0));
    return;
  }
  if (sent.way == Way::kLastUse) {
    blocks[sent.at].push_back(wait_for(handle, 0));
    blocks[sent.at].back().order = kLastOrder;
    return;
  }
  Instructions& update = blocks[BlockKind::kUpdate];
  update.insert(update.begin(), wait_for(handle, 0));
  if (sent.way == Way::kRing && sent.slots >= micro_batches) return;
  Instructions& block = blocks[sent.block];
  const auto first = std::find_if(block.begin(), block.end(), [&](const auto& instruction) {
    return writes_buffer(instruction, sent.buffer);
  });
  block.insert(first, wait_for(handle, sent.lag));
}

}  // namespace

void place_send_waits(std::vector<PlaceText>& texts, const ResolvedPlan& plan) {
  const RowOrders orders(plan);
  SentMessages sent = find_sent(texts, orders);
  play_rows(texts, orders, sent.buffers);
  for (auto one = sent.buffers.rbegin(); one != sent.buffers.rend(); ++one) {
    texts[one->place.index()].buffers[static_cast<size_t>(one->buffer)].slots = one->slots;
    for (auto handle = one->handles.rbegin(); handle != one->handles.rend(); ++handle)
      write(*one, *handle, plan.plan.micro_batches, texts[one->place.index()].blocks);
  }
  for (const auto& [place, handles] : sent.at_begin) {
    Instructions& update = texts[place.index()].blocks[BlockKind::kUpdate];
    for (const int handle : handles) update.insert(update.begin(), wait_for(handle, 0));
  }
  for (const auto& [place, handles] : sent.at_end) {
    Instructions& update = texts[place.index()].blocks[BlockKind::kUpdate];
    for (const int handle : handles) {
      update.push_back(wait_for(handle, 0));
      update.back().order = kLastOrder;
    }
  }
}

}  // namespace tessera
