#include <algorithm>
#include <limits>

#include "tessera/base/small_vector.h"
#include "tessera/simulate/engine.h"

namespace tessera::engine {

// Raises all rates together (progressive filling), such that each transfer takes an equal share of
// its most used link. A rate stops to rise when one of its links is full or when the transfer has
// its own full speed.
std::vector<double> fair_rates(const std::vector<DirectedUse>& uses) {
  constexpr double kFull = 1 + 1e-12;
  const size_t n = uses.size();
  std::vector<double> rates(n, 1);
  DirectedUse demand{};
  for (size_t i = 0; i < n; ++i) {
    for (size_t r = 0; r < demand.size(); ++r) demand[r] += uses[i][r];
  }
  if (std::all_of(demand.begin(), demand.end(), [](double d) { return d <= kFull; })) return rates;
  SmallVector<double, 8> widest(n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (const double use : uses[i]) widest[i] = std::max(widest[i], use);
  }
  SmallVector<bool, 8> fixed(n, false);
  DirectedUse left;
  left.fill(1);
  for (size_t open = n; open > 0;) {
    // The share at which the next link is full or the next transfer has its full speed.
    double level = std::numeric_limits<double>::infinity();
    DirectedUse weights{};
    for (size_t r = 0; r < left.size(); ++r) {
      for (size_t i = 0; i < n; ++i) {
        if (!fixed[i] && widest[i] > 0) weights[r] += uses[i][r] / widest[i];
      }
      if (weights[r] > 0) level = std::min(level, std::max(0.0, left[r]) / weights[r]);
    }
    for (size_t i = 0; i < n; ++i) {
      if (!fixed[i]) level = std::min(level, widest[i]);
    }
    SmallVector<size_t, 8> stopped;
    for (size_t i = 0; i < n; ++i) {
      if (fixed[i]) continue;
      bool full = widest[i] <= level * kFull;
      for (size_t r = 0; r < left.size() && !full; ++r) {
        full = uses[i][r] > 0 && weights[r] * level * kFull >= left[r];
      }
      if (full) stopped.push_back(i);
    }
    for (const size_t i : stopped) {
      fixed[i] = true;
      --open;
      rates[i] = widest[i] > 0 ? std::min(1.0, level / widest[i]) : 1;
      for (size_t r = 0; r < left.size(); ++r) left[r] -= uses[i][r] * rates[i];
    }
  }
  return rates;
}

}  // namespace tessera::engine
