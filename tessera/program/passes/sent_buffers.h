// The buffers from which blocks of micro-batches send messages, and how each message is awaited
// (send_waits.h). Private to tessera/program.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tessera/program/place_text.h"

namespace tessera {

// For each row of the plan's schedule the blocks of micro-batches, in the order of their first runs.
class RowOrders {
 public:
  explicit RowOrders(const ResolvedPlan& of);  // which outlives the object
  const std::vector<BlockRef>& of(size_t row) const { return orders_[row]; }
  const std::vector<size_t>& rows_of(PlaceId place) const { return rows_of_[place.index()]; }
  // Returns the block's place in the order of the row; the number of blocks if the row lacks it.
  size_t position(size_t row, BlockRef block) const;
  bool runs(size_t row, BlockRef block) const { return position(row, block) < of(row).size(); }

  const ResolvedPlan& plan;

 private:
  std::vector<std::vector<size_t>> rows_of_;   // by place
  std::vector<std::vector<BlockRef>> orders_;  // by row
};

// The ways to await a message (send_waits.cc).
enum class Way : uint8_t { kNextRun, kBackward, kLastUse, kRing };

// A `Sent` is a buffer that a block of a micro-batch sends, perhaps to several places.
struct Sent {
  PlaceId place;
  BlockRef block;
  int buffer = -1;
  std::vector<int> handles;
  std::set<BlockRef> uses;  // blocks of micro-batches that touch the buffer
  // Position of the first instruction of `block` that writes the buffer; kNoPosition: only other
  // blocks write it.
  static constexpr size_t kNoPosition = static_cast<size_t>(-1);
  size_t first_write = kNoPosition;
  Way way = Way::kNextRun;
  BlockRef at;        // kBackward, kLastUse: the block that waits
  int64_t slots = 1;  // copies of the buffer
  int64_t lag = 1;    // kNextRun, kRing: how many runs of the block later the wait is
};

struct SentMessages {
  std::vector<Sent> buffers;
  // By place: handles of messages that the prologue (the update) sends, which are awaited at the
  // beginning (at the end) of the update.
  std::map<PlaceId, std::vector<int>> at_begin, at_end;
};

// Finds what the texts send. Each buffer begins with the first of the ways that its readers allow in
// all rows that have the place.
SentMessages find_sent(const std::vector<PlaceText>& texts, const RowOrders& orders);

// Adds copies of the buffer until its messages are awaited later than before. Returns false if the
// sending block does not write the buffer, or if the buffer has a copy for each micro-batch already.
bool add_slot(Sent& sent, const RowOrders& orders);

// Returns whether the instruction writes the buffer.
bool writes_buffer(const TextInstruction& instruction, int buffer);

}  // namespace tessera
