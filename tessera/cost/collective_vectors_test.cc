// Checks every branch of the prices of collectives, messages and copies: the expected value is a
// closed form of the machine's figures, written beside it. Each figure of the machine differs from
// the others, so that none can be left out or taken twice unseen.
#include <gtest/gtest.h>

#include "tessera/cluster/profile.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/cost/collective_curves.h"

namespace tessera::collective_vectors_test {
namespace {

constexpr double kGb = 1e9;
constexpr int64_t kBytes = 4'000'000'000;
constexpr double kSize = 4e9;

// Makes a cluster: eight devices a node, NVLink of 300 GB/s and 5 us, four NICs of 20 GB/s and 15
// us; leaf switches of four nodes, 1 us and twice oversubscribed, below a switch of 3 us.
Cluster machine(std::string_view generation, int64_t nodes) {
  NodeType type;
  type.name = "node";
  type.device.generation = Generation::named(generation);
  type.device.units = 108;
  type.devices = 8;
  type.inner = {LinkKind::kNvlink, 300 * kGb, 5e-6, true};
  type.nics = 4;
  type.nic = {LinkKind::kNic, 20 * kGb, 15e-6, true};
  type.host = {LinkKind::kPcie, 25 * kGb, 8e-6, true};
  Cluster cluster;
  cluster.name = "by hand";
  cluster.parts = {{type, nodes}};
  cluster.tiers = {{4, 2, 1e-6}, {0, 1, 3e-6}};
  return cluster;
}
Cluster with_inner(Cluster cluster, LinkKind kind, bool switched) {
  cluster.parts[0].type.inner = {kind, 12 * kGb, 5e-6, switched};
  return cluster;
}

// Returns a style with half of the rates inside a node, .8 of those between nodes, 7 us before
// every collective.
Style style() {
  Style out;
  out.inner_efficiency = .5;
  out.network_efficiency = .8;
  out.collective_gap_s = 7e-6;
  return out;
}

std::vector<int64_t> every(int64_t count, int64_t stride = 1) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * stride);
  return out;
}

CollectiveCost price(const Cluster& cluster, CollectiveKind kind,
                     const std::vector<int64_t>& devices, int64_t groups) {
  const Style with = style();
  return CollectiveCosts(cluster, with)
      .collective(kind, place_group(cluster, devices, groups), kBytes);
}
CollectiveCost message(const Cluster& cluster, int64_t from, int64_t to, int64_t share = 1) {
  const Style with = style();
  return CollectiveCosts(cluster, with).message(from, to, kBytes, share);
}

// Checks a cost; the expected latency is given without the style's 7 us, which are added if `gap`.
void expect_cost(const CollectiveCost& cost, double latency_s, double transfer_s, bool gap = true) {
  EXPECT_NEAR(cost.latency_s / (latency_s + (gap ? 7e-6 : 0)), 1, 1e-9) << cost.latency_s;
  EXPECT_NEAR(cost.transfer_s / transfer_s, 1, 1e-9) << cost.transfer_s;
}

constexpr auto kPermute = CollectiveKind::kPermute;
constexpr auto kReduce = CollectiveKind::kAllReduce;
constexpr auto kGather = CollectiveKind::kAllGather;
constexpr auto kEach = CollectiveKind::kAllToAll;

TEST(Permute, inside_a_node_takes_the_link_at_a_messages_share) {
  const CollectiveCost cost = price(machine("ampere", 1), kPermute, every(4), 1);
  expect_cost(cost, 5e-6, kSize / (300 * kGb * .88 * .5));
  EXPECT_EQ(cost.algorithm, "direct");
}

TEST(Permute, members_and_groups_share_a_bus) {
  const Cluster bus = with_inner(machine("ampere", 1), LinkKind::kPcie, false);
  expect_cost(price(bus, kPermute, every(4), 2), 5e-6, kSize / (12 * kGb * .85 * .5 / (4 * 2)));
  // Direct links are of each pair: nothing is shared.
  const Cluster direct = with_inner(machine("ampere", 1), LinkKind::kDirect, false);
  expect_cost(price(direct, kPermute, every(4), 2), 5e-6, kSize / (12 * kGb * .88 * .5));
}

TEST(Permute, between_nodes_has_the_nic_and_every_tier_of_the_fabric) {
  // One leaf switch: 15 + 1 us. Two members a node share the NICs of the group.
  const Cluster cluster = machine("ampere", 16);
  const std::vector<int64_t> leaf = {0, 1, 8, 9};
  // 2 of 8 devices have 1 NIC near; 4 groups have one each.
  expect_cost(price(cluster, kPermute, leaf, 4), 16e-6, kSize / (20 * kGb * .96 * .8 / 2));
  // One node a leaf, twice oversubscribed, and both tiers: 15 + 1 + 3 us.
  expect_cost(price(cluster, kPermute, every(4, 32), 4), 19e-6, kSize / (20 * kGb * .96 * .8 / 2));
  // Eight groups have half a NIC each; two nodes below each switch need half of the way up.
  const std::vector<int64_t> pairs = {0, 8, 32, 40};
  expect_cost(price(cluster, kPermute, pairs, 8), 19e-6, kSize / (10 * kGb * .96 * .8));
}

TEST(Permute, is_no_faster_between_nodes_than_inside) {
  Cluster cluster = machine("ampere", 2);
  cluster.parts[0].type.nic.rate = 900 * kGb;
  expect_cost(price(cluster, kPermute, every(2, 8), 1), 16e-6, kSize / (300 * kGb * .88 * .5));
}

TEST(Steps, rings_of_processors_pay_a_message_a_step) {
  const Cluster bus = with_inner(machine("cpu", 1), LinkKind::kMemory, false);
  // Four members of one group share the bus: 12 * .5 / 4 GB/s.
  const double rate = 12 * kGb * .5 / 4;
  expect_cost(price(bus, kReduce, every(4), 1), 6 * 5e-6, 2 * 3. / 4 * kSize / rate);
  expect_cost(price(bus, kGather, every(4), 1), 3 * 5e-6, 3. / 4 * kSize / rate);
  const CollectiveCost each = price(bus, kEach, every(4), 1);
  expect_cost(each, 3 * 5e-6, 3. / 4 * kSize / rate);
  EXPECT_EQ(each.algorithm, "direct");
  EXPECT_EQ(price(bus, kGather, every(4), 1).algorithm, "ring");
  EXPECT_EQ(each.units, 0);
}

TEST(Steps, between_nodes_take_the_nic_and_the_fabric) {
  Cluster cluster = with_inner(machine("cpu", 16), LinkKind::kMemory, true);
  // 15 + 1 + 3 us a step. A node has 4 * 20 / 8 GB/s of the way up, which is half of one NIC.
  cluster.tiers[0].oversubscription = 8;
  expect_cost(price(cluster, kReduce, every(4, 32), 1), 6 * 19e-6,
              2 * 3. / 4 * kSize / std::min(12 * kGb * .5, 20 * kGb * .96 * .8 / 2));
  cluster.parts[0].type.nic.rate = 2 * kGb;
  expect_cost(price(cluster, kReduce, every(4, 32), 1), 6 * 19e-6,
              2 * 3. / 4 * kSize / (2 * kGb * .96 * .8 / 2));
}

TEST(Steps, sockets_share_their_bridge) {
  Cluster cluster = with_inner(machine("cpu", 1), LinkKind::kPcie, true);
  cluster.parts[0].type.sockets = 2;
  cluster.parts[0].type.bridge = {LinkKind::kQpi, 1 * kGb, 2e-6, true};
  // A ring crosses the bridge: 1 * .5 GB/s over two groups.
  expect_cost(price(cluster, kReduce, every(4, 2), 2), 6 * 5e-6,
              2 * 3. / 4 * kSize / (1 * kGb * .5 / 2));
  // An exchange: half of the members' bytes, half of them to the other socket: 4/4 of the bytes.
  expect_cost(price(cluster, kEach, every(4, 2), 2), 3 * 5e-6, 4. / 4 * kSize / (1 * kGb * .5 / 2));
  // On a bus that is slower than the bridge the volume counts.
  cluster.parts[0].type.bridge.rate = 1e3 * kGb;
  const double bus = 12 * kGb * .5 * pcie_share(8);
  expect_cost(price(cluster, kEach, every(4, 2), 2), 3 * 5e-6, 3. / 4 * kSize / bus);
}

TEST(Hierarchy, rings_in_nodes_and_a_tree_between_them) {
  const Cluster cluster = with_inner(machine("other", 16), LinkKind::kDirect, true);
  // Inside: .8 of the links; one hop for each further member, forth and back.
  const CollectiveCost inside = price(cluster, kReduce, every(8), 1);
  expect_cost(inside, 2 * 7 * 5e-6, 2 * 7. / 8 * kSize / (12 * kGb * .5 * .8));
  EXPECT_EQ(inside.algorithm, "ring");
  expect_cost(price(cluster, kGather, every(8), 1), 7 * 5e-6,
              7. / 8 * kSize / (12 * kGb * .5 * .8));
  // 16 nodes of 8: a tree of ceil(log2 16) hops of 19 us; gathers take 15. NICs: 4 x 20 x .8 x .8.
  const double network = 4 * 20 * kGb * .8 * .8;
  const double rate = std::min(12 * kGb * .5 * .8, network);
  const CollectiveCost all = price(cluster, kReduce, every(128), 1);
  expect_cost(all, 2 * (7 * 5e-6 + 4 * 19e-6), 2 * 127. / 128 * kSize / rate);
  EXPECT_EQ(all.algorithm, "hierarchical");
  expect_cost(price(cluster, kGather, every(128), 1), 7 * 5e-6 + 15 * 19e-6,
              127. / 128 * kSize / rate);
  // Two nodes: one hop is less than a tree's.
  expect_cost(price(cluster, kReduce, every(16), 1), 2 * (7 * 5e-6 + 16e-6),
              2 * 15. / 16 * kSize / rate);
  // Exchanges inside a node go by steps.
  expect_cost(price(cluster, kEach, every(8), 1), 7 * 5e-6, 7. / 8 * kSize / (12 * kGb * .5 * .8));
}

TEST(Exchange, between_nodes_is_bound_by_nics_the_way_up_or_the_node) {
  Cluster cluster = machine("ampere", 16);
  const double lag = 1e-6 + 3e-6 + 15e-6 - 12e-6;
  // 128 devices: 8 a node on 4 NICs: 10 GB/s each, .8 of it; 15/16 of the bytes leave the node, at
  // the least of .96 and 1 - .44/16.
  const double nic = 4 * 20 * kGb * .8 / 8;
  const double latency = all_to_all_latency(16) + lag;
  // Four nodes below a switch: 12/16 go up, twice oversubscribed.
  expect_cost(price(cluster, kEach, every(128), 1), latency, kSize * 12 / 16 * 2 / (nic * .96));
  // Without oversubscription the NICs bind.
  cluster.tiers[0].oversubscription = 1;
  expect_cost(price(cluster, kEach, every(128), 1), latency, kSize * 15 / 16 / (nic * .96));
  // Four nodes, one switch: 1 - .44/4 of the NIC.
  expect_cost(price(cluster, kEach, every(32), 1), all_to_all_latency(4) + 1e-6 + 15e-6 - 12e-6,
              kSize * 3 / 4 / (nic * .89));
  // Fast NICs: what stays inside, at .8 of the links; on rails what leaves passes a peer first.
  cluster.parts[0].type.nic.rate = 1e6 * kGb;
  const double inner = 300 * kGb * .5 * .8;
  expect_cost(price(cluster, kEach, every(32), 1), all_to_all_latency(4) + 4e-6,
              kSize * 7 / 32 / inner);
  cluster.rail_aligned = true;
  expect_cost(price(cluster, kEach, every(32), 1), all_to_all_latency(4) + 4e-6,
              (kSize * 7 / 32 + kSize * 3 / 4 * 7 / 8) / inner);
  // A network that is nearer than the measured one: never less than nothing.
  cluster.parts[0].type.nic.latency_s = 0;
  cluster.tiers.clear();
  expect_cost(price(cluster, kEach, every(16), 1), all_to_all_latency(2) - 12e-6,
              (kSize * 7 / 16 + kSize / 2 * 7 / 8) / inner);
}

TEST(Tuned, rings_over_nodes_have_the_librarys_steps_and_each_nodes_share) {
  const Cluster cluster = machine("ampere", 16);
  // One member in each of four nodes of one leaf switch: the lag is 1 + 15 - 12 us, and the plain
  // protocol sends two messages. 8.4 us once, 14 us a hop, 4.7 us a node; all-reduces 1.4 times.
  const double hop = 14e-6 + 2 * 4e-6;
  const double bus = 20 * kGb * .96 * .8;
  const CollectiveCost gather = price(cluster, kGather, every(4, 8), 4);
  expect_cost(gather, 8.4e-6 + 3 * hop + 4 * 4.7e-6, 3. / 4 * kSize / bus);
  EXPECT_EQ(gather.algorithm, "ring/simple");
  expect_cost(price(cluster, kReduce, every(4, 8), 4), 1.4 * (8.4e-6 + 6 * hop) + 4 * 4.7e-6,
              2 * 3. / 4 * kSize / bus);
  EXPECT_EQ(gather.units, 24);
}

TEST(Tuned, small_arrays_over_nodes_ramp_up) {
  Cluster cluster = machine("ampere", 16);
  const Style with = style();
  const GroupPlacement where = place_group(cluster, every(4, 8), 4);
  const int64_t bytes = 16 << 20;  // 4 MiB a member
  const CollectiveCost cost = CollectiveCosts(cluster, with).collective(kGather, where, bytes);
  ASSERT_EQ(cost.algorithm, "ring/simple");
  // The rate of a member, alone in its node, is that of its bus.
  const double bus = 20 * kGb * .96 * .8;
  const double plain = .75 * static_cast<double>(bytes) / bus;
  EXPECT_NEAR(cost.transfer_s / (plain / ring_ramp(4 << 20, bus)), 1, 1e-9);
  EXPECT_LT(ring_ramp(4 << 20, bus), .95);
}

TEST(Curves, scale_with_the_style_inside_a_node) {
  const Cluster cluster = machine("ampere", 1);
  const auto point =
      inner_curve(kReduce, Generation::named("ampere"), cluster.parts[0].type.inner, 8, kBytes);
  ASSERT_TRUE(point);
  const CollectiveCost cost = price(cluster, kReduce, every(8), 1);
  expect_cost(cost, point->latency_s, point->transfer_s / .5);
  // 79 us and 227 GB/s of 2 * 7/8 of the bytes: the A100's measured figures.
  EXPECT_NEAR(point->latency_s, 79e-6, 1e-12);
  EXPECT_NEAR(point->transfer_s, 2 * 7. / 8 * kSize / (227 * kGb), 1e-9);
  EXPECT_EQ(cost.source, CostSource::kCurve);
}

TEST(Fractions, are_of_the_links_that_a_member_uses) {
  const Cluster cluster = machine("ampere", 16);
  const CollectiveCost gather = price(cluster, kGather, every(4, 8), 4);
  const double seconds = gather.latency_s + gather.transfer_s;
  EXPECT_NEAR(gather.inner_fraction, .75 * kSize / (seconds * 300 * kGb), 1e-9);
  EXPECT_NEAR(gather.nic_fraction, .75 * kSize / (seconds * 20 * kGb), 1e-9);
  // In an exchange all members of a node send to other nodes, and they share the NICs of the group.
  const CollectiveCost each = price(cluster, kEach, every(32), 1);
  const double of_each = each.latency_s + each.transfer_s;
  EXPECT_NEAR(each.nic_fraction, .75 * kSize * 8 / (of_each * 4 * 20 * kGb), 1e-9);
  EXPECT_NEAR(each.inner_fraction, 31. / 32 * kSize / (of_each * 300 * kGb), 1e-9);
}

TEST(Messages, inside_a_node) {
  expect_cost(message(machine("ampere", 1), 0, 1), 5e-6, kSize / (300 * kGb * .88 * .5), false);
  const Cluster bus = with_inner(machine("ampere", 1), LinkKind::kPcie, false);
  expect_cost(message(bus, 0, 1, 3), 5e-6, kSize / (12 * kGb * .85 * .5 / 3), false);
  Cluster sockets = with_inner(machine("ampere", 1), LinkKind::kPcie, true);
  sockets.parts[0].type.sockets = 2;
  sockets.parts[0].type.bridge = {LinkKind::kQpi, 4 * kGb, 2e-6, true};
  expect_cost(message(sockets, 0, 7, 3), 7e-6, kSize / (4 * kGb * .5 / 3), false);
  expect_cost(message(sockets, 0, 1, 3), 5e-6, kSize / (12 * kGb * .85 * .5), false);
}

TEST(Messages, between_nodes) {
  Cluster cluster = machine("ampere", 16);
  // One leaf: 15 + 1 us, one NIC; six at a time have 80/6 GB/s each.
  expect_cost(message(cluster, 0, 8), 16e-6, kSize / (20 * kGb * .96 * .8), false);
  expect_cost(message(cluster, 0, 8, 6), 16e-6, kSize / (80 * kGb / 6 * .96 * .8), false);
  // Across leaves: 3 us more, twice oversubscribed where the NICs are shared.
  expect_cost(message(cluster, 0, 32, 6), 19e-6, kSize / (80 * kGb / 6 / 2 * .96 * .8), false);
  // To another rail: by a peer, 5 us more.
  cluster.rail_aligned = true;
  const CollectiveCost rail = message(cluster, 0, 9);
  expect_cost(rail, 21e-6, kSize / (20 * kGb * .96 * .8), false);
  EXPECT_NEAR(rail.inner_fraction, 20 * .96 * .8 / 300, 1e-9);
  EXPECT_NEAR(rail.nic_fraction, .96 * .8, 1e-9);
  // No faster than the link inside.
  cluster.parts[0].type.nic.rate = 900 * kGb;
  expect_cost(message(cluster, 0, 8), 16e-6, kSize / (300 * kGb * .88 * .5), false);
}

TEST(Messages, between_unequal_nodes_take_the_slower_nic_and_the_longer_way) {
  Cluster cluster = machine("ampere", 2);
  NodeType slow = cluster.parts[0].type;
  slow.nic = {LinkKind::kNic, 2 * kGb, 40e-6, true};
  cluster.parts.push_back({slow, 2});
  expect_cost(message(cluster, 0, 16), 41e-6, kSize / (2 * kGb * .96 * .8), false);
  expect_cost(message(cluster, 16, 0), 41e-6, kSize / (2 * kGb * .96 * .8), false);
}

TEST(Measured, arrays_take_what_was_measured_and_empty_ones_are_the_latency) {
  Cluster cluster = machine("ampere", 1);
  auto profile = std::make_shared<Profile>();
  profile->families["all_reduce.threads"] = {{"ranks", "bytes"},
                                             {{{8, 1}, 1e-3, 0}, {{8, kSize}, 3e-3, 0}}};
  profile->families["message.threads"] = {{"bytes"}, {{{1}, 2e-4, 0}, {{kSize}, 9e-4, 0}}};
  cluster.profile = profile;
  expect_cost(price(cluster, kReduce, every(8), 1), 1e-3, 2e-3);
  EXPECT_EQ(price(cluster, kReduce, every(8), 1).algorithm, "measured");
}

TEST(Copies, share_unswitched_links_and_disks) {
  Cluster cluster = machine("ampere", 1);
  const Style with = style();
  const auto copy = [&](bool to_disk, bool from_disk) {
    return CollectiveCosts(cluster, with).copy(0, to_disk, from_disk, kBytes);
  };
  expect_cost(copy(false, false), 8e-6, kSize / (25 * kGb * .85), false);
  // Disks that say nothing do 1 GB/s, shared by eight devices.
  expect_cost(copy(true, false), 8e-6, kSize / (1 * kGb / 8), false);
  cluster.parts[0].type.disk_read_rate = 6 * kGb;
  cluster.parts[0].type.disk_write_rate = 3 * kGb;
  expect_cost(copy(true, false), 8e-6, kSize / (3 * kGb / 8), false);
  expect_cost(copy(false, true), 8e-6, kSize / (6 * kGb / 8), false);
  expect_cost(copy(true, true), 8e-6, kSize / (3 * kGb / 8), false);
  cluster.parts[0].type.host.switched = false;
  expect_cost(copy(false, false), 8e-6, kSize / (25 * kGb * .85 / 8), false);
}

}  // namespace
}  // namespace tessera::collective_vectors_test
