// How often items were played in stretches (stretch.h), and what the results of players owe to them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tessera/simulate/stretch.h"

namespace tessera::engine {

struct PlayedStretch {  // a stretch that was played: items [from, to)
  int32_t run_items = 0, from = 0, to = 0;
  Manner manner;
};

class StretchCounts {
 public:
  explicit StretchCounts(const RunItemsTable& run_items) : run_items_(run_items) {}
  // Counts the items of the stretch as played `times` times.
  void add(const PlayedStretch& stretch, int64_t times = 1) {
    std::vector<int64_t>& played = of(stretch.run_items, stretch.manner);
    played[static_cast<size_t>(stretch.from)] += times;
    played[static_cast<size_t>(stretch.to)] -= times;
  }
  // Adds the times of all counted items to the results of their players.
  void add_to(std::span<PlayerResult> results) const;

 private:
  std::vector<int64_t>& of(int32_t run_items, Manner manner);
  void add_to(int32_t run_items, Manner manner, PlayerResult& result) const;

  const RunItemsTable& run_items_;
  // By run items, Manner and item: how often the item was played in a stretch, minus how often the
  // item before it was. (A stretch then changes only the numbers at its two ends.)
  std::vector<std::array<std::vector<int64_t>, kManners>> played_;
};

}  // namespace tessera::engine
