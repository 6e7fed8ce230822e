// Tests what traffic costs on machines, the search for where ranks run, and how an order gets to a
// launch. The traffic is made by hand; tests/order takes that of lowered plans.
#include "tessera/network/plan_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tessera/network/apply_order.h"
#include "tessera/network/named_network.h"

namespace tessera::plan_order_test {
namespace {

using testing::ElementsAre;

// Machines with `devices` devices (10 GB/s inside) and one card of 1 GB/s each; machine m is below
// switch rack_of[m], whose uplink has 1 GB/s. No latency.
OrderNetwork network_of(const std::vector<int64_t>& rack_of, int64_t devices) {
  OrderNetwork network;
  const int64_t racks = *std::ranges::max_element(rack_of) + 1;
  for (int64_t r = 0; r < racks; ++r)
    network.switches.push_back({"rack" + std::to_string(r), -1, 1e9, 0});
  for (const int64_t rack : rack_of) {
    OrderMachine machine;
    machine.above = rack;
    machine.card_rate = 1e9;
    machine.devices = devices;
    machine.device_rate = 10e9;
    network.machines.push_back(machine);
  }
  return network;
}

Order same_order(size_t n) {
  Order out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TrafficKind ring_over(std::vector<std::vector<int32_t>> groups, double bytes) {
  TrafficKind kind;
  kind.what = "all_reduce over x";
  for (auto& members : groups) kind.groups.push_back({std::move(members), bytes});
  return kind;
}

double cost_of(TrafficKind kind, const OrderNetwork& network, int64_t ranks, const Order& order) {
  PlanTraffic traffic{ranks, {std::move(kind)}};
  const OrderRoutes routes(network);
  return PlacementCosts(traffic, network, routes, same_order(static_cast<size_t>(ranks)))
      .cost(order);
}

TEST(Placement, a_ring_leaves_each_machine_and_each_switch_once) {
  // 4 machines of 2 devices in 2 racks; all 8 ranks in one ring with 2 GB through each hop.
  const OrderNetwork network = network_of({0, 0, 1, 1}, 2);
  TrafficKind kind = ring_over({{0, 1, 2, 3, 4, 5, 6, 7}}, 2e9);
  // The card (1 GB/s) carries 2 GB, whichever machine is where.
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 1, 2, 3}), 2, 1e-9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 2, 1, 3}), 2, 1e-9);
  // Two groups, one for each pair of neighbouring machines: inside a rack, or across both uplinks.
  kind = ring_over({{0, 1, 2, 3}, {4, 5, 6, 7}}, 2e9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 1, 2, 3}), 2, 1e-9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 2, 1, 3}), 4, 1e-9);
  // Inside a machine only its links count.
  kind = ring_over({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, 2e9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 2, 1, 3}), .2, 1e-9);
}

TEST(Placement, pairs_and_messages_send_directly) {
  const OrderNetwork network = network_of({0, 0, 1, 1}, 1);
  TrafficKind kind = ring_over({{0, 1, 2, 3}}, 1e9);
  kind.shape = FlowShape::kAllPairs;
  // Each rank sends 1 GB to each of 3 others; 2 x 2 GB leave a rack.
  EXPECT_NEAR(cost_of(kind, network, 4, {0, 1, 2, 3}), 4, 1e-9);
  kind = {};
  kind.shape = FlowShape::kMessages;
  kind.messages = {{0, 1, 3e9}, {2, 3, 3e9}};
  EXPECT_NEAR(cost_of(kind, network, 4, {0, 1, 2, 3}), 3, 1e-9);
  // 0 to 2 and 1 to 3 both leave rack 0.
  EXPECT_NEAR(cost_of(kind, network, 4, {0, 2, 1, 3}), 6, 1e-9);
}

// Three stages of two ranks on six machines, two a rack: forward 1 GB from each rank to the next
// stage, backward 1 GB back. All four phases cross racks, and no two of them at the same time.
TEST(Placement, messages_of_other_stages_are_sent_at_other_times) {
  const OrderNetwork network = network_of({0, 0, 1, 1, 2, 2}, 1);
  TrafficKind kind;
  kind.what = "send";
  kind.shape = FlowShape::kMessages;
  kind.phases = {{0, 1, 3}, {1, 2, 3}, {2, 1, 3}, {1, 0, 3}};
  kind.messages = {{0, 2, 1e9, 0}, {1, 3, 1e9, 0}, {2, 4, 1e9, 1}, {3, 5, 1e9, 1},
                   {4, 2, 1e9, 2}, {5, 3, 1e9, 2}, {2, 0, 1e9, 3}, {3, 1, 1e9, 3}};
  // An uplink carries 2 GB in each phase. The middle stage takes in two phases, which add up; what
  // rack 1 sends in them belongs to the other stages.
  EXPECT_NEAR(cost_of(kind, network, 6, {0, 1, 2, 3, 4, 5}), 4, 1e-9);
  // If all were sent at once, rack 1 would send and take 4 GB, and so it is with one phase.
  TrafficKind at_once = kind;
  at_once.phases.clear();
  for (RankFlow& message : at_once.messages) message.phase = 0;
  EXPECT_NEAR(cost_of(at_once, network, 6, {0, 1, 2, 3, 4, 5}), 4, 1e-9);
  // Stages dealt over the racks: an uplink carries 1 GB of a phase, and rack 1 has two phases that
  // leave it.
  EXPECT_NEAR(cost_of(at_once, network, 6, {0, 2, 1, 4, 3, 5}), 2, 1e-9);
  EXPECT_NEAR(cost_of(kind, network, 6, {0, 2, 1, 4, 3, 5}), 2, 1e-9);
}

// Four stages in a row, whose rounds through one uplink would add up if they were sent at once.
TEST(Placement, phases_through_one_uplink_do_not_add_up) {
  // Stage s is the machine s; even machines are in rack 0, odd ones in rack 1.
  const OrderNetwork network = network_of({0, 1, 0, 1}, 1);
  TrafficKind kind;
  kind.shape = FlowShape::kMessages;
  kind.phases = {{0, 1, 1}, {2, 3, 1}};
  kind.messages = {{0, 1, 1e9, 0}, {2, 3, 1e9, 1}};
  EXPECT_NEAR(cost_of(kind, network, 4, {0, 1, 2, 3}), 1, 1e-9);
  kind.phases.clear();
  kind.messages = {{0, 1, 1e9}, {2, 3, 1e9}};
  EXPECT_NEAR(cost_of(kind, network, 4, {0, 1, 2, 3}), 2, 1e-9);
}

TEST(Placement, cards_are_shared_by_devices_and_rounds_take_the_latency_of_the_farthest) {
  OrderNetwork network = network_of({0, 1}, 4);
  for (OrderMachine& machine : network.machines) {
    machine.cards = 2;
    machine.latency_s = 1e-3;
  }
  for (OrderSwitch& one : network.switches) one.uplink_rate = 0;
  // Devices 0 and 1 have the first card, and each of their rings sends 1 GB through it.
  TrafficKind kind = ring_over({{0, 4}, {1, 5}}, 1e9);
  kind.rounds = 10;
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 1}), 2 + 10e-3, 1e-9);
  kind = ring_over({{0, 4}, {2, 6}}, 1e9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 1}), 1, 1e-9);
  // A ring with two members on a machine shares the way out between their cards.
  kind = ring_over({{0, 2, 4, 6}}, 1e9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 1}), .5, 1e-9);
  // All devices of a machine share one link of 10 GB/s.
  for (OrderMachine& machine : network.machines) machine.switched = false;
  kind = ring_over({{0, 1, 2, 3}}, 10e9);
  EXPECT_NEAR(cost_of(kind, network, 8, {0, 1}), 4, 1e-9);
}

TEST(Placement, a_path_carries_what_goes_between_its_ends) {
  OrderNetwork network = network_of({0, 1, 2}, 1);
  network.paths = {{0, 2, .5e9, 5e-3}};
  // The ring goes 0, 1, 2 and back to 0: the last hop takes the path.
  EXPECT_NEAR(cost_of(ring_over({{0, 1, 2}}, 1e9), network, 3, {0, 1, 2}), 2, 1e-9);
  TrafficKind kind = ring_over({{0, 1, 2}}, 1e9);
  kind.shape = FlowShape::kAllPairs;
  EXPECT_NEAR(cost_of(kind, network, 3, {0, 1, 2}), 2, 1e-9);
  kind = {};
  kind.shape = FlowShape::kMessages;
  kind.messages = {{0, 1, 1e9}};
  kind.rounds = 2;
  EXPECT_NEAR(cost_of(kind, network, 3, {0, 1, 2}), 1, 1e-9);
  EXPECT_NEAR(cost_of(kind, network, 3, {0, 2, 1}), 2 + 2 * 5e-3, 1e-9);
}

// Traffic of each shape among 24 ranks.
PlanTraffic mixed_traffic() {
  PlanTraffic traffic{24, {}};
  TrafficKind over_four = ring_over({}, 0), over_six = ring_over({}, 0), sends;
  for (int32_t g = 0; g < 6; ++g)
    over_four.groups.push_back({{g, g + 6, g + 12, g + 18}, 1e9 + 1e7 * g});
  for (int32_t g = 0; g < 4; ++g) {
    over_six.groups.push_back(
        {{6 * g, 6 * g + 1, 6 * g + 2, 6 * g + 3, 6 * g + 4, 6 * g + 5}, 2e8});
  }
  over_six.shape = FlowShape::kAllPairs;
  sends.shape = FlowShape::kMessages;
  sends.phases = {{0, 1, 20}, {1, 2, 20}, {2, 1, 40}};
  for (int32_t r = 0; r < 23; ++r) sends.messages.push_back({r, r + 1, 1e8 * (1 + r % 5), r % 3});
  over_four.rounds = 20;
  sends.rounds = 40;
  traffic.kinds = {over_four, over_six, sends};
  return traffic;
}

TEST(Placement, after_any_swaps_the_cost_is_that_of_the_whole_computation) {
  OrderNetwork network = network_of({0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, 2);
  network.switches.push_back({"a", -1, 5e8, 2e-4});
  network.switches.push_back({"b", -1, 5e8, 3e-4});
  for (size_t r = 0; r < 4; ++r) network.switches[r].above = r < 2 ? 4 : 5;
  network.paths = {{0, 1, 3e8, 1e-3}, {4, 5, 2e8, 4e-3}};
  for (size_t m = 0; m < 12; ++m) {
    network.machines[m].latency_s = 1e-5;
    if (m % 3 == 0) network.machines[m].card_rate = 2e9;
  }
  const PlanTraffic traffic = mixed_traffic();
  const OrderRoutes routes(network);
  const PlacementCosts costs(traffic, network, routes, same_order(24));
  PlacementState state(costs, same_order(12));
  std::mt19937 draw(5);
  for (int turn = 0; turn < 300; ++turn) {
    const auto a = static_cast<int64_t>(draw() % 12), b = static_cast<int64_t>(draw() % 12);
    if (a == b) continue;
    state.swap(a, b);
    ASSERT_NEAR(state.cost(), costs.cost(state.order()), 1e-9 * state.cost());
    ASSERT_GE(state.cost(), costs.bound() * (1 - 1e-12));
  }
}

ResolvedPlan plan_of(const std::vector<std::pair<std::string, int64_t>>& mesh) {
  ResolvedPlan plan;
  plan.plan.mesh = mesh;
  plan.ranks = 1;
  for (const auto& [name, size] : mesh) plan.ranks *= size;
  return plan;
}

// Rings over the first axis of a mesh of two axes with `first` bytes, and over the second with
// `second`.
PlanTraffic traffic_of(int32_t rows, int32_t columns, double first, double second) {
  TrafficKind over_first = ring_over({}, 0), over_second = ring_over({}, 0);
  for (int32_t c = 0; c < columns; ++c) {
    GroupFlow& group = over_first.groups.emplace_back(GroupFlow{{}, first});
    for (int32_t r = 0; r < rows; ++r) group.members.push_back(r * columns + c);
  }
  for (int32_t r = 0; r < rows; ++r) {
    GroupFlow& group = over_second.groups.emplace_back(GroupFlow{{}, second});
    for (int32_t c = 0; c < columns; ++c) group.members.push_back(r * columns + c);
  }
  return {rows * columns, {over_first, over_second}};
}

TEST(FindPlanOrder, the_axis_that_sends_most_goes_inside_machines) {
  const OrderNetwork network = network_of({0, 0, 0, 0}, 4);
  const ResolvedPlan plan = plan_of({{"tp", 4}, {"dp", 4}});
  const PlanTraffic traffic = traffic_of(4, 4, 8e9, 1e9);
  const PlanOrder found = find_plan_order(plan, traffic, network, {}).value();
  EXPECT_FALSE(found.kept);
  EXPECT_THAT(found.device_order.axes, ElementsAre("dp", "tp"));
  EXPECT_EQ(found.machines, same_order(4));
  // As it is, each machine has a member of 4 rings over tp; then it has one of 4 rings over dp.
  EXPECT_NEAR(found.now_seconds, 4 * 8 + .1, 1e-9);
  EXPECT_NEAR(found.seconds, .8 + 4, 1e-9);
  EXPECT_EQ(found.devices[1], 4);  // rank (tp 0, dp 1)
  ASSERT_EQ(found.kinds.size(), 2u);
  EXPECT_EQ(found.kinds[0].bound, "links inside machines");
  EXPECT_EQ(found.kinds[1].bound, "network cards");
}

TEST(FindPlanOrder, machines_of_a_rack_come_together_and_the_program_keeps_its_ranks) {
  // 16 machines dealt to 4 racks in turn; rings over 4 neighbouring machines send the most.
  std::vector<int64_t> racks;
  for (int64_t m = 0; m < 16; ++m) racks.push_back(m % 4);
  const OrderNetwork network = network_of(racks, 1);
  const ResolvedPlan plan = plan_of({{"dp", 4}, {"tp", 4}});
  const PlanTraffic traffic = traffic_of(4, 4, 1e8, 1e9);
  const PlanOrder found = find_plan_order(plan, traffic, network, {}).value();
  EXPECT_FALSE(found.kept);
  EXPECT_NEAR(found.now_seconds, 4 * 1 + .1, 1e-9);
  EXPECT_NEAR(found.seconds, 1 + .4, 1e-9);
  for (int64_t r = 0; r < 4; ++r) {  // the ranks of a ring over tp are in one rack
    for (int64_t t = 1; t < 4; ++t) {
      EXPECT_EQ(racks[static_cast<size_t>(found.devices[static_cast<size_t>(4 * r + t)])],
                racks[static_cast<size_t>(found.devices[static_cast<size_t>(4 * r)])]);
    }
  }
  std::vector<int64_t> sorted = found.devices;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, same_order(16));
  const PlanOrder again = find_plan_order(plan, traffic, network, {}).value();
  EXPECT_EQ(again.devices, found.devices);
  EXPECT_NEAR(plan_order_seconds(plan, traffic, network, found.machines), found.seconds, 1e-9);
}

TEST(FindPlanOrder, with_machines_that_stay_only_axes_are_laid) {
  std::vector<int64_t> racks;
  for (int64_t m = 0; m < 16; ++m) racks.push_back(m % 4);
  PlanOrderSearch search;
  search.machines_stay = true;
  const PlanOrder found = find_plan_order(plan_of({{"dp", 4}, {"tp", 4}}),
                                          traffic_of(4, 4, 1e8, 1e9), network_of(racks, 1), search)
                              .value();
  EXPECT_EQ(found.machines, same_order(16));
  EXPECT_THAT(found.device_order.axes, ElementsAre("tp", "dp"));
  EXPECT_NEAR(found.seconds, 1.4, 1e-9);
}

TEST(FindPlanOrder, an_axis_that_is_larger_than_a_machine_is_cut_into_factors) {
  // Rings over dp send more than those over tp, and only half of dp fits into a machine.
  const OrderNetwork network = network_of({0, 0, 1, 1}, 4);
  const PlanOrder found =
      find_plan_order(plan_of({{"dp", 8}, {"tp", 2}}), traffic_of(8, 2, 1e9, 2e9), network, {})
          .value();
  // dp:4 inside a machine would leave a ring of 2 GB over tp; tp and dp:2 inside leave two of dp.
  double best = std::numeric_limits<double>::infinity();
  for (const LayingTime& laying : found.layings) best = std::min(best, laying.seconds);
  EXPECT_NEAR(found.best_seconds, best, 1e-12);
  EXPECT_GT(found.layings.size(), 3u);
}

TEST(FindPlanOrder, few_machines_are_all_tried) {
  // 6 machines in racks of unequal sizes, whose traffic has no symmetry.
  const OrderNetwork network = network_of({0, 1, 0, 2, 1, 0}, 4);
  PlanTraffic traffic = mixed_traffic();
  const ResolvedPlan plan = plan_of({{"x", 24}});
  PlanOrderSearch search;
  search.least_gain = 0;
  const PlanOrder found = find_plan_order(plan, traffic, network, search).value();
  const OrderRoutes routes(network);
  const PlacementCosts costs(traffic, network, routes, same_order(24));
  double best = std::numeric_limits<double>::infinity();
  Order order = same_order(6);
  do best = std::min(best, costs.cost(order));
  while (std::ranges::next_permutation(order).found);
  EXPECT_NEAR(found.best_seconds, best, 1e-9 * best);
}

TEST(FindPlanOrder, a_small_gain_keeps_the_order_and_too_few_devices_are_one_line) {
  const ResolvedPlan plan = plan_of({{"dp", 4}, {"tp", 4}});
  PlanTraffic traffic = traffic_of(4, 4, 1e9, 1.04e9);
  const OrderNetwork network = network_of({0, 0, 0, 0}, 4);
  const PlanOrder kept =
      find_plan_order(plan_of({{"tp", 4}, {"dp", 4}}), traffic, network, {}).value();
  EXPECT_TRUE(kept.kept);
  EXPECT_TRUE(kept.device_order.empty());
  EXPECT_EQ(kept.devices, same_order(16));
  EXPECT_EQ(find_plan_order(plan, traffic, network_of({0, 0, 0}, 4), {}).error().message,
            "expected a network with the 16 devices of the plan, found 12 on 3 machines");
}

TEST(Launch, the_network_takes_the_order_of_the_processes) {
  NamedNetwork network{"net.toml", network_of({0, 0, 1}, 2), {}, {"a", "b", "c"}, true};
  const NamedNetwork found = network_of_launch(network, {"c.site", "c.site", "a", "a"}).value();
  EXPECT_THAT(found.hosts, ElementsAre("c", "a"));
  EXPECT_EQ(found.network->machines[0].above, 1);
  EXPECT_TRUE(check_processes(found, 4));
  EXPECT_EQ(check_processes(found, 5).error().message,
            "net.toml: expected 4 processes, one for each device, found 5");
  const auto message = [&](const std::vector<std::string>& hosts) {
    return network_of_launch(network, hosts).error().message;
  };
  EXPECT_EQ(message({"a", "a", "d", "d"}),
            "the hosts of the processes: expected hosts of net.toml, found 'd', did you mean 'a'?");
  EXPECT_EQ(message({"a", "b", "a", "b"}),
            "--network: expected processes that are numbered host by host, found process 2 on a "
            "after one on b");
  EXPECT_EQ(message({"a", "b"}),
            "net.toml: expected 2 processes on a, one for each device, found 1");
  network.named = false;
  network.hosts = {"machine0", "machine1", "machine2"};
  EXPECT_THAT(network_of_launch(network, {"x", "x", "x", "x", "x", "x"}).value().hosts,
              ElementsAre("machine0", "machine1", "machine2"));
  EXPECT_THAT(network_of_launch(network, {"x", "x", "y", "y", "z", "z"}).value().hosts,
              ElementsAre("x", "y", "z"));
  EXPECT_EQ(message({"x", "x", "y", "y"}),
            "the hosts of the processes: expected a host for each of the 3 machines of net.toml, "
            "found 2");
}

}  // namespace
}  // namespace tessera::plan_order_test
