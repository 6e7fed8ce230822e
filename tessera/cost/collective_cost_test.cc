// Checks how collectives over nodes are composed, on machines made by hand.
#include "tessera/cost/collective_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tessera/cluster/profile.h"
#include "tessera/cost/collective_curves.h"

namespace tessera::collective_cost_test {
namespace {

constexpr int64_t kMebi = 1024 * 1024, kGibi = 1024 * kMebi;
constexpr auto kAll = CollectiveKind::kAllReduce;
constexpr auto kGather = CollectiveKind::kAllGather;
constexpr auto kEach = CollectiveKind::kAllToAll;

NodeType node(Generation generation, double nvlink, int64_t nics, double nic) {
  NodeType type;
  type.name = "node";
  type.device.generation = generation;
  type.device.units = 108;
  type.devices = 8;
  type.inner = {LinkKind::kNvlink, nvlink, 5e-6, true};
  type.nics = nics;
  type.nic = {LinkKind::kNic, nic, 12e-6, true};
  type.host = {LinkKind::kHost, 25e9, 0, true};
  return type;
}
Cluster of(NodeType type, int64_t nodes) {
  Cluster cluster;
  cluster.name = "by hand";
  cluster.parts = {{std::move(type), nodes}};
  return cluster;
}
Cluster dgx_a100(int64_t nodes) {
  return of(node(Generation::named("ampere"), 300e9, 8, 25e9), nodes);
}
Cluster dgx_h100(int64_t nodes) {
  return of(node(Generation::named("hopper"), 450e9, 8, 50e9), nodes);
}

std::vector<int64_t> every(int64_t count, int64_t stride = 1, int64_t first = 0) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + i * stride);
  return out;
}

struct Priced {
  Cluster cluster;
  Style style = {};
  CollectiveCost group(CollectiveKind kind, const std::vector<int64_t>& devices, int64_t groups,
                       int64_t bytes) const {
    return CollectiveCosts(cluster, style)
        .collective(kind, place_group(cluster, devices, groups), bytes);
  }
  CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share = 1) const {
    return CollectiveCosts(cluster, style).message(from, to, bytes, share);
  }
};

TEST(Place, members_nodes_and_tiers) {
  Cluster cluster = dgx_a100(16);
  cluster.tiers = {{4, 2, 1e-6}, {0, 1, 1e-6}};
  const GroupPlacement inside = place_group(cluster, every(8), 1);
  EXPECT_EQ(inside.nodes, 1);
  EXPECT_EQ(inside.members_a_node, 8);
  EXPECT_EQ(inside.fabric_s, 0);
  const GroupPlacement leaf = place_group(cluster, every(4, 8), 8);
  EXPECT_EQ(leaf.nodes, 4);
  EXPECT_EQ(leaf.members_a_node, 1);
  EXPECT_EQ(leaf.groups_a_node, 8);
  EXPECT_EQ(leaf.fabric_s, 1e-6);
  EXPECT_EQ(leaf.uplink_rate, 0);
  const GroupPlacement dense = place_group(cluster, every(16, 8), 8);
  EXPECT_EQ(dense.fabric_s, 2e-6);
  EXPECT_EQ(dense.nodes_below, 4);
  EXPECT_EQ(dense.nodes_an_uplink, 4);
  EXPECT_EQ(dense.uplink_rate, 4 * 8 * cluster.parts[0].type.nic.rate / 2);
  const GroupPlacement wide = place_group(cluster, every(4, 32), 8);  // one node a leaf switch
  EXPECT_EQ(wide.nodes_below, 1);
  EXPECT_EQ(wide.nodes_an_uplink, 4);
  // Only the nodes at work share the way up.
  std::vector<bool> at_work(16, false);
  for (size_t node = 0; node < 16; node += 4) at_work[node] = at_work[node + 1] = true;
  EXPECT_EQ(place_group(cluster, every(4, 32), 8, &at_work).nodes_an_uplink, 2);
}

// Two racks of four nodes, and a site of two nodes behind a slow line.
Cluster racks_and_site() {
  Cluster cluster = dgx_a100(10);
  cluster.switches = {{"rack0", {0, 1, 2, 3}, 3, 40e9, 0, 1e-6},
                      {"rack1", {4, 5, 6, 7}, 3, 20e9, 0, 2e-6},
                      {"far", {8, 9}, -1, 1e9, 0, 3e-6},
                      {"near", {}, -1, 0, 0, 5e-6}};
  return cluster;
}

TEST(Place, switches_that_differ) {
  const Cluster cluster = racks_and_site();
  const GroupPlacement leaf = place_group(cluster, every(4, 8), 8);
  EXPECT_EQ(leaf.fabric_s, 1e-6);
  EXPECT_EQ(leaf.uplink_rate, 0);
  // Up through one rack, through `near`, and down through the other rack.
  const GroupPlacement racks = place_group(cluster, every(8, 8), 8);
  EXPECT_DOUBLE_EQ(racks.fabric_s, 1e-6 + 5e-6 + 2e-6);
  EXPECT_EQ(racks.uplink_rate, 20e9);  // that of the slower rack
  EXPECT_EQ(racks.nodes_below, 4);
  EXPECT_EQ(racks.nodes_an_uplink, 4);
  const GroupPlacement sites = place_group(cluster, every(10, 8), 8);
  EXPECT_DOUBLE_EQ(sites.fabric_s, 2e-6 + 5e-6 + 3e-6);
  EXPECT_EQ(sites.uplink_rate, 1e9);
  EXPECT_EQ(sites.nodes_an_uplink, 2);
}

TEST(Place, a_line_between_two_switches_replaces_what_is_above) {
  Cluster cluster = racks_and_site();
  cluster.switches[2].uplink_rate = 0;
  cluster.paths = {{3, 2, 2e9, 67e-3}};
  const GroupPlacement sites = place_group(cluster, {0, 64}, 1);
  EXPECT_DOUBLE_EQ(sites.fabric_s, 67e-3 + 1e-6 + 5e-6 + 3e-6);
  EXPECT_EQ(sites.uplink_rate, 2e9);
  EXPECT_EQ(sites.nodes_an_uplink, 2);  // of the site with fewer nodes
}

TEST(Message, a_line_that_others_do_not_use_is_used_whole) {
  const Cluster cluster = racks_and_site();
  std::vector<bool> at_work(10, false);
  at_work[3] = true;
  const Style style;
  const CollectiveCosts costs(cluster, style);
  const GroupPlacement alone = place_group(cluster, {24, 64}, 1, &at_work);
  EXPECT_EQ(alone.uplink_rate, 1e9);
  EXPECT_NEAR(costs.message(24, 64, alone, kGibi).transfer_s, kGibi / (1e9 * .96), 1e-6);
  at_work[8] = at_work[9] = true;
  const GroupPlacement back = place_group(cluster, {64, 24}, 1, &at_work);
  EXPECT_NEAR(costs.message(64, 24, back, kGibi).transfer_s, 2 * kGibi / (1e9 * .96), 1e-6);
}

TEST(Place, equal_positions_are_equal_whoever_the_members_are) {
  const Cluster cluster = dgx_a100(4);
  EXPECT_EQ(place_group(cluster, every(4, 8, 0), 8), place_group(cluster, every(4, 8, 5), 8));
  EXPECT_EQ(place_group(cluster, every(2, 1, 0), 4), place_group(cluster, every(2, 1, 30), 4));
}

TEST(Place, the_slowest_part_of_the_group_counts) {
  Cluster cluster = dgx_h100(2);
  cluster.parts.push_back({node(Generation::named("ampere"), 300e9, 1, 3e9), 2});
  EXPECT_EQ(place_group(cluster, every(2, 8), 8).device, 0);
  EXPECT_EQ(place_group(cluster, every(4, 8), 8).device, 16);
  EXPECT_EQ(place_group(cluster, every(2, 8, 16), 8).device, 16);
}

TEST(Inside, measured_curve_with_the_tuners_name) {
  const Priced a100{dgx_a100(1)};
  const CollectiveCost cost = a100.group(kAll, every(8), 1, kGibi);
  EXPECT_NEAR(cost.seconds() * 1e6, 8357, 1);
  EXPECT_EQ(cost.algorithm, "ring/simple");
  EXPECT_EQ(cost.source, CostSource::kCurve);
  EXPECT_NEAR(cost.inner_fraction, 227. / 300, .01);
  EXPECT_EQ(cost.nic_fraction, 0);
  const Priced h100{dgx_h100(1)};
  EXPECT_EQ(h100.group(kAll, every(8), 1, 64 * kMebi).algorithm, "nvls/simple");
  EXPECT_NE(h100.group(kAll, every(4), 2, 64 * kMebi).algorithm, "nvls/simple");
}

TEST(Inside, groups_of_one_node_do_not_meet_on_a_switch) {
  const Priced a100{dgx_a100(1)};
  EXPECT_EQ(a100.group(kAll, every(4), 1, kGibi).seconds(),
            a100.group(kAll, every(4), 2, kGibi).seconds());
}

TEST(Inside, devices_of_an_unswitched_bus_share_it) {
  NodeType type = node(Generation::named("turing"), 12e9, 1, 3.1e9);
  type.inner = {LinkKind::kPcie, 12e9, 0, false};
  const Priced box{of(type, 1)};
  const double pair = box.group(kAll, every(2), 1, kGibi).transfer_s,
               two_pairs = box.group(kAll, every(2), 2, kGibi).transfer_s;
  EXPECT_NEAR(pair, 1. * kGibi / 6e9, .01 * pair);
  EXPECT_NEAR(two_pairs, 2 * pair, 1e-9);
  type.inner.switched = true;  // A100 PCIe, 8 devices: half of the rate
  const Priced switched{of(type, 1)};
  const double eight = switched.group(kAll, every(8), 1, kGibi).transfer_s;
  EXPECT_NEAR(eight, 1.75 * kGibi / 6e9, .01 * eight);
}

TEST(Inside, sockets_share_their_bridge) {
  NodeType type = node(Generation::named("ampere"), 25e9, 1, 25e9);
  type.inner.kind = LinkKind::kPcie;
  type.sockets = 2;
  type.bridge = {LinkKind::kQpi, 8e9, 2e-6, true};
  const Priced box{of(type, 1)};
  EXPECT_EQ(place_group(box.cluster, every(4), 2).sockets, 1);
  EXPECT_EQ(place_group(box.cluster, every(4, 2), 2).sockets, 2);
  const double near = box.group(kAll, every(4), 2, kGibi).transfer_s,
               across = box.group(kAll, every(4, 2), 2, kGibi).transfer_s;
  EXPECT_NEAR(near, 1.5 * kGibi / 12.5e9, .01 * near);
  EXPECT_NEAR(across, 1.5 * kGibi / 4e9, .01 * across);
  EXPECT_NEAR(box.group(kEach, every(8), 1, kGibi).transfer_s, 2. * kGibi / 8e9, 1e-6);
  EXPECT_NEAR(box.message(0, 7, kGibi).transfer_s, kGibi / 8e9, 1e-6);
  EXPECT_NEAR(box.message(0, 7, kGibi).latency_s, 7e-6, 1e-12);
}

TEST(Nodes, the_flat_ring_is_bound_by_the_nics_of_the_node) {
  const CollectiveCost cost = Priced{dgx_h100(4)}.group(kAll, every(32), 1, 8 * kGibi);
  // 2 (n-1)/n S; 8 NICs would do 384 GB/s, the rings inside the nodes 18 * 20.6.
  EXPECT_NEAR(cost.transfer_s, 2 * 31. / 32 * 8 * kGibi / 370.8e9, 1e-9);
  EXPECT_EQ(cost.algorithm, "ring/simple");
  EXPECT_EQ(cost.source, CostSource::kConstant);
  EXPECT_NEAR(cost.nic_fraction, 370.8 / 400, .01);
}

TEST(Nodes, eight_groups_of_one_member_a_node_have_a_nic_each) {
  const Priced a100{dgx_a100(16)};
  const double one = a100.group(kAll, every(16, 8), 1, 4 * kGibi).transfer_s,
               eight = a100.group(kAll, every(16, 8), 8, 4 * kGibi).transfer_s;
  EXPECT_NEAR(one, eight, 1e-9);
  EXPECT_NEAR(eight, 2 * 15. / 16 * 4 * kGibi / (25e9 * .96), .02 * eight);
}

TEST(Nodes, with_fewer_nics_than_groups_they_share) {
  // p4d: four NICs of 100 Gb/s for eight devices; p3.16xlarge: 25 Gb/s for all eight.
  const Priced p4d{of(node(Generation::named("ampere"), 300e9, 4, 12.5e9), 4)};
  const double alone = p4d.group(kAll, every(4, 8), 1, 4 * kGibi).transfer_s,
               beside = p4d.group(kAll, every(4, 8), 8, 4 * kGibi).transfer_s;
  EXPECT_NEAR(beside, 2 * alone, .02 * beside);
  const Priced p3{of(node(Generation::named("volta"), 150e9, 1, 3.125e9), 4)};
  const double eight = p3.group(kAll, every(4, 8), 8, kGibi).transfer_s;
  EXPECT_NEAR(eight, 1.5 * kGibi / (3.125e9 * .96 / 8), .02 * eight);
  const double flat = p3.group(kAll, every(32), 1, kGibi).transfer_s;
  EXPECT_NEAR(flat, 2 * 31. / 32 * kGibi / (3.125e9 * .96), .05 * flat);
}

TEST(Nodes, small_arrays_take_a_tree) {
  EXPECT_EQ(Priced{dgx_a100(16)}.group(kAll, every(128), 1, 4096).algorithm, "tree/ll");
}

TEST(Nodes, distant_links_count_in_every_hop) {
  Cluster near = of(node(Generation::named("turing"), 50e9, 1, 1e9), 4), far = near;
  far.parts[0].type.nic.latency_s = 50e-3;
  const double slow = Priced{far}.group(kAll, every(4, 8), 1, 1024).seconds();
  EXPECT_GT(slow, .1);  // a tree up and down
  EXPECT_LT(Priced{near}.group(kAll, every(4, 8), 1, 1024).seconds(), 1e-3);
  EXPECT_NEAR(Priced{far}.message(0, 8, 1024).seconds(), 50e-3, 1e-3);
}

TEST(Nodes, oversubscription_slows_rings_whose_edges_all_cross) {
  Cluster cluster = dgx_a100(16);
  cluster.tiers = {{4, 4, 0}, {0, 1, 0}};
  const Priced thin{cluster};
  cluster.tiers[0].oversubscription = 1;
  const Priced full{cluster};
  // Four neighbours below each switch: one edge in four goes up, a quarter of the rate is enough.
  EXPECT_NEAR(thin.group(kAll, every(16, 8), 8, kGibi).transfer_s,
              full.group(kAll, every(16, 8), 8, kGibi).transfer_s, 1e-12);
  // One node a switch: every edge goes up.
  EXPECT_NEAR(thin.group(kAll, every(4, 32), 8, kGibi).transfer_s,
              4 * full.group(kAll, every(4, 32), 8, kGibi).transfer_s, .01);
}

TEST(AllToAll, nics_and_nvlink_work_beside_each_other) {
  const Priced h100{dgx_h100(4)};
  const CollectiveCost cost = h100.group(kEach, every(32), 1, kGibi);
  // Off the node: 3/4 of the bytes, 50 GB/s a device at 89 % (four nodes); inside is quicker.
  EXPECT_NEAR(cost.transfer_s, .75 * kGibi / (50e9 * .89), 1e-6);
  EXPECT_NEAR(cost.latency_s * 1e6, 42, 1e-6);
  EXPECT_EQ(cost.algorithm, "direct");
  Cluster fast = dgx_h100(2);
  fast.parts[0].type.nic.rate = 5e12;
  const double inside = Priced{fast}.group(kEach, every(16), 1, kGibi).transfer_s;
  EXPECT_NEAR(inside, 7. / 16 * kGibi / 370.8e9, 1e-6);
  fast.rail_aligned = true;  // what goes to another rail takes NVLink first
  EXPECT_NEAR(Priced{fast}.group(kEach, every(16), 1, kGibi).transfer_s,
              (7. / 16 + .5 * 7 / 8) * kGibi / 370.8e9, 1e-6);
}

TEST(AllToAll, oversubscribed_switches_slow_what_crosses_them) {
  Cluster cluster = dgx_h100(4);
  cluster.tiers = {{2, 8, 0}, {0, 1, 0}};
  const double thin = Priced{cluster}.group(kEach, every(32), 1, kGibi).transfer_s;
  EXPECT_NEAR(thin, .5 * kGibi * 8 / (50e9 * .96), 1e-6);
}

TEST(Message, inside_and_between_nodes) {
  const Priced h100{dgx_h100(2)};
  EXPECT_NEAR(h100.message(0, 1, kGibi).transfer_s, kGibi / 396e9, 1e-6);
  EXPECT_NEAR(h100.message(0, 8, kGibi).transfer_s, kGibi / 48e9, 1e-6);
  EXPECT_NEAR(h100.message(0, 8, kGibi, 8).transfer_s, kGibi / 48e9, 1e-6);  // a NIC each
  EXPECT_NEAR(h100.message(0, 8, kGibi, 16).transfer_s, 2 * kGibi / 48e9, 1e-6);
  EXPECT_EQ(h100.message(3, 3, kGibi).seconds(), 0);
  const Priced p3{of(node(Generation::named("volta"), 150e9, 1, 3.125e9), 2)};
  EXPECT_NEAR(p3.message(0, 8, kGibi, 8).transfer_s, 8 * kGibi / 3e9, 1e-3);
}

TEST(Message, to_another_rail_goes_by_a_peer) {
  Cluster cluster = dgx_h100(2);
  const double direct = Priced{cluster}.message(0, 9, kMebi).latency_s;
  cluster.rail_aligned = true;
  EXPECT_GT(Priced{cluster}.message(0, 9, kMebi).latency_s, direct);
  EXPECT_EQ(Priced{cluster}.message(0, 8, kMebi).latency_s, direct);
}

TEST(Copy, host_link_and_shared_disk) {
  Cluster cluster = dgx_a100(1);
  cluster.parts[0].type.disk_read_rate = 8e9;
  cluster.parts[0].type.disk_write_rate = 4e9;
  const Style style;
  const CollectiveCosts costs(cluster, style);
  EXPECT_NEAR(costs.copy(0, false, false, kGibi).transfer_s, kGibi / 20e9, 1e-9);
  EXPECT_NEAR(costs.copy(0, false, true, kGibi).transfer_s, kGibi / 1e9, 1e-9);
  EXPECT_NEAR(costs.copy(0, true, false, kGibi).transfer_s, kGibi / .5e9, 1e-9);
}

TEST(Profile_, measured_tables_come_first) {
  Priced priced{dgx_a100(1)};
  auto profile = std::make_shared<Profile>();
  profile->families["all_reduce.threads"] = {{"ranks", "bytes"},
                                             {{{8, 1024}, 1e-3, 0}, {{8, 4096}, 3e-3, 0}}};
  priced.cluster.profile = profile;
  const CollectiveCost cost = priced.group(kAll, every(8), 1, 4096);
  EXPECT_DOUBLE_EQ(cost.seconds(), 3e-3);
  EXPECT_DOUBLE_EQ(cost.latency_s, 1e-3);
  EXPECT_EQ(cost.algorithm, "measured");
  EXPECT_EQ(cost.source, CostSource::kMeasured);
  EXPECT_EQ(priced.group(kGather, every(8), 1, 4096).source, CostSource::kCurve);
}

TEST(Style_, efficiencies_scale_the_transfers) {
  Priced priced{dgx_a100(2)};
  const double inside = priced.group(kAll, every(8), 1, kGibi).transfer_s,
               across = priced.group(kAll, every(2, 8), 8, kGibi).transfer_s;
  priced.style.inner_efficiency = .5;
  priced.style.network_efficiency = .5;
  EXPECT_NEAR(priced.group(kAll, every(8), 1, kGibi).transfer_s, 2 * inside, 1e-12);
  EXPECT_NEAR(priced.group(kAll, every(2, 8), 8, kGibi).transfer_s, 2 * across, .01 * across);
}

// ---- exchanges with a known load
CollectiveCost exchange(const Cluster& cluster, const std::vector<int64_t>& devices, int64_t bytes,
                        const ExchangeLoad& load) {
  return CollectiveCosts(cluster, {})
      .collective(CollectiveKind::kExchange, place_group(cluster, devices, 1), bytes, load);
}

// Here all members send equally much to all others.
TEST(Exchange, in_which_all_send_alike_costs_what_an_all_to_all_costs) {
  for (const int64_t k : {1, 2, 4, 8}) {
    for (const int64_t nodes : {2, 4, 8}) {
      std::vector<int64_t> devices;
      for (int64_t n = 0; n < nodes; ++n) {
        for (int64_t i = 0; i < k; ++i) devices.push_back(8 * n + i);
      }
      const int64_t each = kMebi, bytes = each * k * nodes, away = each * k * (nodes - 1);
      const ExchangeLoad load{each * (k - 1), away, away * k, nodes - 1, k * (nodes - 1)};
      const Cluster cluster = dgx_a100(8);
      EXPECT_NEAR(exchange(cluster, devices, bytes, load).seconds(),
                  CollectiveCosts(cluster, {})
                      .collective(kEach, place_group(cluster, devices, 1), bytes)
                      .seconds(),
                  k == 8 ? 1e-12 : 1e-4)  // with fewer peers it starts sooner
          << k << " of " << nodes;
    }
  }
}

// In a halo exchange of 4 members a node on two cards, one or two members have neighbours in other
// nodes, a card each.
TEST(Exchange, with_neighbours_uses_the_cards_of_those_at_the_borders) {
  NodeType type = node(Generation::named("volta"), 75e9, 2, 12.5e9);
  type.devices = 4;
  const Cluster cluster = of(type, 4);
  constexpr int64_t kFace = 64 * kMebi;
  const int64_t busiest = 2 * kFace * 16 / 15;
  const CollectiveCost halo =
      exchange(cluster, every(16), busiest, {2 * kFace, kFace, 2 * kFace, 2, 1});
  const double card = 12.5e9 * (1 - .44 / 3);  // reaches two nodes
  EXPECT_NEAR(halo.transfer_s, kFace / card, .01 * kFace / card);
  EXPECT_LT(halo.seconds(), .4 * exchange(cluster, every(16), busiest, {}).seconds());
  // Here members send more to their own node than to others: the links inside decide.
  const CollectiveCost inner =
      exchange(cluster, every(16), busiest, {64 * kFace, kFace, kFace, 1, 1});
  const double links = .8 * 75e9;  // what collectives reach of a V100's
  EXPECT_NEAR(inner.transfer_s, 64. * kFace / links, .01 * inner.transfer_s);
}

// The node in the middle of a cube of 27 exchanges its faces, edges and corners with all others
// (docs/theory/simulation.md section 3). Both ways send as many bytes, but where corners travel by
// way of neighbours three exchanges follow one another.
TEST(Exchange, of_corners_is_sooner_over_directly_than_dim_by_dim) {
  const Cluster cluster = dgx_a100(27);
  const auto starts = [&](int64_t nodes, int64_t peers) {
    return exchange(cluster, every(27, 8), kMebi, {0, kMebi, kMebi, nodes, peers}).latency_s;
  };
  EXPECT_NEAR(starts(2, 2), 37e-6, 1e-9);
  EXPECT_NEAR(starts(8, 8), 37e-6, 1e-9);
  EXPECT_NEAR(starts(26, 26), 47e-6, 1e-6);
  EXPECT_LT(starts(26, 26), 2 * starts(2, 2));
}

TEST(Exchange, that_stays_in_nodes_costs_what_it_costs_in_one) {
  const Cluster cluster = dgx_a100(2);
  constexpr int64_t kEdge = 7 * kMebi;
  EXPECT_NEAR(exchange(cluster, every(16), kEdge * 16 / 15, {kEdge, 0, 0, 0, 0}).seconds(),
              exchange(cluster, every(8), kEdge * 8 / 7, {}).seconds(), 1e-9);
}

TEST(Trivial, groups_of_one_and_no_bytes_are_free) {
  const Priced a100{dgx_a100(1)};
  EXPECT_EQ(a100.group(kAll, every(1), 1, kGibi).seconds(), 0);
  EXPECT_EQ(a100.group(kAll, every(8), 1, 0).seconds(), 0);
}

// ---- properties
const std::vector<CollectiveKind> kKinds = {kAll,
                                            kGather,
                                            CollectiveKind::kReduceScatter,
                                            kEach,
                                            CollectiveKind::kBroadcast,
                                            CollectiveKind::kReduce,
                                            CollectiveKind::kPermute,
                                            CollectiveKind::kExchange};

std::vector<Cluster> machines() {
  std::vector<Cluster> out;
  for (const auto generation :
       {Generation::named("volta"), Generation::named("turing"), Generation::named("ampere"),
        Generation::named("hopper"), Generation::named("blackwell"), Generation::named("cpu")}) {
    NodeType type = node(generation, 200e9, 4, 10e9);
    if (generation == Generation::named("turing")) type.inner = {LinkKind::kPcie, 12e9, 1e-6, true};
    if (generation == Generation::named("cpu")) type.inner = {LinkKind::kMemory, 10e9, 1e-6, false};
    out.push_back(of(type, 8));
    out.back().tiers = {{2, 2, 1e-6}, {0, 1, 1e-6}};
  }
  return out;
}

struct Shape {
  std::vector<int64_t> devices;
  int64_t groups;
};
const std::vector<Shape> kShapes = {{every(2), 4},    {every(8), 1},  {every(2, 8), 8},
                                    {every(8, 8), 8}, {every(64), 1}, {every(16, 4), 4},
                                    {every(5), 1},    {every(12), 1}, {every(4, 16), 8}};

TEST(Property, more_bytes_are_never_faster) {
  for (const Cluster& cluster : machines()) {
    const Priced priced{cluster};
    for (const CollectiveKind kind : kKinds) {
      for (const Shape& shape : kShapes) {
        double last = 0;
        for (double bytes = 64; bytes < 1e11; bytes *= 1.3) {
          const double now =
              priced.group(kind, shape.devices, shape.groups, std::llround(bytes)).seconds();
          ASSERT_GE(now, last * (1 - 1e-12))
              << collective_name(kind) << " " << bytes << " " << shape.devices.size();
          last = now;
        }
      }
    }
  }
}

TEST(Property, more_bandwidth_is_never_slower) {
  for (const Cluster& base : machines()) {
    for (const CollectiveKind kind : kKinds) {
      for (const Shape& shape : kShapes) {
        for (const int64_t bytes : {int64_t{4096}, 3 * kMebi, kGibi}) {
          double last_inner = 1e99, last_nic = 1e99;
          for (double factor = .1; factor < 30; factor *= 1.37) {
            Priced inner{base}, nic{base};
            inner.cluster.parts[0].type.inner.rate *= factor;
            nic.cluster.parts[0].type.nic.rate *= factor;
            const double a = inner.group(kind, shape.devices, shape.groups, bytes).seconds(),
                         b = nic.group(kind, shape.devices, shape.groups, bytes).seconds();
            ASSERT_LE(a, last_inner * (1 + 1e-12)) << collective_name(kind) << " " << factor;
            ASSERT_LE(b, last_nic * (1 + 1e-12)) << collective_name(kind) << " " << factor;
            last_inner = a;
            last_nic = b;
          }
        }
      }
    }
  }
}

TEST(Property, more_groups_on_a_node_are_never_faster) {
  for (const Cluster& cluster : machines()) {
    for (const CollectiveKind kind : kKinds) {
      double last = 0;
      for (int64_t groups = 1; groups <= 8; ++groups) {
        const double now = Priced{cluster}.group(kind, every(8, 8), groups, kGibi).seconds();
        EXPECT_GE(now, last) << collective_name(kind);
        last = now;
      }
    }
  }
}

TEST(Property, a_price_never_beats_the_volume_over_the_links) {
  for (const Cluster& cluster : machines()) {
    const NodeType& type = cluster.parts[0].type;
    for (const CollectiveKind kind : {kAll, kGather, kEach}) {
      for (const Shape& shape : kShapes) {
        const GroupPlacement where = place_group(cluster, shape.devices, shape.groups);
        const double volume = collective_volume(kind, where.members, kGibi);
        const CollectiveCost cost = Priced{cluster}.group(kind, shape.devices, shape.groups, kGibi);
        if (where.nodes == 1) {
          // The switch sums: a member sends its array once, not 2 (n-1)/n times.
          const bool sums = type.device.generation == Generation::named("hopper") ||
                            type.device.generation == Generation::named("blackwell");
          EXPECT_GE(cost.seconds(),
                    (sums ? std::min(volume, 1. * kGibi) : volume) / type.inner.rate);
        } else {
          const auto nodes = static_cast<double>(where.nodes);
          const double out = (nodes - 1) / nodes * kGibi * (kind == kAll ? 2 : 1);
          EXPECT_GE(cost.seconds(), out / (static_cast<double>(type.nics) * type.nic.rate));
        }
      }
    }
  }
}

// For devices of other makers nothing is measured: 80 % of nominal rates, a step a member and a
// node.
TEST(Other, rings_and_hierarchies_at_the_links_rates) {
  NodeType type = node(Generation::named("other"), 100e9, 8, 25e9);
  type.inner.kind = LinkKind::kDirect;
  const Priced one{of(type, 1)}, four{of(type, 4)};
  const auto bytes = static_cast<double>(kGibi);
  const CollectiveCost inside = one.group(kAll, every(8), 1, kGibi);
  EXPECT_EQ(inside.algorithm, "ring");
  EXPECT_NEAR(inside.latency_s, 14 * 5e-6, 1e-12);
  EXPECT_NEAR(inside.transfer_s, 1.75 * bytes / 80e9, 1e-9);
  // Eight NICs of 25 GB/s are more than the devices' links: these are the limit.
  const CollectiveCost gather = four.group(kGather, every(32), 1, kGibi);
  EXPECT_EQ(gather.algorithm, "hierarchical");
  EXPECT_NEAR(gather.latency_s, 7 * 5e-6 + 3 * 12e-6, 1e-12);
  EXPECT_NEAR(gather.transfer_s, 31. / 32 * bytes / 80e9, 1e-9);
  // One member a node: one NIC; all-reduces over four nodes by a tree of two levels.
  const CollectiveCost across = four.group(kAll, every(4, 8), 8, kGibi);
  EXPECT_NEAR(across.latency_s, 2 * 2 * 12e-6, 1e-12);
  EXPECT_NEAR(across.transfer_s, 1.5 * bytes / 20e9, 1e-9);
  EXPECT_GT(across.uncertainty, .25);
  EXPECT_EQ(across.units, 0);
}

// Between nodes an exchange costs as on every generation; inside a node it is the bytes of a member
// over its links.
TEST(Other, exchanges_and_messages_use_the_links) {
  NodeType type = node(Generation::named("other"), 100e9, 8, 25e9);
  type.inner.kind = LinkKind::kDirect;
  const Priced one{of(type, 1)}, two{of(type, 2)};
  const auto bytes = static_cast<double>(kGibi);
  EXPECT_NEAR(one.group(kEach, every(8), 1, kGibi).transfer_s, 7. / 8 * bytes / 80e9, 1e-9);
  EXPECT_GT(two.group(kEach, every(16), 1, kGibi).transfer_s, .5 * bytes / 25e9);
  EXPECT_NEAR(one.message(0, 1, kGibi).transfer_s, bytes / 88e9, 1e-9);
}

}  // namespace
}  // namespace tessera::collective_cost_test
