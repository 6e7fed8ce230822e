// The items of one block in one run (conditions resolved), with what is needed to play a stretch of
// them at once. A stretch: compute, and collectives of the player alone that are waited for at
// once. Undisturbed from outside, it maps (h, d), the host clock and the time at which the compute
// stream is free, to
//   h' = h + host      d' = max(d + device, h + lead)
// for every first item, because each item is such a map and they compose. Beside messages that use
// NICs alone it maps them so too, its kernels slowed, if its collectives leave the NICs alone.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "tessera/simulate/engine.h"

namespace tessera::engine {

struct Suffix {       // from an item to the end of its stretch
  int32_t end = 0;    // one past the last item; the item itself: it is in no stretch
  double device = 0;  // of all kernels and collectives
  double host = 0;
  double lead = 0;  // from the host's arrival at the item to the end, if only the host counts
};
// What moves at a player while a stretch is played.
enum class Beside : uint8_t { kNothing, kMessages };
inline constexpr size_t kBesides = 2;

struct Text {
  BlockRef ref;
  std::vector<Item> items;
  std::array<std::vector<Suffix>, kBesides> suffixes;  // by Beside and item, one past the last too
  double slowed = 1;                // time of a kernel beside messages over that alone
  std::vector<int32_t> receives;    // posted ahead: index into items
  std::vector<double> host_before;  // of each of those, from the beginning of the block
  double host = 0;                  // of all items
};

inline bool only_host(const Item& item) {
  return item.kind == ItemKind::kWait || item.kind == ItemKind::kHost;
}
// Time on the device that an item takes when nothing disturbs it; 0 if only the host
// knows of it.
inline double device_time(const Item& item) {
  return only_host(item) ? 0 : item.latency_s + item.work_s;
}
// The same of an item in a stretch.
inline double device_time(const Item& item, const Text& text, Beside beside) {
  const bool slowed = beside == Beside::kMessages && item.kind == ItemKind::kCompute;
  return slowed ? device_time(item) * text.slowed : device_time(item);
}
// `slower`: of a straggler's kernels.
Text make_text(const Block& block, bool first, bool last, double slower, const Rules& rules,
               bool compact);

// The texts of a play, each made when it is first asked for.
class Texts {
 public:
  explicit Texts(const Play& play);  // outlives it
  // Of a block's run, which may be its first and its last.
  int32_t index_of(int32_t player, int32_t block, bool first, bool last);
  const Text& operator[](int32_t index) const { return texts_[static_cast<size_t>(index)]; }
  // By block, first + 2 last; -1: not made.
  const std::vector<std::array<int32_t, 4>>& of_player(size_t player) const {
    return index_[player];
  }

 private:
  const Play& play_;
  std::deque<Text> texts_;                                  // addresses of items stay
  std::vector<std::vector<std::array<int32_t, 4>>> index_;  // by player
};

}  // namespace tessera::engine
