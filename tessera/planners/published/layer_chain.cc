#include "tessera/planners/published/layer_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/check.h"
#include "tessera/base/infinity.h"

namespace tessera::published {
namespace {

struct Point {
  int64_t memory = 0;
  double seconds = 0;
};
using Front = std::vector<Point>;  // memory rises, seconds fall

// By (layer, strategy): the least value of seconds + price * memory over the layers after it.
using Table = std::vector<std::vector<double>>;

class ChainSearch {
 public:
  explicit ChainSearch(const ChainProblem& problem) : problem_(problem) {
    const size_t count = problem.layers.size();
    changes_.resize(count);
    for (size_t l = 1; l < count; ++l) {
      for (size_t from = 0; from < strategies(l - 1); ++from) {
        for (size_t to = 0; to < strategies(l); ++to)
          changes_[l].push_back(problem.change(l, from, to));
      }
    }
  }

  std::optional<ChainPlan> solve() {
    find_least_memory();
    if (least_memory_total() > problem_.limit) return std::nullopt;
    find_price();
    if (best_known_ == kInfinity) return std::nullopt;
    make_fronts();
    return answer();
  }

 private:
  size_t strategies(size_t l) const { return problem_.layers[l].seconds.size(); }
  double change(size_t l, size_t from, size_t to) const {
    return changes_[l][from * strategies(l) + to];
  }

  // Computes the least memory of the layers after each layer l, which is the same for all
  // strategies of l.
  void find_least_memory() {
    const size_t count = problem_.layers.size();
    least_after_.assign(count, 0);
    for (size_t l = count - 1; l > 0; --l) {
      least_after_[l - 1] = least_after_[l] + least_of(l);
    }
  }
  int64_t least_of(size_t l) const {
    const ChainLayer& layer = problem_.layers[l];
    int64_t least = std::numeric_limits<int64_t>::max() / 4;
    for (size_t s = 0; s < strategies(l); ++s) {
      if (layer.seconds[s] < kInfinity) least = std::min(least, layer.memory[s]);
    }
    return least;
  }
  int64_t least_memory_total() const { return least_after_[0] + least_of(0); }

  // Returns the plan with the least seconds + price * memory, and sets `after` to the least such
  // value of the layers after each (l, s).
  ChainPlan best_at(double price, Table& after) const {
    const size_t count = problem_.layers.size();
    after.assign(count, {});
    std::vector<std::vector<size_t>> next(count);
    after[count - 1].assign(strategies(count - 1), 0.0);
    for (size_t l = count - 1; l > 0; --l) {
      after[l - 1].assign(strategies(l - 1), kInfinity);
      next[l - 1].assign(strategies(l - 1), 0);
      for (size_t from = 0; from < strategies(l - 1); ++from) {
        for (size_t to = 0; to < strategies(l); ++to) {
          const double value = change(l, from, to) + own(l, to, price) + after[l][to];
          if (value < after[l - 1][from]) {
            after[l - 1][from] = value;
            next[l - 1][from] = to;
          }
        }
      }
    }
    ChainPlan plan;
    size_t s = 0;
    for (size_t first = 1; first < strategies(0); ++first) {
      if (own(0, first, price) + after[0][first] < own(0, s, price) + after[0][s]) s = first;
    }
    for (size_t l = 0; l < count; ++l) {
      if (l > 0) {
        const size_t to = next[l - 1][s];
        plan.seconds += change(l, s, to);
        s = to;
      }
      plan.strategies.push_back(s);
      plan.seconds += problem_.layers[l].seconds[s];
      plan.memory += problem_.layers[l].memory[s];
    }
    return plan;
  }
  double own(size_t l, size_t s, double price) const {
    return problem_.layers[l].seconds[s] +
           price * static_cast<double>(problem_.layers[l].memory[s]);
  }

  // Bisects for the least price at which the cheapest plan fits. The last plan that fits gives an
  // upper bound of the answer's seconds.
  void find_price() {
    Table after;
    ChainPlan over;  // the last plan that does not fit
    const auto fits_at = [&](double price) {
      const ChainPlan plan = best_at(price, after);
      const bool fits = plan.memory <= problem_.limit && plan.seconds < kInfinity;
      if (!fits) over = plan;
      if (fits && plan.seconds <= best_known_) {
        best_known_ = plan.seconds;
        known_ = plan;
        price_ = price;
        after_ = after;
      }
      return fits;
    };
    if (fits_at(0)) return;
    constexpr int kSteps = 60;
    double high = 1e-6;
    for (int i = 0; i < kSteps && !fits_at(high); ++i) high *= 4;
    double low = 0;
    for (int i = 0; i < kSteps; ++i) {
      const double middle = (low + high) / 2;
      (fits_at(middle) ? high : low) = middle;
    }
    if (best_known_ < kInfinity) mix(known_, over);
  }

  ChainPlan plan_of(const std::vector<size_t>& strategies) const {
    ChainPlan plan;
    plan.strategies = strategies;
    for (size_t l = 0; l < strategies.size(); ++l) {
      plan.seconds += problem_.layers[l].seconds[strategies[l]];
      plan.memory += problem_.layers[l].memory[strategies[l]];
      if (l > 0) plan.seconds += change(l, strategies[l - 1], strategies[l]);
    }
    return plan;
  }

  // Improves the upper bound with mixed plans, whose first or last layers have the strategies of
  // `over`, a plan that does not fit. That helps because all equal layers change their strategy at
  // one price, so that `fits` leaves much memory unused.
  void mix(const ChainPlan& fits, const ChainPlan& over) {
    const ChainPlan base = fits;
    for (const bool from_start : {true, false}) {
      std::vector<size_t> mixed = base.strategies;
      for (size_t i = 0; i < mixed.size(); ++i) {
        const size_t l = from_start ? i : mixed.size() - 1 - i;
        mixed[l] = over.strategies[l];
        ChainPlan plan = plan_of(mixed);
        if (plan.memory > problem_.limit || plan.seconds >= best_known_) continue;
        best_known_ = plan.seconds;
        known_ = std::move(plan);
      }
    }
  }

  // Makes the fronts of (memory, seconds) of the chain up to (l, s).
  void make_fronts() {
    const size_t count = problem_.layers.size();
    const double most = problem_.tolerance > 0 ? best_known_ * (1 - problem_.tolerance)
                                               : best_known_ + 1e-9 * (1 + std::abs(best_known_));
    fronts_.resize(count);
    Front points;
    for (size_t l = 0; l < count; ++l) {
      const ChainLayer& layer = problem_.layers[l];
      fronts_[l].resize(strategies(l));
      for (size_t s = 0; s < strategies(l); ++s) {
        points.clear();
        const auto add = [&](int64_t memory, double seconds) {
          const int64_t total = memory + layer.memory[s];
          const double sum = seconds + layer.seconds[s];
          if (total + least_after_[l] > problem_.limit) return;
          const double slack = static_cast<double>(total - problem_.limit);
          if (sum + after_[l][s] + price_ * slack <= most) points.push_back({total, sum});
        };
        if (l == 0) add(0, 0);
        for (size_t from = 0; l > 0 && from < strategies(l - 1); ++from) {
          const double between = change(l, from, s);
          for (const Point& point : fronts_[l - 1][from])
            add(point.memory, point.seconds + between);
        }
        fronts_[l][s] = front_of(points);
      }
    }
  }
  static Front front_of(Front& points) {
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
      return a.memory != b.memory ? a.memory < b.memory : a.seconds < b.seconds;
    });
    Front front;
    for (const Point& point : points) {
      if (front.empty() || point.seconds < front.back().seconds) front.push_back(point);
    }
    return front;
  }

  // Returns f(l, e, s), infinite if nothing fits.
  double value(size_t l, int64_t e, size_t s) const {
    const Front& front = fronts_[l][s];
    const auto after =
        std::upper_bound(front.begin(), front.end(), e,
                         [](int64_t memory, const Point& point) { return memory < point.memory; });
    return after == front.begin() ? kInfinity : std::prev(after)->seconds;
  }

  std::optional<ChainPlan> answer() const {
    const size_t count = problem_.layers.size();
    ChainPlan plan;
    plan.seconds = kInfinity;
    size_t s = 0;
    for (size_t last = 0; last < strategies(count - 1); ++last) {
      const double seconds = value(count - 1, problem_.limit, last);
      if (seconds < plan.seconds) {
        plan.seconds = seconds;
        s = last;
      }
    }
    if (problem_.tolerance > 0 && plan.seconds >= best_known_) return known_;
    // The fronts contain at least the plan known to fit, because the bound drops no point of an
    // optimal plan.
    TESSERA_CHECK(plan.seconds < kInfinity, "no plan of at most {} seconds", best_known_);
    int64_t left = problem_.limit;
    plan.strategies.assign(count, 0);
    for (size_t l = count - 1;; --l) {
      plan.strategies[l] = s;
      left -= problem_.layers[l].memory[s];
      if (l == 0) break;
      size_t best = 0;
      double least = kInfinity;
      for (size_t from = 0; from < strategies(l - 1); ++from) {
        const double seconds = value(l - 1, left, from) + change(l, from, s);
        if (seconds < least) {
          least = seconds;
          best = from;
        }
      }
      s = best;
    }
    plan.memory = problem_.limit - left;
    return plan;
  }

  const ChainProblem& problem_;
  std::vector<std::vector<double>> changes_;
  std::vector<int64_t> least_after_;
  double price_ = 0;
  double best_known_ = kInfinity;
  ChainPlan known_;  // a plan that fits and takes best_known_ seconds
  Table after_;
  std::vector<std::vector<Front>> fronts_;
};

}  // namespace

std::optional<ChainPlan> best_chain(const ChainProblem& problem) {
  TESSERA_CHECK(!problem.layers.empty(), "a chain has at least one layer");
  return ChainSearch(problem).solve();
}

}  // namespace tessera::published
