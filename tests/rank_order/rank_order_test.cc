// Tests the worked example of docs/theory/cloud-collectives.md section 4, and the cost models of
// section 3.
#include "rank_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace tessera {
namespace {

using enum OrderedAlgorithm;
using Order = std::vector<int64_t>;

// 8 machines in two racks; NIC and each rack's way up 200 Mbit/s; no latency.
Racks example() { return {{0, 0, 0, 0, 1, 1, 1, 1}, 25e6, {25e6, 25e6}}; }
OrderOptions of(OrderedAlgorithm algorithm, double bytes = 8e6) {
  OrderOptions options;
  options.algorithm = algorithm;
  options.bytes = bytes;
  return options;
}

TEST(WorkedExample, times_of_the_orders) {
  struct Row {
    Order order;
    int64_t edges;
    double ring, halving;
  };
  const Row rows[] = {{{0, 1, 2, 3, 4, 5, 6, 7}, 2, .560, .800},
                      {{5, 4, 2, 3, 0, 1, 6, 7}, 2, .560, 1.280},
                      {{7, 2, 1, 6, 4, 0, 3, 5}, 4, 1.120, 2.000},
                      {{0, 4, 1, 5, 2, 6, 3, 7}, 8, 2.240, 1.520},
                      {{3, 6, 0, 5, 2, 7, 1, 4}, 8, 2.240, 1.520}};
  for (const Row& row : rows) {
    EXPECT_EQ(cross_rack_edges(example(), row.order), row.edges);
    EXPECT_NEAR(order_cost(example(), row.order, of(kRing)), row.ring, 1e-9);
    EXPECT_NEAR(order_cost(example(), row.order, of(kHalvingDoubling)), row.halving, 1e-9);
  }
}

TEST(WorkedExample, halving_doubling_of_16_megabytes_and_recursive_doubling) {
  const auto halving = [](const Order& order) {
    return order_cost(example(), order, of(kHalvingDoubling, 16e6));
  };
  EXPECT_NEAR(halving({0, 1, 2, 3, 4, 5, 6, 7}), 1.60, 1e-9);
  EXPECT_NEAR(halving({0, 1, 4, 5, 2, 3, 6, 7}), 2.08, 1e-9);
  EXPECT_NEAR(halving({0, 4, 1, 5, 2, 6, 3, 7}), 3.04, 1e-9);
  for (const Order& order : {Order{0, 1, 2, 3, 4, 5, 6, 7}, Order{0, 4, 1, 5, 2, 6, 3, 7}}) {
    EXPECT_NEAR(order_cost(example(), order, of(kRecursiveDoubling)), 1.92, 1e-9);
  }
}

TEST(WorkedExample, all_orders_with_rank_0_fixed) {
  std::map<int64_t, int> ring, halving;  // milliseconds -> orders
  double ring_sum = 0, halving_sum = 0;
  Order order(8);
  std::iota(order.begin(), order.end(), 0);
  do {
    const double r = order_cost(example(), order, of(kRing)),
                 h = order_cost(example(), order, of(kHalvingDoubling));
    ++ring[std::llround(r * 1000)];
    ++halving[std::llround(h * 1000)];
    ring_sum += r;
    halving_sum += h;
  } while (std::next_permutation(order.begin() + 1, order.end()));
  EXPECT_THAT(ring, testing::ElementsAre(testing::Pair(560, 576), testing::Pair(1120, 2592),
                                         testing::Pair(1680, 1728), testing::Pair(2240, 144)));
  EXPECT_THAT(halving, testing::ElementsAre(testing::Pair(800, 144), testing::Pair(1040, 144),
                                            testing::Pair(1120, 2304), testing::Pair(1280, 720),
                                            testing::Pair(1440, 576), testing::Pair(1520, 144),
                                            testing::Pair(1760, 720), testing::Pair(2000, 144),
                                            testing::Pair(2240, 144)));
  EXPECT_NEAR(ring_sum / 5040, 1.28, 1e-9);
  EXPECT_NEAR(halving_sum / 5040, 1.328, 5e-4);
}

PairCosts random_costs(int64_t machines, uint32_t seed) {
  std::mt19937 draw(seed);
  std::uniform_real_distribution<double> latency(1e-5, 1e-3), rate(1e-9, 1e-7);
  PairCosts costs{machines, {}, {}};
  for (int64_t i = 0; i < machines * machines; ++i) {
    costs.latency_s.push_back(latency(draw));
    costs.seconds_a_byte.push_back(rate(draw));
  }
  return costs;
}

TEST(Pairs, ring_is_bound_by_its_longest_edge_or_counts_its_length) {
  const PairCosts costs = random_costs(5, 1);
  const Order order{3, 1, 4, 0, 2};
  double longest = 0, length = 0;
  for (size_t k = 0; k < 5; ++k) {
    const double edge = costs.at(order[k], order[(k + 1) % 5], 200);
    longest = std::max(longest, edge);
    length += edge;
  }
  OrderOptions options = of(kRing, 1000);
  EXPECT_NEAR(order_cost(costs, order, options), 8 * longest, 1e-15);
  options.tour = true;
  EXPECT_NEAR(order_cost(costs, order, options), length, 1e-15);
}

TEST(Pairs, doubling_by_the_formula) {
  const PairCosts costs = random_costs(8, 2);
  Order order(8);
  std::iota(order.rbegin(), order.rend(), 0);
  for (const bool near_first : {true, false}) {
    double halving = 0, doubling = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t distance = near_first ? 1 << i : 4 >> i;
      double slowest = 0, whole = 0;
      for (int64_t j = 0; j < 8; ++j) {
        const auto a = order[static_cast<size_t>(j)], b = order[static_cast<size_t>(j ^ distance)];
        slowest = std::max(slowest, costs.at(a, b, 1e6 / static_cast<double>(2 << i)));
        whole = std::max(whole, costs.at(a, b, 1e6));
      }
      halving += 2 * slowest;
      doubling += whole;
    }
    OrderOptions options = of(kHalvingDoubling, 1e6);
    options.near_first = near_first;
    EXPECT_NEAR(order_cost(costs, order, options), halving, 1e-12);
    EXPECT_NEAR(order_cost(costs, order, of(kRecursiveDoubling, 1e6)), doubling, 1e-12);
  }
}

TEST(Pairs, bcube_of_base_2_sends_as_halving_doubling) {
  const PairCosts costs = random_costs(8, 3);
  const Order order{4, 2, 0, 6, 1, 3, 5, 7};
  EXPECT_NEAR(order_cost(costs, order, of(kBcube, 1e6)),
              order_cost(costs, order, of(kHalvingDoubling, 1e6)), 1e-12);
}

TEST(Pairs, bcube_of_base_4_has_pieces_of_a_quarter) {
  OrderOptions options = of(kBcube, 1600);
  options.base = 4;
  const auto phases = rank_phases(16, options);
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].messages.size(), 16u * 3);
  EXPECT_EQ(phases[0].messages[0], (RankMessage{0, 1, 400}));
  EXPECT_EQ(phases[1].messages[0], (RankMessage{0, 4, 100}));
  EXPECT_EQ(phases[1].repeats, 2);
}

TEST(Phases, ranks_beyond_a_power_of_two_fold_in) {
  const auto phases = rank_phases(6, of(kHalvingDoubling, 800));
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_THAT(phases.front().messages,
              testing::ElementsAre(RankMessage{4, 0, 800}, RankMessage{5, 1, 800}));
  EXPECT_EQ(phases[1].messages.size(), 4u);
  EXPECT_THAT(phases.back().messages,
              testing::ElementsAre(RankMessage{0, 4, 800}, RankMessage{1, 5, 800}));
}

TEST(Trees, every_rank_hangs_on_a_root_and_is_inner_in_one_tree) {
  for (int64_t n = 2; n <= 33; ++n) {
    std::vector<int> inner_in(static_cast<size_t>(n));
    for (int tree = 0; tree < 2; ++tree) {
      std::vector<int> children(static_cast<size_t>(n));
      int roots = 0;
      for (int64_t r = 0; r < n; ++r) {
        int64_t at = r, steps = 0;
        while (tree_parent(at, n, tree) >= 0 && steps <= n) at = tree_parent(at, n, tree), ++steps;
        ASSERT_LE(steps, n) << "a cycle";
        if (tree_parent(r, n, tree) < 0) {
          ++roots;
        } else {
          ++children[static_cast<size_t>(tree_parent(r, n, tree))];
        }
      }
      EXPECT_EQ(roots, 1);
      for (size_t r = 0; r < children.size(); ++r) {
        EXPECT_LE(children[r], 2);
        inner_in[r] += children[r] > 0;
      }
    }
    // With an odd number of ranks, rank 0 is inner once more: as the first root it has one child.
    for (size_t r = 0; r < inner_in.size(); ++r)
      EXPECT_LE(inner_in[r], n % 2 == 1 && r == 0 ? 2 : 1);
  }
}

TEST(Trees, cost_of_equal_links_is_twice_the_depth_and_pipelining_hides_it) {
  PairCosts costs{8, std::vector<double>(64, 0), std::vector<double>(64, 1e-6)};
  const Order order{0, 1, 2, 3, 4, 5, 6, 7};
  OrderOptions options = of(kDoubleBinaryTree, 1000);
  // Tree of 8: 0 - 4 - 2, 6 - 1, 3, 5, 7: three edges of 500 bytes.
  EXPECT_NEAR(order_cost(costs, order, options), 2 * 3 * 500e-6, 1e-12);
  options.chunks = 10;
  EXPECT_NEAR(order_cost(costs, order, options), 2 * (3 + 9) * 50e-6, 1e-12);
}

TEST(Trees, racks_see_both_trees_and_the_depth) {
  Racks racks = example();
  racks.uplink_rate = {1e12, 1e12};
  OrderOptions options = of(kDoubleBinaryTree, 1e6);
  const Order order{0, 1, 2, 3, 4, 5, 6, 7};
  options.chunks = 1000;
  // A rank takes at most two children's halves in one tree, and gives its half in the other tree.
  const double wide = order_cost(racks, order, options);
  EXPECT_NEAR(wide, 2 * 1e6 / 25e6, .02 * 2 * 1e6 / 25e6);
  racks.uplink_rate = {1e5, 1e5};
  EXPECT_GT(order_cost(racks, order, options), wide);
}

TEST(Racks_, latency_counts_once_a_round) {
  Racks racks = example();
  racks.latency_s = 1e-3;
  racks.cross_latency_s = 5e-3;
  const Order order{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_NEAR(order_cost(racks, order, of(kRing)), .560 + 14 * 5e-3, 1e-9);
  EXPECT_NEAR(order_cost(racks, order, of(kHalvingDoubling)), .800 + 4 * 1e-3 + 2 * 5e-3, 1e-9);
}

TEST(Racks_, a_single_machine_has_nothing_to_send) {
  EXPECT_EQ(order_cost(Racks{{0}, 1e6, {1e6}}, {0}, of(kRing)), 0);
}

}  // namespace
}  // namespace tessera
