#include "tessera/network/plan_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "tessera/network/order_index.h"

namespace tessera {
namespace {

using MeshSizes = std::vector<std::pair<std::string, int64_t>>;

constexpr size_t kMostPermutedAxes = 5;
constexpr int64_t kMostTriedWhole = 8;  // machines whose orders are all tried
constexpr size_t kMostAnnealed = 3;     // layings
constexpr double kHot = 0.1, kCold = 1e-4;
constexpr double kNearBound = 1.01;  // machines are not ordered for less

// A factor of an axis; a list of them, the slowest first, is a laying.
struct Digit {
  size_t axis = 0;
  int64_t factor = 1;
  friend auto operator<=>(const Digit&, const Digit&) = default;
};
using Digits = std::vector<Digit>;

// Joins neighbours of the same axis.
Digits joined(const Digits& digits) {
  Digits out;
  for (const Digit& digit : digits) {
    if (!out.empty() && out.back().axis == digit.axis) {
      out.back().factor *= digit.factor;
    } else {
      out.push_back(digit);
    }
  }
  return out;
}

Digits in_primes(const Digits& digits) {
  Digits out;
  for (Digit digit : digits) {
    for (int64_t prime = 2; digit.factor > 1; ++prime) {
      if (prime * prime > digit.factor) prime = digit.factor;
      for (; digit.factor % prime == 0; digit.factor /= prime) out.push_back({digit.axis, prime});
    }
  }
  return out;
}

DeviceOrder order_of(const Digits& digits, const MeshSizes& mesh) {
  DeviceOrder out;
  std::map<size_t, int> items;
  const Digits merged = joined(digits);
  for (const Digit& digit : merged) ++items[digit.axis];
  // The order of the mesh itself needs no key.
  size_t last = 0;
  bool plain = true;
  for (const Digit& digit : merged) {
    plain = plain && items[digit.axis] == 1 && digit.axis >= last;
    last = digit.axis;
  }
  if (plain) return out;
  for (const Digit& digit : merged) {
    const std::string& name = mesh[digit.axis].first;
    out.axes.push_back(items[digit.axis] == 1 ? name : fmt::format("{}:{}", name, digit.factor));
  }
  return out;
}

class PlanSearch {
 public:
  PlanSearch(const ResolvedPlan& plan, const PlanTraffic& traffic, const OrderNetwork& network,
             const PlanOrderSearch& search)
      : plan_(plan),
        traffic_(traffic),
        network_(network),
        search_(search),
        routes_(network),
        numbers_(network),
        engine_(search.seed) {
    present_.resize(network.machines.size());
    std::iota(present_.begin(), present_.end(), 0);
    by_switch_ = machines_by_switch();
  }

  PlanOrder run() {
    PlanOrder out;
    const std::vector<int64_t> now = devices_now();
    const PlacementCosts costs_now(traffic_, network_, routes_, now);
    out.now_seconds = costs_now.cost(present_);
    consider({plan_.plan.device_order, now, 0, {}, {}});
    try_layings();
    std::ranges::stable_sort(
        layings_, [](const Laying& a, const Laying& b) { return a.seconds < b.seconds; });
    const size_t annealed = search_.machines_stay ? 0 : std::min(kMostAnnealed, layings_.size());
    for (size_t i = 0; i < annealed; ++i) order_machines(layings_[i], annealed);
    std::ranges::stable_sort(
        layings_, [](const Laying& a, const Laying& b) { return a.seconds < b.seconds; });
    const Laying& best = layings_[0];
    for (const Laying& laying : layings_) out.layings.push_back({laying.order, laying.seconds});
    out.best_seconds = best.seconds;
    out.orders = tried_orders_;
    out.kept = best.seconds > (1 - search_.least_gain) * out.now_seconds;
    out.seconds = out.kept ? out.now_seconds : best.seconds;
    out.machines = out.kept ? present_ : best.machines;
    out.device_order = out.kept ? plan_.plan.device_order : best.order;
    const std::vector<int64_t>& laid = out.kept ? now : best.devices;
    for (const int64_t device : laid) {
      const int64_t slot = numbers_.machine_of(device);
      out.devices.push_back(numbers_.first_of(out.machines[index_of(slot)]) + device -
                            numbers_.first_of(slot));
    }
    report(costs_now, laid, out);
    return out;
  }

 private:
  struct Laying {
    DeviceOrder order;
    std::vector<int64_t> devices;  // by rank
    double seconds = 0;
    Order machines;
    Digits digits;
  };

  std::vector<int64_t> devices_now() const {
    std::vector<int64_t> out;
    for (int64_t rank = 0; rank < plan_.ranks; ++rank) out.push_back(plan_.devices.device_of(rank));
    return out;
  }

  // Returns an order with the machines of each switch side by side, in which each machine has as
  // many devices as its place.
  Order machines_by_switch() const {
    std::map<int64_t, std::vector<int64_t>> by_devices;
    for (const int64_t m : network_.by_switch())
      by_devices[network_.machines[index_of(m)].devices].push_back(m);
    std::map<int64_t, size_t> next;
    Order out;
    for (const OrderMachine& place : network_.machines)
      out.push_back(by_devices[place.devices][next[place.devices]++]);
    return out;
  }

  // Prices a laying with machines in their present order and by switch, and keeps it.
  void consider(Laying laying) {
    const PlacementCosts costs(traffic_, network_, routes_, laying.devices);
    laying.machines = present_;
    laying.seconds = costs.cost(present_);
    ++tried_orders_;
    if (!search_.machines_stay && by_switch_ != present_) {
      const double seconds = costs.cost(by_switch_);
      ++tried_orders_;
      if (seconds < laying.seconds * (1 - 1e-9)) {
        laying.seconds = seconds;
        laying.machines = by_switch_;
      }
    }
    layings_.push_back(std::move(laying));
  }

  // Returns whether the plan's key device_order may name axes: all ranks are in the plan's mesh.
  bool may_lay() const {
    int64_t size = 1;
    for (const auto& [name, axis] : plan_.plan.mesh) size *= axis;
    return size == plan_.ranks &&
           std::ranges::all_of(plan_.plan.stages,
                               [](const StageEntry& stage) { return stage.mesh.empty(); });
  }

  std::optional<size_t> try_digits(const Digits& digits) {
    if (!seen_.insert(joined(digits)).second) return std::nullopt;
    Laying laying;
    laying.order = order_of(digits, plan_.plan.mesh);
    laying.digits = digits;
    if (laying.order.empty()) {
      laying.devices.resize(index_of(plan_.ranks));
      std::iota(laying.devices.begin(), laying.devices.end(), 0);
    } else {
      auto devices = device_positions(laying.order, plan_.plan.mesh);
      if (!devices) return std::nullopt;
      laying.devices = std::move(*devices);
    }
    consider(std::move(laying));
    return layings_.size() - 1;
  }

  void try_layings() {
    if (!may_lay()) return;
    Digits digits;
    for (size_t a = 0; a < plan_.plan.mesh.size(); ++a) {
      if (plan_.plan.mesh[a].second > 1) digits.push_back({a, plan_.plan.mesh[a].second});
    }
    if (digits.size() <= kMostPermutedAxes) {
      do {
        static_cast<void>(try_digits(digits));
      } while (std::ranges::next_permutation(digits).found);
    } else {
      static_cast<void>(try_digits(digits));
      improve(in_primes(digits));
    }
    if (layings_.size() < 2) return;
    const auto best = std::ranges::min_element(layings_.begin() + 1, layings_.end(), {},
                                               [](const Laying& one) { return one.seconds; });
    improve(in_primes(best->digits));
  }

  // Moves single factors to other positions while that makes the laying faster.
  void improve(Digits digits) {
    double least = std::numeric_limits<double>::infinity();
    for (const Laying& laying : layings_) {
      if (joined(laying.digits) == joined(digits)) least = laying.seconds;
    }
    for (bool better = true; better;) {
      better = false;
      Digits next = digits;
      for (size_t from = 0; from < digits.size(); ++from) {
        for (size_t to = 0; to < digits.size(); ++to) {
          if (from == to) continue;
          Digits moved = digits;
          const Digit one = moved[from];
          moved.erase(moved.begin() + static_cast<std::ptrdiff_t>(from));
          moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(to), one);
          const auto made = try_digits(moved);
          if (!made || layings_[*made].seconds >= least * (1 - 1e-9)) continue;
          least = layings_[*made].seconds;
          next = moved;
          better = true;
        }
      }
      digits = next;
    }
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  // Whether the two places may exchange their machines, and that makes a difference.
  bool may_swap(const Order& order, int64_t a, int64_t b) const {
    const OrderMachine &one = network_.machines[index_of(order[index_of(a)])],
                       &other = network_.machines[index_of(order[index_of(b)])];
    return one.devices == other.devices && !one.equivalent(other);
  }

  void order_machines(Laying& laying, size_t shares) {
    const int64_t n = std::ssize(network_.machines);
    const PlacementCosts costs(traffic_, network_, routes_, laying.devices);
    const bool any = std::ranges::any_of(network_.machines, [&](const OrderMachine& machine) {
      return !machine.equivalent(network_.machines[0]);
    });
    if (!any || n < 2 || laying.seconds <= kNearBound * costs.bound()) return;
    if (n <= kMostTriedWhole) return try_orders(costs, laying);
    double members = 0;
    for (const TrafficKind& kind : traffic_.kinds) {
      members += 2 * static_cast<double>(kind.messages.size());
      for (const GroupFlow& group : kind.groups)
        members += std::pow(static_cast<double>(group.members.size()), 2);
    }
    // A swap visits the groups of two machines, twice.
    const double a_swap = std::max(1., 4 * members / static_cast<double>(n));
    const auto steps = static_cast<int64_t>(
        std::min(static_cast<double>(search_.effort) / a_swap / static_cast<double>(shares),
                 30. * static_cast<double>(n * n)));
    PlacementState state(costs, laying.machines);
    double temperature = kHot * state.cost();
    const double factor = std::pow(kCold, 1 / static_cast<double>(std::max<int64_t>(1, steps)));
    for (int64_t s = 0; s < steps; ++s, temperature *= factor) {
      const int64_t a = below(n), b = below(n);
      if (!may_swap(state.order(), a, b)) continue;
      const double before = state.cost();
      state.swap(a, b);
      ++tried_orders_;
      const double worse = state.cost() - before;
      if (worse > 0 && uniform() >= std::exp(-worse / temperature)) {
        state.swap(a, b);
      } else if (state.cost() < laying.seconds * (1 - 1e-9)) {
        laying.seconds = state.cost();
        laying.machines = state.order();
      }
    }
    laying.seconds = costs.cost(laying.machines);
  }

  void try_orders(const PlacementCosts& costs, Laying& laying) {
    Order order = present_;
    do {
      bool fits = true;
      for (size_t place = 0; place < order.size(); ++place) {
        fits = fits && network_.machines[index_of(order[place])].devices ==
                           network_.machines[place].devices;
      }
      if (!fits) continue;
      const double seconds = costs.cost(order);
      ++tried_orders_;
      if (seconds >= laying.seconds * (1 - 1e-9)) continue;
      laying.seconds = seconds;
      laying.machines = order;
    } while (std::ranges::next_permutation(order).found);
  }

  void report(const PlacementCosts& now, const std::vector<int64_t>& laid, PlanOrder& out) const {
    const PlacementCosts found(traffic_, network_, routes_, laid);
    const auto before = now.cost_by_kind(present_), after = found.cost_by_kind(out.machines);
    for (size_t k = 0; k < traffic_.kinds.size(); ++k) {
      const TrafficKind& kind = traffic_.kinds[k];
      out.kinds.push_back({kind.what, kind.bytes(), before[k].seconds, after[k].seconds,
                           found.bound_text(after[k])});
    }
  }

  const ResolvedPlan& plan_;
  const PlanTraffic& traffic_;
  const OrderNetwork& network_;
  const PlanOrderSearch& search_;
  OrderRoutes routes_;
  DeviceNumbers numbers_;
  std::mt19937_64 engine_;
  Order present_, by_switch_;
  std::vector<Laying> layings_;
  std::set<Digits> seen_;
  int64_t tried_orders_ = 0;
};

}  // namespace

Result<PlanOrder> find_plan_order(const ResolvedPlan& plan, const PlanTraffic& traffic,
                                  const OrderNetwork& network, const PlanOrderSearch& search) {
  const int64_t devices = DeviceNumbers(network).count(), needed = plan.devices.end(plan.ranks);
  if (devices < needed) {
    return invalid_input(
        fmt::format("expected a network with the {} devices of the plan, found {} on {} machines",
                    needed, devices, network.machines.size()));
  }
  return PlanSearch(plan, traffic, network, search).run();
}

double plan_order_seconds(const ResolvedPlan& plan, const PlanTraffic& traffic,
                          const OrderNetwork& network, const Order& machines) {
  const OrderNetwork permuted = network.with_machines(machines);
  const OrderRoutes routes(permuted);
  std::vector<int64_t> devices;
  for (int64_t rank = 0; rank < plan.ranks; ++rank) devices.push_back(plan.devices.device_of(rank));
  Order same(machines.size());
  std::iota(same.begin(), same.end(), 0);
  return PlacementCosts(traffic, permuted, routes, devices).cost(same);
}

}  // namespace tessera
