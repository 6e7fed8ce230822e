// Builds a schedule from time slots. A generator gives each run a slot number; the list of a place
// is its runs in the order of their slots.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/plan/schedules/schedule.h"

namespace tessera::schedules {

class Slots {
 public:
  explicit Slots(int64_t places) : rows_(static_cast<size_t>(places)) {}

  // Adds a run to the place. Runs of the place in the same slot stay in the order in which they
  // were put.
  void put(int64_t place, int64_t slot, const BlockRun& run) {
    rows_[static_cast<size_t>(place)].push_back({slot, run});
  }
  Schedule schedule() {
    Schedule out;
    for (auto& row : rows_) {
      std::stable_sort(row.begin(), row.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      auto& runs = out.emplace_back();
      for (const auto& [slot, run] : row) runs.push_back(run);
    }
    return out;
  }

 private:
  std::vector<std::vector<std::pair<int64_t, BlockRun>>> rows_;
};

}  // namespace tessera::schedules
