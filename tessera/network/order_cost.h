// Prices an order of machines under a pattern (order_pattern.h), and prices it again after a few
// machines have changed places, without counting everything again.
//
// On a network of switches, a phase takes as long as the busiest card or link: the largest of the
// bytes of a card (sent or received) / its rate and the bytes on an uplink or path / its rate, plus
// the largest latency of its messages. With costs of pairs, a phase takes as long as its slowest
// message. An order's time is the sum over the phases. For the double tree,
//   network  the two phases, and 2 (depth - 1) times the first chunk's way through a level
//   pairs    2 max over both trees of (longest path of chunks + (chunks - 1) slowest edge)
//
//   const OrderCosts costs(network, pattern);
//   OrderState state(costs, order);
//   state.apply(changes);                    // cost() is that of the new order
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/network/order_network.h"
#include "tessera/network/order_pattern.h"

namespace tessera {

using Order = std::vector<int64_t>;  // by position: the machine

// A `MaxTree` keeps the largest of a fixed number of values while single ones change.
class MaxTree {
 public:
  explicit MaxTree(size_t size = 0);
  double value(size_t i) const { return tree_[leaves_ + i]; }
  void set(size_t i, double value);
  double max() const { return tree_[1]; }

 private:
  size_t leaves_ = 1;
  std::vector<double> tree_;
};

// Holds all that does not depend on the order. Copies what it needs of its arguments.
class OrderCosts {
 public:
  OrderCosts(const OrderNetwork& network, const OrderPattern& pattern);
  OrderCosts(const PairCosts& pairs, const OrderPattern& pattern);

  // Returns the seconds of an order, which must be a permutation of the machines. This is the slow
  // and obvious computation, against which OrderState is tested.
  double cost(const Order& order) const;
  // Returns seconds that no order can undercut: each card must carry its bytes, and a ring must
  // leave and enter each switch that is above some but not all machines. 0 with costs of pairs.
  double bound() const { return bound_; }
  // Returns for each machine a number that is equal for machines whose exchange changes no cost.
  const std::vector<int32_t>& classes() const { return classes_; }
  int64_t machines() const { return static_cast<int64_t>(classes_.size()); }
  const OrderPattern& pattern() const { return pattern_; }
  const PairCosts* pairs() const { return pairs_.machines > 0 ? &pairs_ : nullptr; }
  const OrderNetwork& network() const { return network_; }
  // Returns orders from which a search may start: machines cluster by cluster, in the order in
  // which the clusters come, largest cluster first, and cut into blocks whose sizes are powers of
  // two, so that exchanges at small distances stay inside.
  std::vector<Order> starts() const;
  // Returns the number of messages that an exchange of two machines changes, on the average.
  double messages_a_swap() const;

 private:
  friend class OrderState;
  double tree_cost(const Order& order) const;
  double phase_cost(const PatternPhase& phase, const Order& order) const;
  double card_time(size_t phase, size_t position, int64_t machine) const {
    return card_bytes_[phase][position] / rates_[static_cast<size_t>(machine)];
  }
  void index();
  double find_bound() const;

  // Returns the seconds of m bytes, as PairCosts::at does, from one place in memory.
  double pair_s(int64_t from, int64_t to, double bytes) const {
    const auto& [latency_s, seconds_a_byte] =
        by_pair_[static_cast<size_t>(from) * classes_.size() + static_cast<size_t>(to)];
    return latency_s + bytes * seconds_a_byte;
  }

  OrderPattern pattern_;
  OrderNetwork network_;
  PairCosts pairs_;
  std::vector<std::pair<double, double>> by_pair_;  // latency and seconds a byte of pairs_
  std::vector<int32_t> classes_;
  std::vector<double> rates_;  // by machine
  bool equal_rates_ = true, equal_latencies_ = true;
  std::optional<OrderRoutes> routes_;  // unset with costs of pairs
  // By phase: the larger of a position's bytes sent and received; the messages of each position,
  // which are at messages_[phase][begin[position] .. begin[position + 1]].
  std::vector<std::vector<double>> card_bytes_;
  std::vector<std::vector<uint32_t>> begin_, messages_;
  double depth_s_ = 0;  // of the double tree on a network: the first chunk's way, without latency
  double bound_ = 0;
};

// An order whose cost is known while machines change places.
class OrderState {
 public:
  OrderState(const OrderCosts& costs, Order order);
  // Puts machines at positions. The result must be a permutation again.
  void apply(std::span<const std::pair<int64_t, int64_t>> position_and_machine);
  double cost() const { return cost_; }
  const Order& order() const { return order_; }

 private:
  struct Phase {
    std::vector<double> loads;  // by link: bytes
    MaxTree cards, links, latencies, messages;
    double sum = 0, seconds = 0;
  };
  void add_message(size_t phase, uint32_t message, double sign);
  void finish_message(size_t phase, uint32_t message);
  void finish(size_t phase);
  void add_up();
  void start();

  const OrderCosts* costs_;
  Order order_;
  std::vector<Phase> phases_;
  double cost_ = 0;
  int64_t changes_ = 0;                     // since everything was counted
  std::vector<std::vector<int64_t>> seen_;  // by phase and message: the change that has seen it
  std::vector<uint32_t> affected_;
  std::vector<int32_t> touched_;
  int64_t stamp_ = 0;
};

}  // namespace tessera
