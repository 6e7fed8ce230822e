// The items of one block in one run (without those that do not take place in that run), with the
// figures to play stretches of them. A stretch is a sequence of items that can be played in one go:
// kernels, host items, and collectives in which only this player takes part and whose wait follows
// at once. If nothing from outside disturbs a stretch, it changes the host clock h and the time d
// at which the compute stream is free to
//   h' = h + host      d' = max(d + device, h + lead)
// The reason is that each item is such a map and that maps of this form compose to such a map. This
// holds for any first item of the stretch. It also holds while messages move that use only network
// cards, with slower kernels, if the stretch's collectives do not use network cards.
//
// A rigid stretch may also have bundles. A bundle is a collective in which only this player takes
// part, the kernels that run at the same time, and the collective's wait. Collective and kernels
// slow each other down, so that a bundle is no such map. But if no item of the stretch waits for
// the host, d + device >= h + lead, all times of a bundle follow from the time of its start.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "tessera/simulate/engine.h"

namespace tessera::engine {

struct Suffix {       // the items from one item to the end of its stretch
  int32_t end = 0;    // index after the last of these items; the item's own: it is in no stretch
  double device = 0;  // device time of all kernels and collectives
  double host = 0;    // host time of all items
  // Time from when the host comes to the first item until the last one ends, if no item waits for
  // the device.
  double lead = 0;
};
// The transfers that move at a player while it plays a stretch: none, or messages.
enum class Beside : uint8_t { kNothing, kMessages };
inline constexpr size_t kBesides = 2;

// A `Manner` says how a stretch is played: which transfers move at the same time (beside), and
// whether the stretch may have bundles (rigid).
struct Manner {
  Beside beside = Beside::kNothing;
  bool rigid = false;
  size_t index() const { return static_cast<size_t>(beside) + (rigid ? kBesides : 0); }
  friend bool operator==(const Manner&, const Manner&) = default;
};
inline constexpr size_t kManners = 2 * kBesides;

// A bundle of a rigid stretch, from the issue of a collective to its wait. By Beside: the time of
// the whole bundle, and the time of the collective.
struct Bundle {
  int32_t issue = 0, wait = 0;  // indices of the two items
  std::array<double, kBesides> total{}, collective{};
};

// The stretches among the items of a run. Runs whose items take equal times share one object.
struct Stretches {
  // By Manner and item, with one more element for the end of the run. For rigid manners empty if
  // there are no bundles.
  std::array<std::vector<Suffix>, kManners> suffixes;
  std::vector<Bundle> bundles;
  std::vector<int32_t> bundle_of;  // by item; -1: in none
  // By Beside and item: when an item of a bundle begins, relative to the issue of the bundle.
  std::array<std::vector<double>, kBesides> started;
};

struct RunItems {
  BlockRef ref;
  int32_t player = 0;
  std::span<const Item> items;  // the items of the block, or `own` if some do not take place
  std::vector<Item> own;
  std::shared_ptr<const Stretches> stretches;
  std::vector<int32_t> receives;    // indices of the receives that are posted ahead
  std::vector<double> host_before;  // by receive: host time of the items before it
  double host = 0;                  // host time of all items
  Rules rules;                      // the rules of the play

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
  // `slowed` returns how many times longer a kernel takes than by itself. `crowded` returns the
  // same ratio for a kernel that also runs at the same time as a collective inside the node.
  double slowed(Beside beside) const {
    return beside == Beside::kMessages ? std::max(1.0, rules.nic_slowdown) : 1;
  }
  double crowded(Beside beside) const { return std::max(slowed(beside), rules.inner_slowdown); }
};

inline bool only_host(const Item& item) {
  return item.kind == ItemKind::kWait || item.kind == ItemKind::kHost;
}
// Returns the time that an item takes on the device when nothing disturbs it; 0 for items of the
// host alone.
inline double device_time(const Item& item) {
  return only_host(item) ? 0 : item.latency_s + item.work_s;
}
// Returns the time that an item of a stretch takes on the device while the transfers `beside` move.
// Not for items of bundles.
inline double device_time(const Item& item, const RunItems& run_items, Beside beside) {
  return device_time(item) * (item.kind == ItemKind::kCompute ? run_items.slowed(beside) : 1);
}

// The state of a bundle some time after its issue.
struct InBundle {
  int32_t item = 0;            // the item at work: a kernel, or the wait
  double left = 0;             // time at full speed that the kernel still needs
  double latency_left = 0;     // latency of the collective that is left
  double collective_left = 0;  // time at full speed that the collective then still needs
  double collective_end = 0;   // when the collective ended, relative to the issue, if it has
};
// Returns the state of the bundle at the time `until`, relative to its issue.
InBundle play_bundle(const RunItems& run_items, const Bundle& bundle, Beside beside, double until);

// The run items of all blocks of a play. Each is made when it is first asked for.
class RunItemsTable {
 public:
  explicit RunItemsTable(const Play& play);  // `play` must outlive the table
  // Returns the index of the run items of a run of a block. `first`, `last`: whether it is the
  // first or the last run of the block in the step.
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
  std::deque<RunItems> run_items_;  // a deque, so that addresses of items stay valid
  // By player, block and (first + 2 * last): index into run_items_; -1: not made.
  std::vector<std::vector<std::array<int32_t, 4>>> index_;
  // By block number: indices of run items that do not share their stretches with each other.
  std::vector<std::vector<int32_t>> different_;
};

}  // namespace tessera::engine
