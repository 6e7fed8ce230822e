#include "tessera/search/rank/partition.h"

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/infinity.h"
#include "tessera/search/constants.h"
#include "tessera/search/rank/estimate.h"

namespace tessera {
namespace {

// A change of a unit to a level that holds fewer bytes.
struct Upgrade {
  size_t unit = 0, to = 0;
  double saved_bytes = 0, lost_s = 0;
  double price() const { return lost_s / saved_bytes; }
};

class Places {
 public:
  // Computes the least time of each range at each place. Ranges that take longer than `most_s` are
  // left out, because the answer does not need them.
  Places(const PartitionProblem& problem, double most_s)
      : problem_(problem), units_(problem.resting_bytes.size()) {
    for (size_t u = 0; u < units_; ++u) upgrades_.push_back(upgrades_of(u));
    const size_t places = problem.in_flight.size();
    best_.assign(places, std::vector<double>((units_ + 1) * (units_ + 1), kInfinity));
    for (size_t q = 0; q < places; ++q) {
      if (q > 0 && problem.in_flight[q] == problem.in_flight[q - 1]) {
        best_[q] = best_[q - 1];
        continue;
      }
      for (size_t i = 0; i < units_; ++i) {
        Range range;
        for (size_t j = i + 1; j <= units_; ++j) {
          add(range, j - 1);
          const double time = solve(q, range, nullptr);
          if (time > most_s) break;  // longer ranges need even more time and memory
          best_[q][i * (units_ + 1) + j] = time;
        }
      }
    }
  }

  size_t units() const { return units_; }
  size_t places() const { return best_.size(); }
  double time(size_t place, size_t first, size_t last) const {
    return best_[place][first * (units_ + 1) + last];
  }
  // Sets the levels of the range's units with which the range takes time(place, first, last).
  void levels(size_t place, size_t first, size_t last, std::vector<size_t>& out) const {
    Range range;
    for (size_t u = first; u < last; ++u) {
      out[u] = 0;
      add(range, u);
    }
    solve(place, range, &out);
  }

 private:
  // Returns the changes of a unit from level to level, on the convex hull of (bytes, seconds): each
  // change saves bytes at a higher price than the change before it.
  std::vector<Upgrade> upgrades_of(size_t unit) const {
    std::vector<Upgrade> out;
    size_t at = 0;
    for (;;) {
      const auto& now = problem_.levels[at];
      std::optional<Upgrade> cheapest;
      for (size_t to = 0; to < problem_.levels.size(); ++to) {
        const auto& next = problem_.levels[to];
        Upgrade upgrade{unit, to, now.activation_bytes[unit] - next.activation_bytes[unit],
                        std::max(0.0, next.time_s[unit] - now.time_s[unit])};
        if (upgrade.saved_bytes <= 0) continue;
        if (!cheapest || upgrade.price() < cheapest->price()) cheapest = upgrade;
      }
      if (!cheapest) return out;
      out.push_back(*cheapest);
      at = cheapest->to;
    }
  }

  struct Range {
    // With all units at the first level.
    double time_s = 0, resting_bytes = 0, activation_bytes = 0;
    std::vector<Upgrade> upgrades;  // the cheapest first
  };
  void add(Range& range, size_t unit) const {
    range.time_s += problem_.levels[0].time_s[unit];
    range.resting_bytes += problem_.resting_bytes[unit];
    range.activation_bytes += problem_.levels[0].activation_bytes[unit];
    for (const Upgrade& upgrade : upgrades_[unit]) {
      // Inserts the upgrade after others of equal price. A unit's own upgrades have rising prices,
      // so they stay in their order.
      const auto at = std::upper_bound(
          range.upgrades.begin(), range.upgrades.end(), upgrade,
          [](const Upgrade& a, const Upgrade& b) { return a.price() < b.price(); });
      range.upgrades.insert(at, upgrade);
    }
  }

  double solve(size_t place, const Range& range, std::vector<size_t>* levels) const {
    const double capacity = problem_.capacity_bytes;
    double time = range.time_s, alive = problem_.levels[0].alive_bytes;
    double held = range.resting_bytes + problem_.in_flight[place] * range.activation_bytes;
    if (capacity <= 0 || held + alive <= capacity) return time;
    for (const Upgrade& upgrade : range.upgrades) {
      time += upgrade.lost_s;
      held -= problem_.in_flight[place] * upgrade.saved_bytes;
      alive = std::max(alive, problem_.levels[upgrade.to].alive_bytes);
      if (levels != nullptr) (*levels)[upgrade.unit] = upgrade.to;
      if (held + alive <= capacity) return time;
    }
    return kInfinity;
  }

  const PartitionProblem& problem_;
  size_t units_;
  std::vector<std::vector<Upgrade>> upgrades_;  // by unit, in the order of rising price
  std::vector<std::vector<double>> best_;       // by place: [first * (units + 1) + last]
};

// Returns whether the units can be cut so that no place needs longer than the bound. It gives every
// place as many units as fit the bound. That is optimal, because later places hold no more
// micro-batches than earlier ones.
bool is_feasible(const Places& places, double bound) {
  size_t at = 0;
  for (size_t q = 0; q < places.places(); ++q) {
    const size_t later = places.places() - q - 1;
    size_t end = at;
    while (end + later < places.units() && places.time(q, at, end + 1) <= bound) ++end;
    if (end == at) return false;
    at = end;
  }
  return at == places.units();
}

// Returns the cuts with the least sum of times among those that keep every place within the bound,
// and sets the sum. Returns nothing if there are no such cuts.
std::optional<std::vector<size_t>> least_sum(const Places& places, double bound, double& sum) {
  const size_t n = places.units(), p = places.places();
  std::vector<std::vector<double>> best(p + 1, std::vector<double>(n + 1, kInfinity));
  std::vector<std::vector<size_t>> from(p + 1, std::vector<size_t>(n + 1));
  best[0][0] = 0;
  for (size_t q = 0; q < p; ++q) {
    for (size_t i = q; i < n; ++i) {
      if (best[q][i] == kInfinity) continue;
      for (size_t j = i + 1; j <= n; ++j) {
        const double time = places.time(q, i, j);
        if (time > bound) break;
        // The squares, weighted with a millionth, let the more even of two cuts with equal
        // sums win.
        const double value = best[q][i] + time + 1e-6 * time * time / bound;
        if (value >= best[q + 1][j]) continue;
        best[q + 1][j] = value;
        from[q + 1][j] = i;
      }
    }
  }
  if (best[p][n] == kInfinity) return {};
  std::vector<size_t> cuts(p);
  sum = 0;
  for (size_t q = p, j = n; q > 0; --q) {
    cuts[q - 1] = from[q][j];
    sum += places.time(q - 1, cuts[q - 1], j);
    j = cuts[q - 1];
  }
  return cuts;
}

}  // namespace

std::optional<Partition> partition(const PartitionProblem& problem) {
  const size_t units = problem.resting_bytes.size(), count = problem.in_flight.size();
  TESSERA_CHECK(count >= 1 && units >= count, "{} units for {} places", units, count);
  // First guesses the largest time from evenly cut places at each level of recomputation. If some
  // cuts keep within this time, longer ranges are not needed. Otherwise all ranges are computed.
  double sum = 0, high = 0;
  for (const PartitionLevel& level : problem.levels) {
    for (const double time : level.time_s) sum += time;
    std::vector<double> times = level.time_s;
    const auto cuts = balance_stages(times, count);
    for (size_t q = 0; q < count; ++q) {
      double place = 0;
      for (size_t u = cuts[q]; u < (q + 1 < count ? cuts[q + 1] : units); ++u) place += times[u];
      high = std::max(high, place);
    }
  }
  std::optional<Places> places_found(std::in_place, problem, high * kFormulaErrs);
  if (!is_feasible(*places_found, high)) {
    high = sum;
    places_found.emplace(problem, sum);
    if (!is_feasible(*places_found, high)) return {};
  }
  const Places& places = *places_found;
  double low = 0;
  for (int i = 0; i < 60 && high - low > 1e-9 * high; ++i) {
    const double middle = (low + high) / 2;
    (is_feasible(places, middle) ? high : low) = middle;
  }
  const auto p = static_cast<double>(count);
  std::optional<Partition> out;
  for (int i = 0; i < kBounds; ++i) {
    const double bound =
        high * (1 + 1e-9) * (1 + (kFormulaErrs - 1) * static_cast<double>(i) / (kBounds - 1));
    double total_s = 0;
    const auto cuts = least_sum(places, bound, total_s);
    if (!cuts) continue;
    double slowest = 0;
    for (size_t q = 0; q < count; ++q) {
      slowest =
          std::max(slowest, places.time(q, (*cuts)[q], q + 1 < count ? (*cuts)[q + 1] : units));
    }
    const double cost = problem.micro_batches * slowest + problem.bubble * total_s / p * (p - 1);
    if (!out || cost < out->cost_s * (1 - 1e-12)) out = Partition{*cuts, {}, cost};
  }
  if (!out) return {};
  out->level.assign(units, 0);
  for (size_t q = 0; q < count; ++q) {
    places.levels(q, out->cuts[q], q + 1 < count ? out->cuts[q + 1] : units, out->level);
  }
  return out;
}

}  // namespace tessera
