#include "tessera/program/memory/arena.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera {
namespace {

using Runs = ArenaItem::Runs;
using Item = ArenaItem;

// Returns whether the items are ever alive at the same time. Items that repeat in runs of different
// blocks never are.
bool overlap(const Item& a, const Item& b) {
  const auto meet = [](int64_t first, int64_t last, const Item& other) {
    return first <= other.last && other.first <= last;
  };
  if (a.repeats == b.repeats) return meet(a.first, a.last, b);
  if (a.repeats != nullptr && b.repeats != nullptr) return false;
  const Item &one = a.repeats != nullptr ? b : a, &many = a.repeats != nullptr ? a : b;
  // Most often `one` lives for the whole step, or at an end of it.
  if (many.repeats->empty()) return false;
  for (const int64_t start : {many.repeats->front(), many.repeats->back()}) {
    if (meet(start + many.first, start + many.last, one)) return true;
  }
  // The last run whose interval begins before `one` ends.
  const auto run =
      std::upper_bound(many.repeats->begin(), many.repeats->end(), one.last - many.first);
  return run != many.repeats->begin() && many.last + *std::prev(run) >= one.first;
}

// A `PlacedBlock` has placed items with successive offsets, and facts about all of them together,
// so that a search for free bytes need not look at each item.
class PlacedBlock {
 public:
  struct Entry {
    Item item;
    int64_t behind;  // where the next item may begin
  };
  static constexpr size_t kMost = 64;

  explicit PlacedBlock(std::vector<Entry> entries) : entries_(std::move(entries)) { sum_up(); }

  const std::vector<Entry>& entries() const { return entries_; }
  int64_t offset() const { return entries_.front().item.offset; }
  bool is_full() const { return entries_.size() >= kMost; }

  // Adds an entry in the order of offsets.
  void add(const Entry& entry) {
    auto next =
        std::upper_bound(entries_.begin(), entries_.end(), entry.item.offset,
                         [](int64_t at, const Entry& other) { return at < other.item.offset; });
    // Two neighbours without a gap that live at the same times are joined into one entry.
    const auto joins = [](const Entry& a, const Entry& b) {
      return a.behind == b.item.offset && a.item.first == b.item.first &&
             a.item.last == b.item.last;
    };
    const bool joins_next = next != entries_.end() && joins(entry, *next);
    if (next != entries_.begin() && joins(*std::prev(next), entry)) {
      const auto before = std::prev(next);
      before->behind = joins_next ? next->behind : entry.behind;
      if (joins_next) entries_.erase(next);
    } else if (joins_next) {
      next->item.offset = entry.item.offset;
    } else {
      entries_.insert(next, entry);
    }
    sum_up();
  }

  PlacedBlock split() {
    const auto half = entries_.begin() + static_cast<std::ptrdiff_t>(entries_.size() / 2);
    PlacedBlock rest(std::vector<Entry>(half, entries_.end()));
    entries_.erase(half, entries_.end());
    sum_up();
    return rest;
  }

  // Returns whether no entry is alive while the item is.
  bool is_clear_of(const Item& item) const { return !overlap(hull_, item); }
  // Returns whether, while the item is alive, all entries are alive at some time and no gap between
  // them is large enough for the item.
  bool is_closed_to(const Item& item) const {
    return widest_gap_ < item.bytes && common_.first <= common_.last && overlap(common_, item);
  }
  int64_t behind() const { return behind_; }  // the offset after all entries

 private:
  void sum_up() {
    hull_ = common_ = entries_.front().item;
    behind_ = entries_.front().behind;
    widest_gap_ = 0;
    for (const Entry& entry : entries_) {
      hull_.first = std::min(hull_.first, entry.item.first);
      hull_.last = std::max(hull_.last, entry.item.last);
      common_.first = std::max(common_.first, entry.item.first);
      common_.last = std::min(common_.last, entry.item.last);
      widest_gap_ = std::max(widest_gap_, entry.item.offset - behind_);
      behind_ = std::max(behind_, entry.behind);
    }
  }

  std::vector<Entry> entries_;
  // The smallest interval with all entries' intervals, and the interval in which all entries live.
  Item hull_, common_;
  int64_t behind_ = 0, widest_gap_ = 0;
};

// An `AliveAt` holds the bytes that are taken at one moment, as ranges in the order of their
// offsets. Ranges that touch are joined.
class AliveAt {
 public:
  void add(int64_t offset, int64_t behind) {
    auto next = std::upper_bound(stretches_.begin(), stretches_.end(), offset,
                                 [](int64_t at, const Stretch& one) { return at < one.offset; });
    const bool joins_next = next != stretches_.end() && next->offset == behind;
    if (next != stretches_.begin() && std::prev(next)->behind == offset) {
      std::prev(next)->behind = joins_next ? next->behind : behind;
      if (joins_next) stretches_.erase(next);
    } else if (joins_next) {
      next->offset = offset;
    } else {
      stretches_.insert(next, {offset, behind});
    }
  }
  // Returns the lowest offset, at least `at`, at which this many bytes are free at this moment.
  int64_t first_gap(int64_t at, int64_t bytes) const {
    auto next =
        std::upper_bound(stretches_.begin(), stretches_.end(), at,
                         [](int64_t place, const Stretch& one) { return place < one.behind; });
    for (; next != stretches_.end() && next->offset - at < bytes; ++next) at = next->behind;
    return at;
  }

 private:
  struct Stretch {
    int64_t offset, behind;
  };
  std::vector<Stretch> stretches_;  // by offset
};

// A `Samples` knows which bytes are taken at up to 65 moments, which are evenly spaced over the
// time. An item that is alive at one of these moments must lie in a gap between the bytes taken at
// that moment, and a binary search finds such gaps. So most of the placed items need not be
// compared with the item.
class Samples {
 public:
  Samples(int64_t first, int64_t last, size_t items) {
    if (items < kWorthSamples) return;
    first_ = first;
    apart_ = std::max<int64_t>(1, (last - first) / kSamples);
    alive_.resize(static_cast<size_t>((last - first) / apart_) + 1);
  }
  void add(const Item& item, int64_t behind) {
    const auto [begin, end] = within(item);
    for (size_t i = begin; i < end; ++i) alive_[i].add(item.offset, behind);
  }
  // Looks at the first, the middle and the last moment at which the item is alive. Returns the
  // lowest offset, at least `at`, at which the item's bytes are free at these moments; `at` if the
  // item is alive at no moment.
  int64_t first_gap(const Item& item, int64_t at) const {
    const auto [begin, end] = within(item);
    if (begin >= end) return at;
    for (int64_t before = -1; before != at;) {
      before = at;
      for (const size_t i : {begin, begin + (end - begin) / 2, end - 1})
        at = alive_[i].first_gap(at, item.bytes);
    }
    return at;
  }

 private:
  static constexpr size_t kWorthSamples = 256;  // with fewer items no moments are kept
  static constexpr int64_t kSamples = 64;
  // Returns the index of the first moment at which the item is alive, and one more than the index
  // of the last. Moment i is at the time first_ + i * apart_.
  std::pair<size_t, size_t> within(const Item& item) const {
    if (alive_.empty()) return {0, 0};
    const int64_t begin = (item.first - first_ + apart_ - 1) / apart_;
    const int64_t end = (item.last - first_) / apart_ + 1;
    return {static_cast<size_t>(begin), static_cast<size_t>(end)};
  }
  int64_t first_ = 0, apart_ = 1;
  std::vector<AliveAt> alive_;
};

// A `Placed` has the items that have been placed, grouped by the runs in which they repeat. Items
// of different groups are never alive at the same time, unless one of the groups is that of items
// that do not repeat (null).
class Placed {
 public:
  // `items`: all items that will be placed. Their intervals determine the moments of Samples.
  explicit Placed(const std::vector<Item>& items) {
    struct Line {
      int64_t first = 0, last = 0;
      size_t items = 0;
    };
    std::map<const Runs*, Line> lines;
    for (const Item& item : items) {
      Line& line = lines.try_emplace(item.repeats, Line{item.first, item.last, 0}).first->second;
      line.first = std::min(line.first, item.first);
      line.last = std::max(line.last, item.last);
      ++line.items;
    }
    for (const auto& [runs, line] : lines)
      samples_.emplace(runs, Samples(line.first, line.last, line.items));
  }

  void add(const Item& item, int64_t behind) {
    samples_.at(item.repeats).add(item, behind);
    std::vector<PlacedBlock>& blocks = by_runs_[item.repeats];
    const PlacedBlock::Entry entry{item, behind};
    auto next =
        std::upper_bound(blocks.begin(), blocks.end(), item.offset,
                         [](int64_t at, const PlacedBlock& block) { return at < block.offset(); });
    if (next != blocks.begin()) --next;
    if (next == blocks.end()) {
      blocks.emplace_back(std::vector<PlacedBlock::Entry>{entry});
      return;
    }
    next->add(entry);
    if (next->is_full()) {
      PlacedBlock rest = next->split();
      blocks.insert(std::next(next), std::move(rest));
    }
  }

  // Returns the lowest offset, at least `base`, at which the item's bytes are free during its whole
  // interval. The search begins at `base` and moves past each entry in the way. The offset only
  // grows, so no entry is looked at twice.
  int64_t first_free(const Item& item, int64_t base) {
    parts_.clear();
    for (const auto& [runs, blocks] : by_runs_) {
      const bool meets = runs == item.repeats || runs == nullptr || item.repeats == nullptr;
      if (meets && !blocks.empty()) parts_.push_back({blocks.data(), &blocks.back() + 1});
    }
    const Samples& samples = samples_.at(item.repeats);
    int64_t at = samples.first_gap(item, base);
    for (bool moved = true; moved;) {
      const int64_t before = at;
      for (Part& part : parts_) at = part.pass(item, samples, at);
      moved = at != before && parts_.size() > 1;
    }
    return at;
  }

 private:
  struct Part {
    const PlacedBlock *block, *end;
    size_t entry = 0;  // of the block

    // Returns the lowest offset, at least `at`, at which the item does not overlap the entries of
    // this part up to the item's last byte.
    int64_t pass(const Item& item, const Samples& samples, int64_t at) {
      for (; block != end; ++block, entry = 0) {
        if (block->behind() <= at) continue;
        if (entry == 0) {
          if (block->offset() - at >= item.bytes) return at;
          if (block->is_clear_of(item)) continue;
          if (block->is_closed_to(item)) {
            at = samples.first_gap(item, block->behind());
            continue;
          }
        }
        for (; entry < block->entries().size(); ++entry) {
          const PlacedBlock::Entry& next = block->entries()[entry];
          if (next.item.offset - at >= item.bytes) return at;
          if (next.behind <= at || !overlap(next.item, item)) continue;
          at = samples.first_gap(item, next.behind);
          if (block->behind() <= at) break;
        }
      }
      return at;
    }
  };
  std::map<const Runs*, std::vector<PlacedBlock>> by_runs_;  // each by offset
  std::map<const Runs*, Samples> samples_;
  std::vector<Part> parts_;
};

}  // namespace

int64_t aligned_to(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

int64_t place_items(std::vector<ArenaItem>& items, int64_t base, int64_t alignment) {
  std::vector<Item*> order;
  for (Item& item : items) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    if (a->first != b->first) return a->first < b->first;
    return a->buffer < b->buffer;
  });
  Placed placed(items);
  int64_t end = 0;
  for (Item* item : order) {
    item->offset = placed.first_free(*item, base);
    if (item->bytes == 0) continue;
    end = std::max(end, item->offset + item->bytes);
    placed.add(*item, item->offset + aligned_to(item->bytes, alignment));
  }
  return end;
}

}  // namespace tessera
