// An `Agenda` is a queue of events in the order of their times. An event belongs to a number, its
// `who`; each number has at most one event, which can be moved to another time. If two events have
// equal times, the event that was set first comes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::engine {

class Agenda {
 public:
  struct Entry {
    double time = 0;
    uint64_t order = 0;
    int32_t who = 0;
    bool before(const Entry& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };
  bool empty() const { return heap_.empty(); }
  const Entry& next() const { return heap_.front(); }

  // Sets or moves the event of `who`. `order` must be larger than in all earlier calls.
  void set(int32_t who, double time, uint64_t order) {
    const auto w = static_cast<size_t>(who);
    if (w >= place_.size()) place_.resize(w + 1, kNowhere);
    size_t at = place_[w];
    const Entry entry{time, order, who};
    if (at == kNowhere) {
      at = heap_.size();
      heap_.push_back(entry);
    }
    settle(at, entry);
  }

  void erase(int32_t who) {
    const auto w = static_cast<size_t>(who);
    if (w >= place_.size() || place_[w] == kNowhere) return;
    const size_t at = std::exchange(place_[w], kNowhere);
    const Entry last = heap_.back();
    heap_.pop_back();
    if (last.who != who) settle(at, last);
  }

 private:
  // Puts the entry into the binary heap, in which position `at` is free: moves other entries until
  // the free position is where the entry belongs.
  void settle(size_t at, const Entry& entry) {
    while (at > 0 && entry.before(heap_[(at - 1) / 2])) {
      put(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    for (size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(entry)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, entry);
  }
  void put(size_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[static_cast<size_t>(entry.who)] = at;
  }

  static constexpr size_t kNowhere = SIZE_MAX;
  std::vector<Entry> heap_;
  std::vector<size_t> place_;  // by number: the position of its event in the heap, or kNowhere
};

}  // namespace tessera::engine
