// The items of one block in one run (conditions resolved), with the figures to play a stretch of
// them at once. A stretch is compute, and collectives of the player alone that are waited for at
// once. Undisturbed from outside, it maps the host clock h and the time d at which the compute
// stream is free to
//   h' = h + host      d' = max(d + device, h + lead)
// for every first item, because each item is such a map and they compose. Beside messages that use
// NICs alone it is also such a map, with its kernels slowed, if its collectives leave the NICs
// alone.
//
// A rigid stretch also has bundles: a collective of the player alone, the kernels that run beside
// it, and its wait. They slow each other, so that a bundle is no such map; but where no item waits
// for the host, d + device >= h + lead, all its times are fixed from its start on.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "tessera/simulate/engine.h"

namespace tessera::engine {

struct Suffix {       // from an item to the end of its stretch
  int32_t end = 0;    // one past the last item; the item itself: it is in no stretch
  double device = 0;  // of all kernels and collectives
  double host = 0;
  double lead = 0;  // from the host's arrival at the item to the end, if only the host counts
};
// Transfers at a player while a stretch is played.
enum class Beside : uint8_t { kNothing, kMessages };
inline constexpr size_t kBesides = 2;

// A `Manner` says how a stretch is played: beside what, and with bundles (rigid) or without.
struct Manner {
  Beside beside = Beside::kNothing;
  bool rigid = false;
  size_t index() const { return static_cast<size_t>(beside) + (rigid ? kBesides : 0); }
  friend bool operator==(const Manner&, const Manner&) = default;
};
inline constexpr size_t kManners = 2 * kBesides;

// From the issue of a collective to its wait, by Beside: the time of all, and of the collective.
struct Bundle {
  int32_t issue = 0, wait = 0;
  std::array<double, kBesides> total{}, collective{};
};

// Stretches among the items of a run. Runs whose items take equal times share them.
struct Stretches {
  // By Manner and item, one past the last too; for rigid manners only where there are bundles.
  std::array<std::vector<Suffix>, kManners> suffixes;
  std::vector<Bundle> bundles;
  std::vector<int32_t> bundle_of;                     // by item; -1: in none
  std::array<std::vector<double>, kBesides> started;  // by item of a bundle, since its issue
};

struct RunItems {
  BlockRef ref;
  int32_t player = 0;
  std::span<const Item> items;  // the block's, or own
  std::vector<Item> own;
  std::shared_ptr<const Stretches> stretches;
  std::vector<int32_t> receives;    // posted ahead: index into items
  std::vector<double> host_before;  // of each of those, from the beginning of the block
  double host = 0;                  // of all items
  Rules rules;                      // of the play

  RunItems() = default;
  RunItems(RunItems&&) = default;
  RunItems& operator=(RunItems&&) = default;

  const std::vector<Suffix>& of(Manner manner) const { return stretches->suffixes[manner.index()]; }
  const std::vector<Bundle>& bundles() const { return stretches->bundles; }
  const Bundle* bundle(size_t item) const {
    const int32_t index = stretches->bundle_of[item];
    return index < 0 ? nullptr : &bundles()[static_cast<size_t>(index)];
  }
  const std::vector<double>& started(Beside beside) const {
    return stretches->started[static_cast<size_t>(beside)];
  }
  // Returns a kernel's time over its time alone; crowded(): also beside a collective in the node.
  double slowed(Beside beside) const {
    return beside == Beside::kMessages ? std::max(1.0, rules.nic_slowdown) : 1;
  }
  double crowded(Beside beside) const { return std::max(slowed(beside), rules.inner_slowdown); }
};

inline bool only_host(const Item& item) {
  return item.kind == ItemKind::kWait || item.kind == ItemKind::kHost;
}
// Returns the time on the device that an item takes when nothing disturbs it; 0 if only the host
// knows of it.
inline double device_time(const Item& item) {
  return only_host(item) ? 0 : item.latency_s + item.work_s;
}
// Returns the same time for an item in a stretch, outside bundles.
inline double device_time(const Item& item, const RunItems& run_items, Beside beside) {
  return device_time(item) * (item.kind == ItemKind::kCompute ? run_items.slowed(beside) : 1);
}

// The state of a bundle some time after its issue.
struct InBundle {
  int32_t item = 0;            // at work: a kernel, or the wait
  double left = 0;             // of the kernel, at full speed
  double latency_left = 0;     // of the collective
  double collective_left = 0;  // of its work, at full speed
  double collective_end = 0;   // since the issue, if nothing of it is left
};
InBundle play_bundle(const RunItems& run_items, const Bundle& bundle, Beside beside, double until);

// The items of all runs of a play, each made when it is first asked for.
class RunItemsTable {
 public:
  explicit RunItemsTable(const Play& play);  // outlives it
  // Returns the index of a block's run, which may be its first and its last.
  int32_t index_of(int32_t player, int32_t block, bool first, bool last) {
    const int32_t index = index_[static_cast<size_t>(player)][static_cast<size_t>(block)]
                                [(first ? 1u : 0u) + (last ? 2u : 0u)];
    return index < 0 ? make(player, block, first, last) : index;
  }
  const RunItems& operator[](int32_t index) const { return run_items_[static_cast<size_t>(index)]; }
  int32_t size() const { return static_cast<int32_t>(run_items_.size()); }

 private:
  int32_t make(int32_t player, int32_t block, bool first, bool last);

  const Play& play_;
  std::deque<RunItems> run_items_;  // addresses of items stay
  // By player, block and first + 2 last; -1: not made.
  std::vector<std::vector<std::array<int32_t, 4>>> index_;
  std::vector<std::vector<int32_t>> different_;  // by block: without stretches in common
};

}  // namespace tessera::engine
