#include "tessera/network/order_cost.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "tessera/network/order_index.h"

namespace tessera {
namespace {

// Changes after which an OrderState counts everything again, so that rounding errors do not grow.
constexpr int64_t kChangesBetweenCounts = 100'000;

// Returns the machines of the clusters one after the other, each cluster in blocks whose sizes are
// powers of two, the largest blocks first. Then a block of 2^k machines begins at a multiple of 2^k.
Order in_blocks(const std::vector<std::vector<int64_t>>& clusters) {
  Order out;
  std::vector<size_t> taken(clusters.size(), 0);
  size_t largest = 0;
  for (const auto& cluster : clusters) largest = std::max(largest, cluster.size());
  for (size_t block = std::bit_floor(largest); block >= 1; block /= 2) {
    for (size_t c = 0; c < clusters.size(); ++c) {
      if ((clusters[c].size() & block) == 0) continue;
      for (size_t i = 0; i < block; ++i) out.push_back(clusters[c][taken[c]++]);
    }
  }
  return out;
}

Order one_after_the_other(const std::vector<std::vector<int64_t>>& clusters) {
  Order out;
  for (const auto& cluster : clusters) out.insert(out.end(), cluster.begin(), cluster.end());
  return out;
}

// Returns the machines along a tour that goes on to the nearest machine each time.
Order nearest_tour(const PairCosts& pairs, double bytes) {
  Order out{0};
  std::vector<bool> used(index_of(pairs.machines), false);
  used[0] = true;
  while (std::ssize(out) < pairs.machines) {
    int64_t next = -1;
    for (int64_t m = 0; m < pairs.machines; ++m) {
      if (used[index_of(m)]) continue;
      if (next < 0 || pairs.at(out.back(), m, bytes) < pairs.at(out.back(), next, bytes)) next = m;
    }
    used[index_of(next)] = true;
    out.push_back(next);
  }
  return out;
}

}  // namespace

MaxTree::MaxTree(size_t size) : leaves_(std::bit_ceil(std::max<size_t>(1, size))) {
  tree_.assign(2 * leaves_, 0);
}

void MaxTree::set(size_t i, double value) {
  size_t node = leaves_ + i;
  tree_[node] = value;
  while (node > 1) {
    const double larger = std::max(tree_[node], tree_[node ^ 1]);
    node /= 2;
    if (tree_[node] == larger) return;
    tree_[node] = larger;
  }
}

OrderCosts::OrderCosts(const OrderNetwork& network, const OrderPattern& pattern)
    : pattern_(pattern), network_(network) {
  routes_.emplace(network_);
  const std::vector<OrderMachine>& machines = network_.machines;
  std::vector<std::vector<int64_t>> kinds(routes_->places());  // by place: one of each class
  for (size_t m = 0; m < machines.size(); ++m) {
    rates_.push_back(machines[m].rate());
    equal_rates_ = equal_rates_ && rates_[m] == rates_[0];
    std::vector<int64_t>& here = kinds[index_of(routes_->place_of()[m])];
    const auto like = std::ranges::find_if(
        here, [&](int64_t other) { return machines[index_of(other)].equivalent(machines[m]); });
    classes_.push_back(static_cast<int32_t>(like == here.end() ? static_cast<int64_t>(m) : *like));
    if (like == here.end()) here.push_back(static_cast<int64_t>(m));
  }
  double any_latency = -1;
  for (size_t a = 0; a < routes_->places(); ++a) {
    for (size_t b = 0; b < routes_->places(); ++b) {
      if (a == b && !routes_->has_several(a)) continue;
      const double latency = routes_->latency_between_places_s(a, b);
      equal_latencies_ = equal_latencies_ && (any_latency < 0 || any_latency == latency);
      any_latency = latency;
    }
  }
  index();
  if (pattern.options.algorithm == OrderAlgorithm::kDoubleTree && pattern.depth > 0) {
    const double chunk = pattern.options.bytes / 2 / static_cast<double>(pattern.options.chunks);
    depth_s_ =
        2 * static_cast<double>(pattern.depth - 1) * chunk / *std::ranges::min_element(rates_);
  }
  bound_ = find_bound();
}

OrderCosts::OrderCosts(const PairCosts& pairs, const OrderPattern& pattern)
    : pattern_(pattern), pairs_(pairs), classes_(index_of(pairs.machines)) {
  std::iota(classes_.begin(), classes_.end(), 0);
  for (size_t i = 0; i < pairs.latency_s.size(); ++i)
    by_pair_.emplace_back(pairs.latency_s[i], pairs.seconds_a_byte[i]);
  index();
}

void OrderCosts::index() {
  const auto ranks = index_of(pattern_.ranks);
  for (const PatternPhase& phase : pattern_.phases) {
    std::vector<double> sent(ranks), received(ranks);
    std::vector<uint32_t> begin(ranks + 1), messages(2 * phase.messages.size());
    for (const PatternMessage& message : phase.messages) {
      sent[index_of(message.from)] += message.bytes;
      received[index_of(message.to)] += message.bytes;
      ++begin[index_of(message.from) + 1];
      ++begin[index_of(message.to) + 1];
    }
    for (size_t r = 0; r < ranks; ++r) {
      sent[r] = std::max(sent[r], received[r]);
      begin[r + 1] += begin[r];
    }
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    for (size_t m = 0; m < phase.messages.size(); ++m) {
      for (const int32_t end : {phase.messages[m].from, phase.messages[m].to}) {
        messages[next[index_of(end)]++] = static_cast<uint32_t>(m);
      }
    }
    card_bytes_.push_back(std::move(sent));
    begin_.push_back(std::move(begin));
    messages_.push_back(std::move(messages));
  }
}

double OrderCosts::messages_a_swap() const {
  double ends = 0;
  for (const auto& messages : messages_) ends += static_cast<double>(messages.size());
  return std::max(1., 2 * ends / std::max(1., static_cast<double>(pattern_.ranks)));
}

double OrderCosts::phase_cost(const PatternPhase& phase, const Order& order) const {
  if (pairs() != nullptr) {
    double slowest = 0, sum = 0;
    for (const PatternMessage& message : phase.messages) {
      const double cost =
          pairs_.at(order[index_of(message.from)], order[index_of(message.to)], message.bytes);
      slowest = std::max(slowest, cost);
      sum += cost;
    }
    return phase.sum ? sum : slowest;
  }
  const auto number = static_cast<size_t>(&phase - pattern_.phases.data());
  std::vector<double> loads(network_.links());
  double seconds = 0, latency = 0, sum = 0;
  for (const PatternMessage& message : phase.messages) {
    const int64_t from = order[index_of(message.from)], to = order[index_of(message.to)];
    double alone = 0;  // seconds of the message if it has all links for itself
    for (const int32_t number_of_link : routes_->links(from, to)) {
      const size_t link = index_of(number_of_link);
      loads[link] += message.bytes;
      if (network_.link_rate(link) > 0)
        alone = std::max(alone, message.bytes / network_.link_rate(link));
    }
    latency = std::max(latency, routes_->latency_s(from, to));
    for (const int64_t end : {from, to})
      alone = std::max(alone, message.bytes / rates_[index_of(end)]);
    sum += alone + routes_->latency_s(from, to);
  }
  if (phase.sum) return sum;
  for (size_t p = 0; p < order.size(); ++p)
    seconds = std::max(seconds, card_time(number, p, order[p]));
  for (size_t link = 0; link < loads.size(); ++link) {
    if (network_.link_rate(link) > 0)
      seconds = std::max(seconds, loads[link] / network_.link_rate(link));
  }
  const bool tree = pattern_.options.algorithm == OrderAlgorithm::kDoubleTree;
  return seconds + (tree ? static_cast<double>(pattern_.depth) * latency : latency);
}

double OrderCosts::tree_cost(const Order& order) const {
  const double chunk = pattern_.options.bytes / 2 / static_cast<double>(pattern_.options.chunks);
  double most = 0;
  for (const std::vector<int32_t>& parents : pattern_.parents) {
    std::vector<double> to_root(parents.size(), -1);
    double slowest = 0, longest = 0;
    std::vector<size_t> path;
    for (size_t r = 0; r < parents.size(); ++r) {
      for (size_t up = r; to_root[up] < 0; up = index_of(parents[up])) {
        path.push_back(up);
        if (parents[up] < 0) break;
      }
      for (; !path.empty(); path.pop_back()) {
        const size_t child = path.back();
        if (parents[child] < 0) {
          to_root[child] = 0;
          continue;
        }
        const int64_t a = order[index_of(parents[child])], b = order[child];
        // The reduction goes up, the broadcast down; both are priced equally.
        const double edge = std::max(pairs_.at(a, b, chunk), pairs_.at(b, a, chunk));
        slowest = std::max(slowest, edge);
        to_root[child] = to_root[index_of(parents[child])] + edge;
        longest = std::max(longest, to_root[child]);
      }
    }
    const auto rest = static_cast<double>(pattern_.options.chunks - 1);
    most = std::max(most, longest + rest * slowest);
  }
  return 2 * most;
}

double OrderCosts::cost(const Order& order) const {
  if (pattern_.phases.empty()) return 0;
  const bool trees = pattern_.options.algorithm == OrderAlgorithm::kDoubleTree;
  if (trees && pairs() != nullptr) return tree_cost(order);
  double seconds = depth_s_;
  for (const PatternPhase& phase : pattern_.phases)
    seconds += phase.repeats * phase_cost(phase, order);
  return seconds;
}

double OrderCosts::find_bound() const {
  if (pattern_.phases.empty()) return 0;
  const auto [slowest, fastest] = std::ranges::minmax(rates_);
  double latency = std::numeric_limits<double>::infinity();
  const size_t places = routes_->places();
  for (size_t a = 0; a < places; ++a) {
    for (size_t b = 0; b < places; ++b) {
      if (a != b || routes_->has_several(a))
        latency = std::min(latency, routes_->latency_between_places_s(a, b));
    }
  }
  std::vector<int64_t> below(network_.switches.size(), 0);
  for (const OrderMachine& machine : network_.machines) {
    for (int64_t s = machine.above; s >= 0; s = network_.switches[index_of(s)].above)
      ++below[index_of(s)];
  }
  const bool ring = pattern_.options.algorithm == OrderAlgorithm::kRing;
  double seconds = depth_s_;
  for (size_t p = 0; p < pattern_.phases.size(); ++p) {
    const PatternPhase& phase = pattern_.phases[p];
    if (phase.sum) return 0;
    const auto [least, most] = std::ranges::minmax(card_bytes_[p]);
    double bound = std::max(least / slowest, most / fastest);
    double far = latency;
    for (size_t s = 0; ring && s < below.size(); ++s) {
      if (below[s] == 0 || below[s] == machines()) continue;
      const double rate = network_.switches[s].uplink_rate;
      if (rate > 0) bound = std::max(bound, phase.messages[0].bytes / rate);
      // Some message leaves the machines below, and none of those is nearer than the nearest.
      double leaves = std::numeric_limits<double>::infinity();
      std::vector<bool> inside(places, false);
      for (size_t m = 0; m < network_.machines.size(); ++m) {
        for (int64_t up = network_.machines[m].above; up >= 0;
             up = network_.switches[index_of(up)].above) {
          if (up == static_cast<int64_t>(s)) inside[index_of(routes_->place_of()[m])] = true;
        }
      }
      for (size_t a = 0; a < places; ++a) {
        for (size_t b = 0; b < places; ++b) {
          if (inside[a] && !inside[b])
            leaves = std::min(leaves, routes_->latency_between_places_s(a, b));
        }
      }
      far = std::max(far, leaves);
    }
    const bool tree = pattern_.options.algorithm == OrderAlgorithm::kDoubleTree;
    seconds +=
        phase.repeats * (bound + (tree ? static_cast<double>(pattern_.depth) * latency : far));
  }
  return seconds;
}

std::vector<Order> OrderCosts::starts() const {
  std::vector<std::vector<int64_t>> clusters;
  std::vector<Order> out;
  if (pairs() != nullptr) {
    const double bytes = pattern_.phases.empty() ? 0 : pattern_.phases[0].messages[0].bytes;
    clusters = clusters_of(pairs_, bytes);
    if (pattern_.options.algorithm == OrderAlgorithm::kRing)
      out.push_back(nearest_tour(pairs_, bytes));
  } else {
    int64_t last = -2;
    for (const int64_t m : network_.by_switch()) {
      if (network_.machines[index_of(m)].above != last || last == -1) clusters.emplace_back();
      last = network_.machines[index_of(m)].above;
      clusters.back().push_back(m);
    }
  }
  out.push_back(one_after_the_other(clusters));
  out.push_back(in_blocks(clusters));
  std::ranges::stable_sort(clusters,
                           [](const auto& a, const auto& b) { return a.size() > b.size(); });
  out.push_back(one_after_the_other(clusters));
  out.push_back(in_blocks(clusters));
  return out;
}

OrderState::OrderState(const OrderCosts& costs, Order order)
    : costs_(&costs), order_(std::move(order)) {
  for (const PatternPhase& phase : costs.pattern_.phases) {
    seen_.emplace_back(phase.messages.size(), 0);
  }
  start();
}

void OrderState::start() {
  changes_ = 0;
  phases_.clear();
  const OrderCosts& costs = *costs_;
  const bool trees = costs.pattern_.options.algorithm == OrderAlgorithm::kDoubleTree;
  if (trees && costs.pairs() != nullptr) return add_up();
  for (size_t p = 0; p < costs.pattern_.phases.size(); ++p) {
    const PatternPhase& phase = costs.pattern_.phases[p];
    Phase& state = phases_.emplace_back();
    if (costs.pairs() != nullptr || phase.sum) {
      state.messages = MaxTree(phase.messages.size());
    } else {
      state.loads.assign(costs.network_.links(), 0);
      state.links = MaxTree(state.loads.size());
      state.cards = MaxTree(order_.size());
      if (!costs.equal_latencies_) state.latencies = MaxTree(phase.messages.size());
      for (size_t q = 0; q < order_.size(); ++q)
        state.cards.set(q, costs.card_time(p, q, order_[q]));
    }
    for (uint32_t m = 0; m < phase.messages.size(); ++m) {
      add_message(p, m, 1);
      finish_message(p, m);
    }
    finish(p);
  }
  add_up();
}

void OrderState::add_message(size_t phase, uint32_t message, double sign) {
  const OrderCosts& costs = *costs_;
  Phase& state = phases_[phase];
  if (state.loads.empty()) return;
  const PatternMessage& one = costs.pattern_.phases[phase].messages[message];
  for (const int32_t link :
       costs.routes_->links(order_[index_of(one.from)], order_[index_of(one.to)])) {
    state.loads[index_of(link)] += sign * one.bytes;
    touched_.push_back(link);
  }
}

void OrderState::finish_message(size_t phase, uint32_t message) {
  const OrderCosts& costs = *costs_;
  Phase& state = phases_[phase];
  const PatternPhase& pattern = costs.pattern_.phases[phase];
  const PatternMessage& one = pattern.messages[message];
  const int64_t from = order_[index_of(one.from)], to = order_[index_of(one.to)];
  if (costs.pairs() == nullptr && !pattern.sum) {
    if (!costs.equal_latencies_) state.latencies.set(message, costs.routes_->latency_s(from, to));
    return;
  }
  double seconds = 0;
  if (costs.pairs() != nullptr) {
    seconds = costs.pair_s(from, to, one.bytes);
  } else {
    for (const int64_t end : {from, to})
      seconds = std::max(seconds, one.bytes / costs.rates_[index_of(end)]);
    for (const int32_t link : costs.routes_->links(from, to)) {
      const double rate = costs.network_.link_rate(index_of(link));
      if (rate > 0) seconds = std::max(seconds, one.bytes / rate);
    }
    seconds += costs.routes_->latency_s(from, to);
  }
  state.sum += seconds - state.messages.value(message);
  state.messages.set(message, seconds);
}

void OrderState::finish(size_t phase) {
  const OrderCosts& costs = *costs_;
  Phase& state = phases_[phase];
  for (const int32_t link : touched_) {
    const double rate = costs.network_.link_rate(index_of(link));
    if (rate > 0) state.links.set(index_of(link), state.loads[index_of(link)] / rate);
  }
  touched_.clear();
  const PatternPhase& pattern = costs.pattern_.phases[phase];
  if (pattern.sum) {
    state.seconds = state.sum;
  } else if (costs.pairs() != nullptr) {
    state.seconds = state.messages.max();
  } else {
    const bool tree = costs.pattern_.options.algorithm == OrderAlgorithm::kDoubleTree;
    const double latency = costs.equal_latencies_ ? costs.routes_->latency_s(order_[0], order_[1])
                                                  : state.latencies.max();
    state.seconds = std::max(state.cards.max(), state.links.max()) +
                    (tree ? static_cast<double>(costs.pattern_.depth) * latency : latency);
  }
}

void OrderState::add_up() {
  const OrderCosts& costs = *costs_;
  if (phases_.empty()) {  // the double tree on pairs, or a single rank
    cost_ = costs.cost(order_);
    return;
  }
  cost_ = costs.depth_s_;
  for (size_t p = 0; p < phases_.size(); ++p) {
    cost_ += costs.pattern_.phases[p].repeats * phases_[p].seconds;
  }
}

void OrderState::apply(std::span<const std::pair<int64_t, int64_t>> changes) {
  const OrderCosts& costs = *costs_;
  if (++changes_ > kChangesBetweenCounts) {
    for (const auto& [position, machine] : changes) order_[index_of(position)] = machine;
    return start();
  }
  std::vector<std::pair<int64_t, int64_t>> before;
  before.reserve(changes.size());
  for (const auto& [position, machine] : changes)
    before.emplace_back(position, order_[index_of(position)]);
  ++stamp_;
  for (size_t p = 0; p < phases_.size(); ++p) {
    affected_.clear();
    for (const auto& [position, machine] : changes) {
      const auto& begin = costs.begin_[p];
      for (uint32_t i = begin[index_of(position)]; i < begin[index_of(position) + 1]; ++i) {
        const uint32_t message = costs.messages_[p][i];
        if (std::exchange(seen_[p][message], stamp_) != stamp_) affected_.push_back(message);
      }
    }
    for (const auto& [position, machine] : before) order_[index_of(position)] = machine;
    for (const uint32_t message : affected_) add_message(p, message, -1);
    for (const auto& [position, machine] : changes) order_[index_of(position)] = machine;
    for (const uint32_t message : affected_) {
      add_message(p, message, 1);
      finish_message(p, message);
    }
    if (!costs.equal_rates_ && !phases_[p].loads.empty()) {
      for (const auto& [position, machine] : changes) {
        phases_[p].cards.set(index_of(position), costs.card_time(p, index_of(position), machine));
      }
    }
    finish(p);
  }
  if (phases_.empty()) {
    for (const auto& [position, machine] : changes) order_[index_of(position)] = machine;
  }
  add_up();
}

}  // namespace tessera
