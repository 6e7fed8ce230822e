#include "tessera/program/memory/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::arena_test {
namespace {

using Runs = ArenaItem::Runs;

// Returns the intervals of time in which an item lives.
std::vector<std::pair<int64_t, int64_t>> lives(const ArenaItem& item) {
  if (item.repeats == nullptr) return {{item.first, item.last}};
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const int64_t start : *item.repeats) out.push_back({start + item.first, start + item.last});
  return out;
}

bool meet(const ArenaItem& a, const ArenaItem& b) {
  for (const auto& x : lives(a)) {
    for (const auto& y : lives(b)) {
      if (x.first <= y.second && y.first <= x.second) return true;
    }
  }
  return false;
}

int64_t behind(const ArenaItem& item, int64_t alignment) {
  return item.offset + (item.bytes + alignment - 1) / alignment * alignment;
}

// Places the items by comparing every item with every other one.
void place_slowly(std::vector<ArenaItem>& items, int64_t base, int64_t alignment) {
  std::vector<ArenaItem*> order;
  for (ArenaItem& item : items) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const ArenaItem* a, const ArenaItem* b) {
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    if (a->first != b->first) return a->first < b->first;
    return a->buffer < b->buffer;
  });
  std::vector<ArenaItem*> placed;  // by offset
  for (ArenaItem* item : order) {
    int64_t at = base;
    for (bool moved = true; moved;) {
      moved = false;
      for (const ArenaItem* other : placed) {
        if (!meet(*other, *item) || other->offset >= at + item->bytes ||
            behind(*other, alignment) <= at)
          continue;
        at = behind(*other, alignment);
        moved = true;
      }
    }
    item->offset = at;
    if (item->bytes > 0) placed.push_back(item);
  }
}

TEST(Arena, ItemsThatNeverMeetShareBytes) {
  std::vector<ArenaItem> items = {{.buffer = 0, .bytes = 64, .first = 0, .last = 3},
                                  {.buffer = 1, .bytes = 64, .first = 4, .last = 9}};
  EXPECT_EQ(place_items(items, 0, 64), 64);
  EXPECT_EQ(items[0].offset, 0);
  EXPECT_EQ(items[1].offset, 0);
}

TEST(Arena, NothingNeedsNothing) {
  std::vector<ArenaItem> items;
  EXPECT_EQ(place_items(items, 128, 64), 0);
  items = {{.buffer = 0, .bytes = 0, .first = 0, .last = 3}};
  EXPECT_EQ(place_items(items, 128, 64), 0);
  EXPECT_EQ(items[0].offset, 128);
}

// Few items and many; lives that are short, long or begin and end like the passes of a model; runs
// that repeat, beside items that live once.
TEST(Arena, OffsetsAreThoseOfComparingAllItems) {
  std::mt19937_64 random(20261126);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t count = round % 3 == 0 ? 40 : 700;
    const int64_t line = 10 + below(3000), sizes = 1 + below(40), per_run = 1 + line / 4;
    const Runs one = {0, per_run, 2 * per_run}, other = {3 * per_run};
    std::vector<ArenaItem> items;
    for (int64_t i = 0; i < count; ++i) {
      ArenaItem item{.buffer = static_cast<size_t>(i), .bytes = 40 * below(sizes)};
      if (round % 2 == 1 && below(2) == 0) item.repeats = below(3) == 0 ? &other : &one;
      const int64_t most = item.repeats == nullptr ? line : per_run;
      switch (below(3)) {
        case 0:
          item.first = below(most);
          item.last = std::min(most - 1, item.first + below(8));
          break;
        case 1:
          item.first = below(most);
          item.last = most - 1 - item.first;
          break;
        default: item.first = below(most); item.last = below(most);
      }
      if (item.first > item.last) std::swap(item.first, item.last);
      items.push_back(item);
    }
    std::vector<ArenaItem> slowly = items;
    const int64_t base = 64 * below(3);
    const int64_t end = place_items(items, base, 64);
    place_slowly(slowly, base, 64);
    int64_t last = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_EQ(items[i].offset, slowly[i].offset) << "round " << round << ", item " << i;
      if (items[i].bytes > 0) last = std::max(last, items[i].offset + items[i].bytes);
    }
    EXPECT_EQ(end, last);
  }
}

}  // namespace
}  // namespace tessera::arena_test
