// Tests that the traffic of a plan has the bytes that its programs send, and that orders of lowered
// plans keep programs and ranks as they are.
#include "tessera/network/plan_traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/compile/compile.h"
#include "tessera/network/apply_order.h"
#include "tessera/network/plan_order.h"
#include "tessera/plan/load.h"

namespace tessera {
namespace {

const std::string kModel = "gpt:layers=4,hidden=64,heads=8,seq=32,vocab=128";

Compiled compiled(const std::string& plan, const std::string& model = kModel) {
  return compile({model, plan, 0}).value();
}

// By kind of transfer: the bytes that all ranks send in a step, as the programs count them.
std::map<std::string, int64_t> counted(const Compiled& plan) {
  std::map<std::string, int64_t> out;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const Program program = plan.lowering->lower(rank, false).value();
    for (const auto& [kind, traffic] : volume(program, plan.graph()).by_kind)
      out[kind] += traffic.bytes;
  }
  return out;
}

std::map<std::string, int64_t> in_traffic(const PlanTraffic& traffic) {
  std::map<std::string, int64_t> out;
  for (const TrafficKind& kind : traffic.kinds)
    out[kind.what.substr(0, kind.what.find(' '))] += std::llround(kind.bytes());
  return out;
}

TEST(PlanTraffic, has_the_bytes_that_the_programs_send) {
  for (const char* plan :
       {"data_parallel(4)", "megatron(tp=2,pp=2,dp=2,micro_batches=4)", "zero(stage=3,dp=4)",
        "megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=2)", "ulysses(4)", "ring_attention(4)",
        "pipeline(4,schedule=\"1f1b\",micro_batches=4)"}) {
    const Compiled made = compiled(plan);
    EXPECT_EQ(in_traffic(plan_traffic(*made.lowering).value()), counted(made)) << plan;
  }
}

TEST(PlanTraffic, each_group_of_an_axis_is_there_once) {
  const Compiled made = compiled("megatron(tp=2,pp=2,dp=2,micro_batches=4)");
  const PlanTraffic traffic = plan_traffic(*made.lowering).value();
  std::map<std::string, size_t> groups;
  for (const TrafficKind& kind : traffic.kinds) groups[kind.what] += kind.groups.size();
  EXPECT_EQ(groups["all_reduce over tp"], 4u);
  EXPECT_TRUE(std::ranges::is_sorted(traffic.kinds, std::greater<>(), &TrafficKind::bytes));
}

Cluster two_racks() {
  Cluster cluster = load_cluster("dgx-a100:4").value();
  cluster.tiers.clear();
  cluster.rail_aligned = false;
  cluster.parts[0].type.devices = 1;
  cluster.parts[0].type.nics = 1;
  const double rate = cluster.parts[0].type.nic.rate;
  cluster.switches = {{"a", {0, 2}, -1, rate / 4, 0, 1e-5}, {"b", {1, 3}, -1, rate / 4, 0, 1e-5}};
  return cluster;
}

TEST(PlanInOrder, only_the_devices_of_ranks_change) {
  const NamedNetwork network{
      "net.toml", order_network(two_racks()), {}, {"a", "b", "c", "d"}, true};
  const Compiled made = compiled("megatron(tp=2,dp=2)");
  const OrderedPlan ordered = plan_in_order(*made.lowering, network).value();
  ASSERT_TRUE(ordered.changed);
  EXPECT_LT(ordered.found_s, 0.95 * ordered.now_s);
  const Compiled again = compiled(ordered_plan_text(ordered, "megatron(tp=2,dp=2)", "net.toml"));
  EXPECT_EQ(plan_label(ordered_plan_text(ordered, "megatron(tp=2,dp=2)", "net.toml")),
            "megatron(tp=2,dp=2), ordered for net.toml");
  // The ranks of a tensor parallel group, 0 and 1, are in one rack: on devices 0 and 2, or 1 and 3.
  EXPECT_EQ(again.plan().devices.device_of(0) % 2, again.plan().devices.device_of(1) % 2);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(again.lowering->lower(rank).value(), made.lowering->lower(rank).value());
  }
}

TEST(PlanInOrder, what_it_cannot_do_is_one_line) {
  const Compiled made = compiled("data_parallel(8)");
  NamedNetwork network{"net.toml", order_network(two_racks()), {}, {"a", "b", "c", "d"}, true};
  EXPECT_EQ(plan_in_order(*made.lowering, network).error().message,
            "net.toml: expected a network with the 8 devices of the plan, found 4 on 4 machines");
  network.network.reset();
  network.pairs = PairCosts{4, std::vector<double>(16, 1), std::vector<double>(16, 1), {}};
  EXPECT_EQ(plan_in_order(*made.lowering, network).error().message,
            "net.toml: expected a cluster file for a plan, found a table of pairs");
}

}  // namespace
}  // namespace tessera
