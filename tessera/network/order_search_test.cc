// Tests the search: against all orders, Held and Karp's program against annealing, and the worked
// example of docs/theory/cloud-collectives.md section 4.
#include "tessera/network/order_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tessera/network/test_networks.h"

namespace tessera {
namespace {

PatternOptions pattern_of(OrderAlgorithm algorithm, double bytes = 8e6) {
  PatternOptions options;
  options.algorithm = algorithm;
  options.bytes = bytes;
  return options;
}

// Machines that were dealt to racks in turn, so that neighbours are in different racks.
OrderNetwork dealt(int64_t machines, int64_t racks, double uplink = 25e6) {
  OrderNetwork network;
  for (int64_t r = 0; r < racks; ++r) network.switches.push_back({"rack", -1, uplink, 0});
  for (int64_t m = 0; m < machines; ++m) {
    network.machines.push_back({});
    network.machines.back().above = m % racks;
    network.machines.back().card_rate = 25e6;
  }
  return network;
}

TEST(Annealing, equals_all_orders_on_100_random_matrices_of_8_machines) {
  for (const OrderAlgorithm algorithm : {OrderAlgorithm::kRing, OrderAlgorithm::kHalvingDoubling}) {
    const OrderPattern pattern = order_pattern(8, pattern_of(algorithm, 1e5)).value();
    for (uint32_t seed = 0; seed < 100; ++seed) {
      const OrderCosts costs(drawn_pairs(8, seed), pattern);
      const double best = try_all_orders(costs).seconds;
      ASSERT_NEAR(anneal(costs, {}).seconds, best, 1e-12 * best)
          << algorithm_name(algorithm) << ", seed " << seed;
    }
  }
}

TEST(AllOrders, of_7_machines_whose_first_cannot_be_chosen) {
  const OrderCosts costs(
      drawn_pairs(7, 3),
      order_pattern(7, pattern_of(OrderAlgorithm::kHalvingDoubling, 1e5)).value());
  EXPECT_FALSE(costs.pattern().any_first);
  const OrderAnswer found = try_all_orders(costs);
  EXPECT_EQ(found.tried, 5040 + 1);
  double best = found.seconds;
  Order order(7);
  std::iota(order.begin(), order.end(), 0);
  do {
    best = std::min(best, costs.cost(order));
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(found.seconds, best);
}

TEST(AllOrders, equal_machines_count_once) {
  const OrderCosts costs(dealt(8, 2), order_pattern(8, pattern_of(OrderAlgorithm::kRing)).value());
  const OrderAnswer found = try_all_orders(costs);
  EXPECT_NEAR(found.seconds, .560, 1e-9);
  EXPECT_EQ(found.tried, 35 + 1);  // 7! / (3! 4!) beside the present one
}

TEST(HeldKarp, equals_all_orders_for_length_and_longest_hop) {
  for (const bool tour : {false, true}) {
    PatternOptions options = pattern_of(OrderAlgorithm::kRing, 1e6);
    options.tour = tour;
    for (const int64_t machines : {2, 3, 8}) {
      for (uint32_t seed = 0; seed < 20; ++seed) {
        const OrderCosts costs(drawn_pairs(machines, seed),
                               order_pattern(machines, options).value());
        const double best = try_all_orders(costs).seconds;
        ASSERT_NEAR(held_karp(costs)->seconds, best, 1e-12 * best);
      }
    }
  }
}

TEST(HeldKarp, annealing_comes_near_it_for_16_machines) {
  PatternOptions options = pattern_of(OrderAlgorithm::kRing, 1e6);
  options.tour = true;
  const OrderCosts costs(drawn_pairs(16, 1), order_pattern(16, options).value());
  const double best = held_karp(costs)->seconds;
  const double annealed = anneal(costs, {}).seconds;
  EXPECT_GE(annealed, best * (1 - 1e-12));
  EXPECT_LE(annealed, best * 1.02);
  EXPECT_EQ(find_order(costs, {}).proof, OrderProof::kHeldKarp);
}

TEST(HeldKarp, is_for_rings_with_costs_of_pairs) {
  EXPECT_FALSE(held_karp(OrderCosts(
      drawn_pairs(8, 1), order_pattern(8, pattern_of(OrderAlgorithm::kHalvingDoubling)).value())));
  EXPECT_FALSE(held_karp(
      OrderCosts(dealt(8, 2), order_pattern(8, pattern_of(OrderAlgorithm::kRing)).value())));
  EXPECT_FALSE(held_karp(OrderCosts(drawn_pairs(17, 1),
                                    order_pattern(17, pattern_of(OrderAlgorithm::kRing)).value())));
}

TEST(FindOrder, racks_of_a_large_network_become_neighbours_and_the_bound_proves_it) {
  const OrderCosts costs(dealt(64, 8),
                         order_pattern(64, pattern_of(OrderAlgorithm::kRing)).value());
  const OrderAnswer found = find_order(costs, {});
  EXPECT_EQ(found.proof, OrderProof::kBound);
  EXPECT_NEAR(found.now_seconds / found.seconds, 8, 1e-9);
  EXPECT_FALSE(found.kept);
}

TEST(FindOrder, annealing_never_loses_to_the_order_by_racks) {
  for (const OrderAlgorithm algorithm :
       {OrderAlgorithm::kHalvingDoubling, OrderAlgorithm::kBcube, OrderAlgorithm::kDoubleTree}) {
    // 5 racks of unequal sizes.
    OrderNetwork network = dealt(32, 5);
    const OrderCosts costs(network, order_pattern(32, pattern_of(algorithm)).value());
    OrderSearch search;
    search.effort = 2'000'000;
    const OrderAnswer found = anneal(costs, search);
    EXPECT_LE(found.seconds, costs.cost(network.by_switch()));
    EXPECT_EQ(found.order, anneal(costs, search).order) << "equal seeds give equal answers";
    Order sorted = found.order;
    std::ranges::sort(sorted);
    for (size_t m = 0; m < sorted.size(); ++m) EXPECT_EQ(sorted[m], static_cast<int64_t>(m));
  }
}

TEST(FindOrder, a_gain_below_the_least_keeps_the_present_order) {
  PairCosts pairs{4, std::vector<double>(16, 1), std::vector<double>(16, 0), {}};
  PatternOptions options = pattern_of(OrderAlgorithm::kRing, 4);
  options.tour = true;
  pairs.latency_s[1] = 1.15;  // from 0 to 1: the present order is 3.75 % longer than the others
  const OrderPattern pattern = order_pattern(4, options).value();
  OrderAnswer found = find_order(OrderCosts(pairs, pattern), {});
  EXPECT_TRUE(found.kept);
  EXPECT_EQ(found.order, (Order{0, 1, 2, 3}));
  EXPECT_NEAR(found.best_seconds, 4, 1e-12);
  OrderSearch search;
  search.least_gain = 0;
  found = find_order(OrderCosts(pairs, pattern), search);
  EXPECT_FALSE(found.kept);
  EXPECT_NEAR(found.seconds, 4, 1e-12);
  pairs.latency_s[1] = 1.3;
  EXPECT_FALSE(find_order(OrderCosts(pairs, pattern), {}).kept);
}

}  // namespace
}  // namespace tessera
