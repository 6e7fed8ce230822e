#include "tessera/network/order_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tessera/network/order_index.h"

namespace tessera {
namespace {

constexpr int64_t kMostForAllOrders = 9, kMostForHeldKarp = 16;
// The longest segment that a move reverses or passes.
constexpr int64_t kLongestSegment = 48;
constexpr double kStartShare = 0.1, kEndShare = 1e-4;

Order unchanged_order(int64_t machines) {
  Order out(index_of(machines));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// Returns whether a cost is as low as the bound, apart from rounding.
bool reaches(double cost, double bound) { return bound > 0 && cost <= bound * (1 + 1e-12); }

// Random numbers that are the same with every standard library.
class OrderDraw {
 public:
  explicit OrderDraw(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

class Annealing {
 public:
  Annealing(const OrderCosts& costs, const OrderSearch& search)
      : costs_(costs), search_(search), draw_(search.seed) {}

  OrderAnswer run() {
    const int64_t n = costs_.machines();
    std::vector<Order> starts = costs_.starts();
    starts.push_back(unchanged_order(n));
    // The best start comes first, then the others by cost, then random ones.
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t s = 0; s < starts.size(); ++s) {
      ranked.emplace_back(costs_.cost(starts[s]), s);
      ++out_.tried;
    }
    std::ranges::sort(ranked);
    out_.order = starts[ranked[0].second];
    out_.seconds = ranked[0].first;
    if (n < 2) return out_;
    const int64_t restarts = search_.restarts > 0 ? search_.restarts : n <= 32 ? 24 : 6;
    const double moves = static_cast<double>(search_.effort) /
                         (2 * costs_.messages_a_swap() * static_cast<double>(restarts));
    const auto steps = static_cast<int64_t>(std::min(moves, 30. * static_cast<double>(n * n)));
    for (int64_t r = 0; r < restarts && !proved(); ++r) {
      Order start = index_of(r) < ranked.size() && r < 3 ? starts[ranked[index_of(r)].second]
                                                         : unchanged_order(n);
      if (r >= 3) {
        for (int64_t i = n; i-- > 1;)
          std::swap(start[index_of(i)], start[index_of(draw_.below(i + 1))]);
      }
      once(std::move(start), steps);
    }
    out_.proof = proved() ? OrderProof::kBound : OrderProof::kBestFound;
    // The incremental sums have rounding errors.
    out_.seconds = costs_.cost(out_.order);
    return out_;
  }

 private:
  bool proved() const { return reaches(out_.seconds, costs_.bound()); }

  // Makes the changes of a move to the order. Returns false if the move would change nothing.
  bool make_move(const Order& order) {
    const auto n = std::ssize(order);
    changes_.clear();
    const double kind = draw_.uniform();
    int64_t a = draw_.below(n), b = draw_.below(n);
    if (kind < 0.7) {
      if (costs_.classes()[index_of(order[index_of(a)])] ==
          costs_.classes()[index_of(order[index_of(b)])])
        return false;
      changes_ = {{a, order[index_of(b)]}, {b, order[index_of(a)]}};
      return true;
    }
    if (std::abs(a - b) > kLongestSegment) b = a + (b > a ? kLongestSegment : -kLongestSegment);
    if (a == b) return false;
    if (kind < 0.9) {
      if (a > b) std::swap(a, b);
      for (int64_t i = a; i <= b; ++i) changes_.emplace_back(i, order[index_of(a + b - i)]);
      return true;
    }
    const int64_t step = a < b ? 1 : -1;
    for (int64_t i = a; i != b; i += step) changes_.emplace_back(i, order[index_of(i + step)]);
    changes_.emplace_back(b, order[index_of(a)]);
    return true;
  }

  void once(Order start, int64_t steps) {
    OrderState state(costs_, std::move(start));
    double temperature = kStartShare * state.cost();
    const double factor = std::pow(kEndShare, 1 / static_cast<double>(std::max<int64_t>(1, steps)));
    note(state);
    for (int64_t s = 0; s < steps && !proved(); ++s, temperature *= factor) {
      if (!make_move(state.order())) continue;
      back_.clear();
      for (const auto& [position, machine] : changes_)
        back_.emplace_back(position, state.order()[index_of(position)]);
      const double before = state.cost();
      state.apply(changes_);
      ++out_.tried;
      const double worse = state.cost() - before;
      if (worse > 0 && draw_.uniform() >= std::exp(-worse / temperature)) {
        state.apply(back_);
      } else {
        note(state);
      }
    }
  }

  void note(const OrderState& state) {
    if (state.cost() >= out_.seconds * (1 - 1e-12)) return;
    out_.seconds = state.cost();
    out_.order = state.order();
  }

  const OrderCosts& costs_;
  const OrderSearch& search_;
  OrderDraw draw_;
  OrderAnswer out_;
  std::vector<std::pair<int64_t, int64_t>> changes_, back_;
};

}  // namespace

std::string_view proof_text(OrderProof proof) {
  switch (proof) {
    case OrderProof::kAllOrders: return "all orders were tried";
    case OrderProof::kHeldKarp: return "exact, by Held and Karp's program";
    case OrderProof::kBound: return "no order is faster, by a lower bound";
    case OrderProof::kBestFound: return "the best that annealing found";
  }
  return "";
}

OrderAnswer try_all_orders(const OrderCosts& costs) {
  const int64_t n = costs.machines();
  OrderAnswer out;
  out.proof = OrderProof::kAllOrders;
  out.order = unchanged_order(n);
  out.seconds = costs.cost(out.order);
  out.tried = 1;
  if (n < 2) return out;
  // The sequences of classes are permuted, so that equal machines make no difference.
  std::vector<std::pair<int32_t, int64_t>> sorted;  // class, machine
  const int64_t first = costs.pattern().any_first ? 1 : 0;
  for (int64_t m = first; m < n; ++m) sorted.emplace_back(costs.classes()[index_of(m)], m);
  std::ranges::sort(sorted);
  std::vector<int32_t> sequence;
  for (const auto& [number, machine] : sorted) sequence.push_back(number);
  // A ring with costs that do not depend on the direction is as good as its mirror image.
  const bool mirrors = costs.pattern().options.algorithm == OrderAlgorithm::kRing &&
                       costs.pairs() != nullptr && costs.pairs()->symmetric();
  Order order(index_of(n));
  std::vector<size_t> next(index_of(n));  // by class: where in `sorted` its next machine is
  do {
    for (size_t i = sorted.size(); i-- > 0;) next[index_of(sorted[i].first)] = i;
    order[0] = 0;
    for (size_t i = 0; i < sequence.size(); ++i)
      order[i + index_of(first)] = sorted[next[index_of(sequence[i])]++].second;
    if (mirrors && n > 2 && order[1] > order.back()) continue;
    const double seconds = costs.cost(order);
    ++out.tried;
    if (seconds < out.seconds) {
      out.seconds = seconds;
      out.order = order;
    }
  } while (std::ranges::next_permutation(sequence).found);
  return out;
}

std::optional<OrderAnswer> held_karp(const OrderCosts& costs) {
  const int64_t n = costs.machines();
  const PairCosts* pairs = costs.pairs();
  if (pairs == nullptr || costs.pattern().options.algorithm != OrderAlgorithm::kRing || n < 2 ||
      n > kMostForHeldKarp) {
    return std::nullopt;
  }
  const PatternPhase& phase = costs.pattern().phases[0];
  const double bytes = phase.messages[0].bytes;
  const auto joined = [&](double path, double hop) {
    return phase.sum ? path + hop : std::max(path, hop);
  };
  const double never = std::numeric_limits<double>::infinity();
  // best[set * m + j]: of the paths from machine 0 through all of `set` that end at machine j + 1.
  const auto m = index_of(n - 1);
  std::vector<double> best((size_t{1} << m) * m, never);
  std::vector<int8_t> from(best.size(), -1);
  for (size_t j = 0; j < m; ++j)
    best[(size_t{1} << j) * m + j] = pairs->at(0, static_cast<int64_t>(j) + 1, bytes);
  for (size_t set = 1; set < size_t{1} << m; ++set) {
    for (size_t j = 0; j < m; ++j) {
      const double path = best[set * m + j];
      if (path == never) continue;
      for (size_t k = 0; k < m; ++k) {
        if ((set >> k & 1) != 0) continue;
        const size_t to = (set | size_t{1} << k) * m + k;
        const double longer = joined(
            path, pairs->at(static_cast<int64_t>(j) + 1, static_cast<int64_t>(k) + 1, bytes));
        if (longer >= best[to]) continue;
        best[to] = longer;
        from[to] = static_cast<int8_t>(j);
      }
    }
  }
  OrderAnswer out;
  out.proof = OrderProof::kHeldKarp;
  const size_t all = (size_t{1} << m) - 1;
  double least = never;
  size_t end = 0;
  for (size_t j = 0; j < m; ++j) {
    const double cycle =
        joined(best[all * m + j], pairs->at(static_cast<int64_t>(j) + 1, 0, bytes));
    ++out.tried;
    if (cycle < least) {
      least = cycle;
      end = j;
    }
  }
  for (size_t set = all, j = end;;) {
    out.order.push_back(static_cast<int64_t>(j) + 1);
    const int8_t before = from[set * m + j];
    set &= ~(size_t{1} << j);
    if (before < 0) break;
    j = static_cast<uint8_t>(before);
  }
  out.order.push_back(0);
  std::ranges::reverse(out.order);
  out.seconds = costs.cost(out.order);
  return out;
}

OrderAnswer anneal(const OrderCosts& costs, const OrderSearch& search) {
  return Annealing(costs, search).run();
}

OrderAnswer find_order(const OrderCosts& costs, const OrderSearch& search) {
  const Order now = unchanged_order(costs.machines());
  OrderAnswer out;
  if (costs.machines() <= kMostForAllOrders) {
    out = try_all_orders(costs);
  } else if (auto exact = held_karp(costs)) {
    out = std::move(*exact);
  } else {
    out = anneal(costs, search);
  }
  out.now_seconds = costs.cost(now);
  out.best_seconds = out.seconds;
  if (out.seconds > (1 - search.least_gain) * out.now_seconds) {
    out.kept = true;
    out.order = now;
    out.seconds = out.now_seconds;
  }
  return out;
}

}  // namespace tessera
