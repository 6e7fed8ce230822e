// Checks every vector of docs/theory/cost-model.md section 4.2, and the rules that it states.
#include "tessera/cost/nccl_tuner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::nccl_tuner_test {
namespace {

using enum TunerAlgorithm;
using enum TunerProtocol;

// H100, 8 ranks a node, 8 channels of 48 GB/s, Intel.
TunerGroup hopper(CollectiveKind kind, int64_t nodes) {
  TunerGroup group;
  group.kind = kind;
  group.nodes = nodes;
  group.ranks_a_node = 8;
  group.channels = 8;
  group.ring = {48e9, 48e9};
  group.nvls = {48e9, 48e9};
  group.switch_sum = true;
  return group;
}

struct Vector {
  CollectiveKind kind;
  int64_t nodes;
  TunerAlgorithm algorithm;
  TunerProtocol protocol;
  double micros, giga;  // as printed: to a tenth
};
constexpr auto kAll = CollectiveKind::kAllReduce;
constexpr auto kGather = CollectiveKind::kAllGather;
constexpr auto kScatter = CollectiveKind::kReduceScatter;

class Vectors : public testing::TestWithParam<Vector> {};

TEST_P(Vectors, latency_and_rate) {
  const Vector& v = GetParam();
  const auto figure = tuner_figure(hopper(v.kind, v.nodes), v.algorithm, v.protocol);
  ASSERT_TRUE(figure.has_value());
  EXPECT_NEAR(figure->latency_s * 1e6, v.micros, .051);
  EXPECT_NEAR(figure->rate / 1e9, v.giga, .051);
}

INSTANTIATE_TEST_SUITE_P(
    Published, Vectors,
    testing::Values(
        Vector{kAll, 2, kRing, kLl, 40.0, 20.8}, Vector{kAll, 2, kRing, kLl128, 75.2, 156.6},
        Vector{kAll, 2, kRing, kSimple, 131.6, 204.8}, Vector{kAll, 4, kRing, kLl, 78.8, 10.5},
        Vector{kAll, 4, kRing, kLl128, 144.4, 151.5}, Vector{kAll, 4, kRing, kSimple, 282.8, 198.2},
        Vector{kAll, 8, kRing, kLl, 156.4, 10.4}, Vector{kAll, 8, kRing, kLl128, 282.8, 149.1},
        Vector{kAll, 8, kRing, kSimple, 585.2, 195.0}, Vector{kAll, 32, kRing, kLl, 622, 10.2},
        Vector{kAll, 32, kRing, kLl128, 1113.2, 147.4},
        Vector{kAll, 32, kRing, kSimple, 2399.6, 192.8}, Vector{kGather, 8, kRing, kLl, 81.5, 20.7},
        Vector{kGather, 8, kRing, kLl128, 148.4, 298.3},
        Vector{kGather, 8, kRing, kSimple, 296.8, 390.1},
        Vector{kScatter, 8, kRing, kLl, 81.5, 20.7},
        Vector{kScatter, 8, kRing, kLl128, 148.4, 298.3},
        Vector{kScatter, 8, kRing, kSimple, 296.8, 390.1}, Vector{kAll, 8, kTree, kLl, 45.2, 8.7},
        Vector{kAll, 8, kTree, kLl128, 82.5, 98.6}, Vector{kAll, 8, kTree, kSimple, 148.4, 122.4}));

// Release 2.27.5 with the graph that its log shows for switch reductions: 24 GB/s a channel between
// nodes (the page's vector, and the log's other numbers of nodes).
TEST(NvlsTree, release_2_27_over_4_to_32_nodes) {
  const std::pair<int64_t, double> logged[] = {{4, 81}, {8, 109}, {16, 137}, {32, 165}};
  for (const auto& [nodes, micros] : logged) {
    TunerGroup group = hopper(kAll, nodes);
    group.release = TunerRelease::k2_27;
    group.nvls.network_rate = 24e9;
    const auto figure = tuner_figure(group, kNvlsTree, kSimple);
    ASSERT_TRUE(figure.has_value());
    EXPECT_NEAR(figure->latency_s * 1e6, micros, 1e-9);
    EXPECT_NEAR(figure->rate / 1e9, 160, 1e-9);
  }
}

TEST(NvlsTree, release_2_30_is_slower_to_start_and_capped_a_channel) {
  const auto figure = tuner_figure(hopper(kAll, 8), kNvlsTree, kSimple);
  ASSERT_TRUE(figure.has_value());
  EXPECT_NEAR(figure->latency_s * 1e6, 25 + 2 * 3 * 20.9, 1e-9);
  EXPECT_NEAR(figure->rate / 1e9, 8 * 45.5 * 64 / 126, 1e-9);
}

TEST(Nvls, all_reduce_uses_the_switch_both_ways) {
  TunerGroup group = hopper(kAll, 1);
  group.channels = 16;
  group.nvls.inner_rate = 20e9;
  const auto both = tuner_figure(group, kNvls, kSimple);
  ASSERT_TRUE(both.has_value());
  EXPECT_NEAR(both->latency_s * 1e6, 25, 1e-9);
  EXPECT_NEAR(both->rate / 1e9, 16 * 2 * 20 * .85 * 15 / 16 * 8 / 14, 1e-9);
  group.kind = kGather;
  const auto one = tuner_figure(group, kNvls, kSimple);
  EXPECT_NEAR(one->rate / 1e9, 16 * 20 * .85 * 15 / 16 * 7 / 8, 1e-9);
}

TEST(Pat, is_for_gathers_of_one_rank_a_node) {
  TunerGroup group = hopper(kGather, 16);
  group.ranks_a_node = 1;
  group.channels = 2;
  group.ring = {24e9, 24e9};
  const auto figure = tuner_figure(group, kPat, kSimple);
  ASSERT_TRUE(figure.has_value());
  EXPECT_NEAR(figure->latency_s * 1e6, 8 + 4 * 14 / 3.5 + 2.8 * 16, 1e-9);
  EXPECT_NEAR(figure->rate / 1e9, .75 * 48, 1e-9);
  group.kind = kAll;
  EXPECT_FALSE(tuner_figure(group, kPat, kSimple).has_value());
  EXPECT_FALSE(tuner_figure(hopper(kGather, 16), kPat, kSimple).has_value());
}

// The log of 2.27.5 with one and two ranks a node: those pay the tree's latency of the network.
TEST(Ring, one_rank_a_node_pays_the_trees_network_latency) {
  TunerGroup group = hopper(kAll, 2);
  group.ranks_a_node = 1;
  group.channels = 2;
  group.ring = {24e9, 24e9};
  EXPECT_NEAR(tuner_figure(group, kRing, kLl)->latency_s * 1e6, 16.6, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kRing, kLl128)->latency_s * 1e6, 31.0, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kRing, kSimple)->latency_s * 1e6, 36.4, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kRing, kLl)->rate / 1e9, 24, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kRing, kLl128)->rate / 1e9, 44.16, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kRing, kSimple)->rate / 1e9, 48, 1e-9);
}

TEST(Ring, amd_hosts_double_the_overhead_and_have_their_own_low_latency_cap) {
  TunerGroup group = hopper(kAll, 4);
  group.cpu = HostCpu::kAmd;
  const auto simple = tuner_figure(group, kRing, kSimple), ll = tuner_figure(group, kRing, kLl);
  EXPECT_NEAR(simple->latency_s * 1e6, 8.4 + 56 * 6 + 6 * 14, 1e-9);  // 2 us, thrice for simple
  EXPECT_NEAR(ll->rate / 1e9, 19. * 32 / 62, 1e-9);
}

TEST(Ring, pcie_latency_inside_a_node) {
  TunerGroup group = hopper(kAll, 1);
  group.nvlink = false;
  EXPECT_NEAR(tuner_figure(group, kRing, kSimple)->latency_s * 1e6, 8.4 + 14 * 5.7, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kRing, kLl)->latency_s * 1e6, 6.6 + 14 * 1.0, 1e-9);
}

TEST(Ring, a_slower_network_adds_to_every_message_twice_for_simple) {
  TunerGroup group = hopper(kAll, 2);
  const double ll = tuner_figure(group, kRing, kLl)->latency_s,
               simple = tuner_figure(group, kRing, kSimple)->latency_s;
  group.network_lag_s = 1e-3;
  EXPECT_NEAR(tuner_figure(group, kRing, kLl)->latency_s - ll, 2e-3, 1e-12);
  EXPECT_NEAR(tuner_figure(group, kRing, kSimple)->latency_s - simple, 4e-3, 1e-12);
}

TEST(Legal, ll128_needs_nvlink_and_volta) {
  TunerGroup group = hopper(kAll, 2);
  EXPECT_TRUE(tuner_figure(group, kRing, kLl128).has_value());
  group.nvlink = false;
  EXPECT_FALSE(tuner_figure(group, kRing, kLl128).has_value());
  group.nvlink = true;
  group.generation = Generation::named("pascal");
  EXPECT_FALSE(tuner_figure(group, kRing, kLl128).has_value());
  group.generation = Generation::named("volta");
  EXPECT_TRUE(tuner_figure(group, kTree, kLl128).has_value());
}

TEST(Legal, trees_are_for_all_reduce) {
  EXPECT_FALSE(tuner_figure(hopper(kGather, 2), kTree, kSimple).has_value());
  EXPECT_FALSE(tuner_figure(hopper(CollectiveKind::kBroadcast, 2), kNvlsTree, kSimple).has_value());
  EXPECT_TRUE(tuner_figure(hopper(CollectiveKind::kBroadcast, 2), kRing, kSimple).has_value());
}

TEST(Legal, switch_sums_need_a_switch_hopper_and_the_plain_protocol) {
  TunerGroup group = hopper(kAll, 1);
  EXPECT_TRUE(tuner_figure(group, kNvls, kSimple).has_value());
  EXPECT_FALSE(tuner_figure(group, kNvls, kLl).has_value());
  EXPECT_FALSE(tuner_figure(group, kNvlsTree, kSimple).has_value());  // one node
  group.generation = Generation::named("ampere");
  EXPECT_FALSE(tuner_figure(group, kNvls, kSimple).has_value());
  group = hopper(kAll, 2);
  EXPECT_FALSE(tuner_figure(group, kNvls, kSimple).has_value());  // the network does not sum
  EXPECT_FALSE(tuner_figure(group, kCollnetChain, kSimple).has_value());
  group.network_sum = true;
  EXPECT_TRUE(tuner_figure(group, kNvls, kSimple).has_value());
  EXPECT_NEAR(tuner_figure(group, kCollnetChain, kSimple)->latency_s * 1e6, 2 * 7 * 2.8 + 30, 1e-9);
  EXPECT_NEAR(tuner_figure(group, kCollnetDirect, kSimple)->latency_s * 1e6,
              2 * (3.7 + 7 * .4) + 31, 1e-9);
}

TEST(Legal, what_is_composed_of_messages_has_no_choice) {
  for (const auto kind : {CollectiveKind::kAllToAll, CollectiveKind::kPermute}) {
    EXPECT_FALSE(tuner_choice(hopper(kind, 2), 1 << 20).has_value());
  }
}

TEST(Correction, table_of_the_tree_by_size) {
  const auto at = [](TunerProtocol protocol, double index) {
    return tree_correction(protocol, index, SizeSteps::kStepped);
  };
  EXPECT_EQ(at(kLl, 0), 1);
  EXPECT_EQ(at(kLl, 12), .4);
  EXPECT_EQ(at(kLl, 12.9), .4);
  EXPECT_EQ(at(kLl128, 9), .7);
  EXPECT_EQ(at(kLl128, 16), .8);
  EXPECT_EQ(at(kSimple, 0), .9);
  EXPECT_EQ(at(kSimple, 14), .5);
  EXPECT_EQ(at(kSimple, 18), .7);
  EXPECT_EQ(at(kSimple, 22), .9);
  EXPECT_EQ(at(kSimple, 23), 1);
  EXPECT_NEAR(tree_correction(kSimple, 16.5, SizeSteps::kSmooth), .75, 1e-12);
}

TEST(Correction, tree_of_1_mebibyte) {  // log2(2^20 / 64) = 14
  const auto time = tuner_time(hopper(kAll, 8), kTree, kSimple, 1 << 20);
  EXPECT_NEAR(time->transfer_s, 1048576 / (122.4e9 * .5), 1e-12);
}

TEST(Correction, plateau_of_the_ring_from_64_bytes_a_channel_and_rank) {
  TunerGroup group = hopper(kAll, 2);
  const int64_t edge = 64 * 8 * 16;
  const double base = 131.6e-6;
  EXPECT_NEAR(tuner_time(group, kRing, kSimple, edge - 1)->latency_s, base, 1e-12);
  EXPECT_NEAR(tuner_time(group, kRing, kSimple, edge)->latency_s, 1.4 * base, 1e-12);
  group.generation = Generation::named("volta");
  EXPECT_NEAR(tuner_time(group, kRing, kSimple, edge)->latency_s, 1.9 * base, 1e-12);
  EXPECT_NEAR(tuner_time(hopper(kGather, 8), kRing, kSimple, 1 << 30)->latency_s, 296.8e-6, 1e-12);
}

TEST(Choice, low_latency_when_small_plain_ring_or_switch_when_large) {
  TunerGroup group = hopper(kAll, 8);
  EXPECT_EQ(tuner_choice(group, 1024)->name(), "tree/ll");
  group.switch_sum = false;
  EXPECT_EQ(tuner_choice(group, int64_t{8} << 30)->name(), "ring/simple");
  EXPECT_EQ(tuner_choice(hopper(kGather, 8), 4096)->name(), "ring/ll");
  // H200, 8 devices: low latency up to 1 MiB, the switch's sum from 2 MiB on (section 4.3).
  group = hopper(kAll, 1);
  group.channels = 16;
  group.ring = {23.2e9, 23.2e9};
  group.nvls.inner_rate = 23.2e9;
  EXPECT_EQ(tuner_choice(group, 16 << 10)->protocol, kLl);
  EXPECT_EQ(tuner_choice(group, 64 << 20)->name(), "nvls/simple");
}

TEST(Choice, is_the_least_of_the_legal_pairs) {
  for (int shift = 6; shift < 34; ++shift) {
    const int64_t bytes = int64_t{1} << shift;
    const auto choice = tuner_choice(hopper(kAll, 4), bytes);
    for (const auto algorithm : kTunerAlgorithms) {
      for (const auto protocol : kTunerProtocols) {
        const auto other = tuner_time(hopper(kAll, 4), algorithm, protocol, bytes);
        if (!other) continue;
        EXPECT_LE(choice->seconds(), other->seconds());
      }
    }
  }
}

TEST(Choice, smooth_steps_never_make_more_bytes_faster) {
  for (const auto kind : {kAll, kGather}) {
    for (const int64_t nodes : {1, 2, 3, 16}) {
      double last = 0;
      for (double bytes = 64; bytes < 4e10; bytes *= 1.07) {
        const auto choice =
            tuner_choice(hopper(kind, nodes), std::llround(bytes), SizeSteps::kSmooth);
        EXPECT_GE(choice->seconds(), last) << bytes;
        last = choice->seconds();
      }
    }
  }
}

}  // namespace
}  // namespace tessera::nccl_tuner_test
