// Tests the worked example of docs/theory/cloud-collectives.md section 4, and the cost models of
// section 3.
#include "tessera/network/order_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tessera/network/test_networks.h"

namespace tessera {
namespace {

using enum OrderAlgorithm;

// 8 machines in two racks; network cards and each rack's uplink 200 Mbit/s; no latency.
OrderNetwork example() {
  OrderNetwork network;
  network.switches = {{"a", -1, 25e6, 0}, {"b", -1, 25e6, 0}};
  for (int64_t m = 0; m < 8; ++m) {
    OrderMachine machine;
    machine.above = m / 4;
    machine.card_rate = 25e6;
    network.machines.push_back(machine);
  }
  return network;
}
PatternOptions of(OrderAlgorithm algorithm, double bytes = 8e6) {
  PatternOptions options;
  options.algorithm = algorithm;
  options.bytes = bytes;
  return options;
}
template <class Network>
double order_cost(const Network& network, const Order& order, const PatternOptions& options) {
  return OrderCosts(network, order_pattern(std::ssize(order), options).value()).cost(order);
}
std::vector<PatternPhase> phases_of(int64_t ranks, const PatternOptions& options) {
  return order_pattern(ranks, options).value().phases;
}
int64_t edges_between_racks(const Order& order) {
  int64_t edges = 0;
  for (size_t k = 0; k < order.size(); ++k)
    edges += order[k] / 4 != order[(k + 1) % order.size()] / 4;
  return edges;
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
    EXPECT_EQ(edges_between_racks(row.order), row.edges);
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

TEST(Pairs, ring_is_bound_by_its_longest_edge_or_counts_its_length) {
  const PairCosts costs = drawn_pairs(5, 1);
  const Order order{3, 1, 4, 0, 2};
  double longest = 0, length = 0;
  for (size_t k = 0; k < 5; ++k) {
    const double edge = costs.at(order[k], order[(k + 1) % 5], 200);
    longest = std::max(longest, edge);
    length += edge;
  }
  PatternOptions options = of(kRing, 1000);
  EXPECT_NEAR(order_cost(costs, order, options), 8 * longest, 1e-15);
  options.tour = true;
  EXPECT_NEAR(order_cost(costs, order, options), length, 1e-15);
}

TEST(Pairs, doubling_by_the_formula) {
  const PairCosts costs = drawn_pairs(8, 2);
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
    PatternOptions options = of(kHalvingDoubling, 1e6);
    options.near_first = near_first;
    EXPECT_NEAR(order_cost(costs, order, options), halving, 1e-12);
    EXPECT_NEAR(order_cost(costs, order, of(kRecursiveDoubling, 1e6)), doubling, 1e-12);
  }
}

TEST(Pairs, bcube_of_base_2_sends_as_halving_doubling) {
  const PairCosts costs = drawn_pairs(8, 3);
  const Order order{4, 2, 0, 6, 1, 3, 5, 7};
  EXPECT_NEAR(order_cost(costs, order, of(kBcube, 1e6)),
              order_cost(costs, order, of(kHalvingDoubling, 1e6)), 1e-12);
}

TEST(Pairs, bcube_of_base_4_has_pieces_of_a_quarter) {
  PatternOptions options = of(kBcube, 1600);
  options.base = 4;
  const auto phases = phases_of(16, options);
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].messages.size(), 16u * 3);
  EXPECT_EQ(phases[0].messages[0], (PatternMessage{0, 1, 400}));
  EXPECT_EQ(phases[1].messages[0], (PatternMessage{0, 4, 100}));
  EXPECT_EQ(phases[1].repeats, 2);
}

TEST(Phases, ranks_beyond_a_power_of_two_fold_in) {
  const auto phases = phases_of(6, of(kHalvingDoubling, 800));
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_THAT(phases.front().messages,
              testing::ElementsAre(PatternMessage{4, 0, 800}, PatternMessage{5, 1, 800}));
  EXPECT_EQ(phases[1].messages.size(), 4u);
  EXPECT_THAT(phases.back().messages,
              testing::ElementsAre(PatternMessage{0, 4, 800}, PatternMessage{1, 5, 800}));
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
  PairCosts costs{8, std::vector<double>(64, 0), std::vector<double>(64, 1e-6), {}};
  const Order order{0, 1, 2, 3, 4, 5, 6, 7};
  PatternOptions options = of(kDoubleTree, 1000);
  // Tree of 8: 0 - 4 - 2, 6 - 1, 3, 5, 7: three edges of 500 bytes.
  EXPECT_NEAR(order_cost(costs, order, options), 2 * 3 * 500e-6, 1e-12);
  options.chunks = 10;
  EXPECT_NEAR(order_cost(costs, order, options), 2 * (3 + 9) * 50e-6, 1e-12);
}

TEST(Trees, uplinks_see_both_trees_and_the_depth) {
  OrderNetwork network = example();
  for (OrderSwitch& one : network.switches) one.uplink_rate = 1e12;
  PatternOptions options = of(kDoubleTree, 1e6);
  const Order order{0, 1, 2, 3, 4, 5, 6, 7};
  options.chunks = 1000;
  // A rank takes at most two children's halves in one tree, and gives its half in the other tree.
  const double wide = order_cost(network, order, options);
  EXPECT_NEAR(wide, 2 * 1e6 / 25e6, .02 * 2 * 1e6 / 25e6);
  for (OrderSwitch& one : network.switches) one.uplink_rate = 1e5;
  EXPECT_GT(order_cost(network, order, options), wide);
}

// A message inside a rack takes 1 ms, one between the racks 5 ms.
OrderNetwork with_latency() {
  OrderNetwork network = example();
  for (OrderMachine& machine : network.machines) machine.latency_s = 1e-3;
  // A switch counts when a message passes it, so that the two on the way add 4 ms.
  network.switches = {{"a", 2, 25e6, 0}, {"b", 2, 25e6, 0}, {"top", -1, 0, 4e-3}};
  return network;
}

TEST(Network, latency_counts_once_a_round) {
  const Order order{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_NEAR(order_cost(with_latency(), order, of(kRing)), .560 + 14 * 5e-3, 1e-9);
  EXPECT_NEAR(order_cost(with_latency(), order, of(kHalvingDoubling)), .800 + 4 * 1e-3 + 2 * 5e-3,
              1e-9);
}

TEST(Network, a_single_machine_has_nothing_to_send) {
  OrderNetwork network = example().with_machines({3});
  EXPECT_EQ(order_cost(network, {0}, of(kRing)), 0);
}

TEST(Network, uplinks_of_all_levels_and_paths_bound_a_phase) {
  // Two sites of two racks of two machines. The racks' uplinks are fast, the sites' slow.
  OrderNetwork network;
  network.switches = {{"r0", 4, 1e9, 0}, {"r1", 4, 1e9, 0},  {"r2", 5, 1e9, 0},
                      {"r3", 5, 1e9, 0}, {"s0", -1, 1e6, 0}, {"s1", -1, 1e6, 0}};
  for (int64_t m = 0; m < 8; ++m) {
    network.machines.push_back({});
    network.machines.back().above = m / 2;
    network.machines.back().card_rate = 1e9;
  }
  const Order sorted{0, 1, 2, 3, 4, 5, 6, 7}, mixed{0, 4, 1, 5, 2, 6, 3, 7};
  // A hop carries 1e6 bytes; one leaves a site, or four do.
  EXPECT_NEAR(order_cost(network, sorted, of(kRing)), 14 * 1., 1e-9);
  EXPECT_NEAR(order_cost(network, mixed, of(kRing)), 14 * 4., 1e-9);
  // A line between the sites, which is slower than their uplinks.
  network.paths = {{4, 5, .5e6, 20e-3}};
  EXPECT_NEAR(order_cost(network, sorted, of(kRing)), 14 * (2. + 20e-3), 1e-9);
  EXPECT_EQ(network.link_name(2 * 6 + 1), "path s1 to s0");
  EXPECT_EQ(network.route(0, 7).links.size(), 5u);
}

TEST(Network, a_cluster_file_with_tiers_becomes_switches) {
  Cluster cluster = load_cluster("dgx-a100:40").value();
  cluster.tiers[0].oversubscription = 2;
  const OrderNetwork network = order_network(cluster);
  ASSERT_EQ(network.machines.size(), 40u);
  ASSERT_EQ(network.switches.size(), 3u);  // two leaf switches and the top
  EXPECT_EQ(network.machines[19].above, 0);
  EXPECT_EQ(network.machines[20].above, 1);
  EXPECT_NEAR(network.switches[0].uplink_rate, 20 * 8 * 25e9 / 2, 1);
  EXPECT_NEAR(network.route(0, 1).latency_s, 12e-6 + .6e-6, 1e-12);
  EXPECT_NEAR(network.route(0, 39).latency_s, 12e-6 + 2 * .6e-6 + 1e-6, 1e-12);
}

TEST(Hierarchical, inside_groups_and_between_them) {
  PatternOptions options = of(kHierarchical, 8e6);
  options.group = 4;
  // Inside: 2 x 3 rounds of 2 MB; between: 2 rounds of 1 MB by each of the four machines of a rack.
  EXPECT_NEAR(order_cost(example(), {0, 1, 2, 3, 4, 5, 6, 7}, options),
              6 * 2e6 / 25e6 + 2 * 4e6 / 25e6, 1e-9);
  options.collective = CollectiveKind::kAllGather;
  EXPECT_NEAR(order_cost(example(), {0, 1, 2, 3, 4, 5, 6, 7}, options),
              3 * 2e6 / 25e6 + 1 * 4e6 / 25e6, 1e-9);
}

TEST(Patterns, what_an_algorithm_does_not_know_is_one_line) {
  const auto message = [](int64_t ranks, PatternOptions options) {
    return order_pattern(ranks, options).error().message;
  };
  PatternOptions options = of(kHierarchical);
  options.group = 3;
  EXPECT_EQ(message(8, options),
            "hierarchical: expected a group size that divides the 8 ranks, found 3");
  options = of(kBcube);
  options.base = 1;
  EXPECT_EQ(message(8, options), "bcube: expected a base of at least 2, found 1");
  options = of(kDoubleTree);
  options.collective = CollectiveKind::kAllGather;
  EXPECT_EQ(message(8, options),
            "double_tree: expected the collective all_reduce, found all_gather");
  options = of(kRing);
  options.collective = CollectiveKind::kBroadcast;
  EXPECT_EQ(
      message(8, options),
      "ring: expected the collective all_reduce, reduce_scatter or all_gather, found broadcast");
  EXPECT_EQ(
      parse_algorithm("tree").error().message,
      "expected an algorithm (ring, halving_doubling, recursive_doubling, double_tree, bcube, "
      "hierarchical), found 'tree'");
}

// Each algorithm, with numbers of ranks that are powers and others.
std::vector<std::pair<int64_t, PatternOptions>> many_patterns() {
  std::vector<std::pair<int64_t, PatternOptions>> out;
  for (const OrderAlgorithm algorithm :
       {kRing, kHalvingDoubling, kRecursiveDoubling, kDoubleTree, kBcube, kHierarchical}) {
    for (const int64_t ranks : {2, 7, 8, 12}) {
      PatternOptions options = of(algorithm);
      options.group = ranks % 2 == 0 ? 2 : 7;
      options.base = 3;
      options.chunks = 4;
      out.emplace_back(ranks, options);
      options.tour = algorithm == kRing;
      if (options.tour) out.emplace_back(ranks, options);
    }
  }
  return out;
}

TEST(State, after_any_changes_it_has_the_cost_of_the_whole_computation) {
  std::mt19937 draw(7);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(draw() % static_cast<uint32_t>(n));
  };
  for (const auto& [ranks, options] : many_patterns()) {
    OrderNetwork network = with_latency();
    network.machines.clear();
    for (int64_t m = 0; m < ranks; ++m) {
      network.machines.push_back({});
      network.machines.back().above = below(2);
      network.machines.back().card_rate = 25e6 * static_cast<double>(1 + below(2));
      network.machines.back().latency_s = 1e-3;
    }
    const OrderPattern pattern = order_pattern(ranks, options).value();
    const OrderCosts on_network(network, pattern), on_pairs(drawn_pairs(ranks, 5), pattern);
    for (const OrderCosts* costs : {&on_network, &on_pairs}) {
      Order order(static_cast<size_t>(ranks));
      std::iota(order.begin(), order.end(), 0);
      OrderState state(*costs, order);
      EXPECT_NEAR(state.cost(), costs->cost(order), 1e-9 * state.cost());
      for (int turn = 0; turn < 40; ++turn) {
        const auto a = static_cast<size_t>(below(ranks)), b = static_cast<size_t>(below(ranks)),
                   c = static_cast<size_t>(below(ranks));
        if (a == b || b == c || a == c) continue;
        const Order before = state.order();
        const std::vector<std::pair<int64_t, int64_t>> changes = {
            {static_cast<int64_t>(a), before[b]},
            {static_cast<int64_t>(b), before[c]},
            {static_cast<int64_t>(c), before[a]}};
        state.apply(changes);
        ASSERT_NEAR(state.cost(), costs->cost(state.order()), 1e-9 * state.cost())
            << algorithm_name(options.algorithm) << ' ' << ranks;
      }
    }
  }
}

TEST(Bound, no_order_undercuts_it_and_a_ring_by_racks_reaches_it) {
  for (const auto& [ranks, options] : many_patterns()) {
    if (ranks > 8) continue;
    std::vector<int64_t> some(static_cast<size_t>(ranks));
    std::iota(some.begin(), some.end(), 8 - ranks);
    const OrderCosts costs(with_latency().with_machines(some),
                           order_pattern(ranks, options).value());
    Order order(static_cast<size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    for (int turn = 0; turn < 500; ++turn) {
      ASSERT_LE(costs.bound(), costs.cost(order) * (1 + 1e-12))
          << algorithm_name(options.algorithm);
      std::next_permutation(order.begin(), order.end());
    }
  }
  const OrderCosts ring(with_latency(), order_pattern(8, of(kRing)).value());
  EXPECT_NEAR(ring.bound(), ring.cost({0, 1, 2, 3, 4, 5, 6, 7}), 1e-12);
}

TEST(PairTables, what_is_wrong_is_one_line_that_says_where) {
  const auto message = [](const std::string& text) {
    const auto read = parse_pair_costs(text, "pairs.json");
    return read ? std::string("none") : read.error().message;
  };
  EXPECT_EQ(message(R"({"latency_us": [[0, 1], [2, 0]], "rate_Mbps": [[0, 8], [16, 0]]})"), "none");
  EXPECT_EQ(message("[1]"),
            "pairs.json: expected a JSON object with latency_us or rate_Mbps, found a list");
  EXPECT_EQ(message("{"),
            "pairs.json: expected a JSON object with latency_us or rate_Mbps, found no JSON");
  EXPECT_EQ(message("{}"), "pairs.json: expected latency_us or rate_Mbps, found neither");
  EXPECT_EQ(message(R"({"latency_us": [[0, 1], [2, 0]], "nodes": 2})"),
            "pairs.json: expected the keys latency_us, rate_Mbps, hosts, found 'nodes'");
  EXPECT_EQ(message(R"({"latency_us": [[0, 1], [2]]})"),
            "pairs.json: latency_us: row 1: expected 2 numbers, found 1");
  EXPECT_EQ(message(R"({"latency_us": [[0, 1], [2, 0]], "rate_Mbps": [[0]]})"),
            "pairs.json: rate_Mbps: expected 2 rows, one for each machine, found 1");
  EXPECT_EQ(message(R"({"latency_us": [[0, -1], [2, 0]]})"),
            "pairs.json: latency_us: row 0, column 1: expected a number of at least 0, found -1");
  EXPECT_EQ(
      message(R"({"latency_us": [[0, "NaN"], [2, 0]]})"),
      "pairs.json: latency_us: row 0, column 1: expected a number of at least 0, found \"NaN\"");
  EXPECT_EQ(message(R"({"latency_us": [[0, null], [2, 0]]})"),
            "pairs.json: latency_us: row 0, column 1: expected a number of at least 0, found none");
  EXPECT_EQ(message(R"({"rate_Mbps": [[0, 5], [0, 0]]})"),
            "pairs.json: rate_Mbps: row 1, column 0: expected a number above 0, found 0");
  EXPECT_EQ(message(R"({"latency_us": [[0, 1], [2, 0]], "hosts": ["a", "a"]})"),
            "pairs.json: hosts: expected different names, found 'a' twice");
  EXPECT_EQ(message(R"({"latency_us": [[0, 1], [2, 0]], "hosts": ["a"]})"),
            "pairs.json: hosts: expected 2 names, found 1");
}

TEST(PairTables, entries_are_by_direction) {
  const PairCosts costs =
      parse_pair_costs(R"({"latency_us": [[0, 1], [2, 0]], "rate_Mbps": [[0, 8], [16, 0]]})", "f")
          .value();
  EXPECT_NEAR(costs.at(0, 1, 1e6), 1e-6 + 1, 1e-12);
  EXPECT_NEAR(costs.at(1, 0, 1e6), 2e-6 + .5, 1e-12);
  EXPECT_FALSE(costs.symmetric());
}

TEST(Clusters, the_largest_gap_of_the_costs_parts_them) {
  PairCosts costs{6, std::vector<double>(36, 0), std::vector<double>(36, 0), {}};
  std::mt19937 draw(3);
  std::uniform_real_distribution<double> noise(.95, 1.05);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 6; ++j)
      costs.latency_s[static_cast<size_t>(6 * i + j)] =
          (i % 2 == j % 2 ? 10e-6 : 40e-6) * noise(draw);
  }
  EXPECT_THAT(clusters_of(costs, 0),
              testing::ElementsAre(testing::ElementsAre(0, 2, 4), testing::ElementsAre(1, 3, 5)));
  EXPECT_EQ(clusters_of({2, {0, 1, 1, 0}, {0, 0, 0, 0}, {}}, 0).size(), 1u);
}

}  // namespace
}  // namespace tessera
