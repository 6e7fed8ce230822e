// Chooses the offsets of buffers in an arena. Each buffer lives for an interval of time, and
// buffers that live at the same time do not share bytes. Buffers are placed in the order of their
// sizes, the largest first, each at the lowest offset that is free during its whole interval
// (greedy by size). The arena is not always the smallest possible, but its size does not depend on
// the order in which the buffers are given.
//
//   std::vector<ArenaItem> items = {{.buffer = 0, .bytes = 64, .first = 0, .last = 3},
//                                   {.buffer = 1, .bytes = 64, .first = 4, .last = 9}};
//   place_items(items, 0, 64);        // 64: both begin at 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

struct ArenaItem {
  // The times at which the runs begin in which the interval repeats, ascending.
  using Runs = std::vector<int64_t>;

  // Breaks ties: if two items have equal size and begin, the one of the lower buffer is placed
  // first.
  size_t buffer = 0;
  int64_t bytes = 0;
  // First and last time, both inclusive. For an item that repeats they are relative to the begin of
  // each run. Items whose `repeats` are different objects never live at the same time.
  int64_t first = 0, last = 0;
  const Runs* repeats = nullptr;  // null: the interval does not repeat
  int64_t offset = -1;            // set by place_items
};

// Returns the least multiple of the alignment that is not below `bytes`.
int64_t aligned_to(int64_t bytes, int64_t alignment);

// Sets the offsets, from `base` on, such that each item begins at `base` plus a multiple of
// `alignment`. Returns the end of the last byte; 0 if there are no items.
int64_t place_items(std::vector<ArenaItem>& items, int64_t base, int64_t alignment);

}  // namespace tessera
