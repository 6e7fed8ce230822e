// Keeps the Pareto front of (largest, sum). The time of a pipeline, sum + (m - 1) * largest,
// depends on both numbers. So dynamic programs over stages keep every pair that no other pair beats
// in both numbers, which is exact for any objective that rises with both (docs/planners/alpa.md
// section 6).
//
//   ParetoFront<int> front;
//   front.add({5, 20, 0});
//   front.add({6, 21, 1});     // beaten in both: not kept
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera::published {

template <class Back>
struct ParetoPoint {
  double largest = 0, sum = 0;
  Back back{};  // how the point was reached
};

// A front along which `largest` rises and `sum` falls. Among equal points the first added stays.
template <class Back>
class ParetoFront {
 public:
  using Point = ParetoPoint<Back>;
  const std::vector<Point>& points() const { return points_; }

  void add(const Point& point) {
    const auto at = std::upper_bound(
        points_.begin(), points_.end(), point.largest,
        [](double largest, const Point& known) { return largest < known.largest; });
    if (at != points_.begin() && std::prev(at)->sum <= point.sum) return;
    auto last = at;
    while (last != points_.end() && last->sum >= point.sum) ++last;
    auto first = at;
    if (first != points_.begin() && std::prev(first)->largest == point.largest) --first;
    points_.insert(points_.erase(first, last), point);
  }

 private:
  std::vector<Point> points_;
};

}  // namespace tessera::published
