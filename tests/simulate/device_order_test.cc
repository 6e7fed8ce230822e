// The order of devices on a machine of two levels: four nodes of four devices; inside a node 8 GB/s
// a device; between nodes one card for each device, of which collectives get 1 GB/s. There are no
// latencies, arithmetic takes no time and nothing overlaps, so times follow closed forms. A group
// inside a node moves its bytes at 8 GB/s; a group with a member on each of four nodes at the 1
// GB/s of one card; a group with two members on each of two nodes at the 2 GB/s of two cards.
#include <gtest/gtest.h>

#include <map>

#include "tessera/compile/compile.h"
#include "tessera/program/text/place_form.h"
#include "tessera/simulate/simulate.h"

namespace tessera {
namespace {

Cluster two_levels() {
  Cluster cluster = local_cluster(4, nullptr);
  cluster.parts[0].nodes = 4;
  NodeType& type = cluster.parts[0].type;
  type.cores = 0;
  type.inner = {LinkKind::kMemory, 8e9, 0, true};
  type.nic = {LinkKind::kNic, 1e9 / type.device.generation->nic_share, 0, true};
  type.nics = 4;
  type.device.memory_rate = type.device.peak["fp32"] = 1e30;
  type.device.host_issue_s = 0;
  return cluster;
}

SimulateOptions exact() {
  SimulateOptions options;
  options.style = parse_style("tessera").value();
  options.style.inner_efficiency = options.style.network_efficiency = 1;
  options.style.collective_gap_s = options.style.step_overhead_s = 0;
  options.style.host_collective_s = 0;
  // Nothing overlaps.
  options.style.overlap_gradients = options.style.overlap_parameters = false;
  return options;
}

// Seconds by "kind axes" of rank 0, and of the step under "step".
using Times = std::map<std::string, double>;
Times times_of(const Compiled& compiled, const SimulateOptions& options = exact()) {
  const auto simulation = simulate(*compiled.lowering, two_levels(), options);
  EXPECT_TRUE(simulation.has_value()) << (simulation ? "" : simulation.error().message);
  Times out;
  if (!simulation) return out;
  out["step"] = simulation->step_time_s;
  for (const TrafficRow& row : simulation->roles[0].traffic)
    out[row.kind + " " + row.axes] += row.seconds;
  return out;
}
Compiled compiled(const std::string& plan, int64_t batch = 16) {
  auto out = compile({"gpt:layers=4,hidden=64,heads=4,seq=16,vocab=64", plan, batch});
  EXPECT_TRUE(out.has_value()) << (out ? "" : out.error().message);
  return std::move(*out);
}

TEST(DeviceOrder, rows_and_columns_of_summa_go_at_the_rate_of_where_they_lie) {
  const Times columns_inside = times_of(compiled("summa(4)"));
  const Times rows_inside = times_of(compiled("summa(4,device_order=\"col,row\")"));
  const Times blocks = times_of(compiled("summa(4,device_order=\"row:2,col:2\")"));
  for (const std::string kind : {"broadcast", "reduce"}) {
    SCOPED_TRACE(kind);
    const std::string row = kind + " row", col = kind + " col";
    ASSERT_GT(columns_inside.at(row), 0);
    EXPECT_NEAR(columns_inside.at(row) / rows_inside.at(row), 8, 1e-9);
    EXPECT_NEAR(columns_inside.at(row) / blocks.at(row), 2, 1e-9);
    EXPECT_NEAR(rows_inside.at(col) / columns_inside.at(col), 8, 1e-9);
    EXPECT_NEAR(rows_inside.at(col) / blocks.at(col), 2, 1e-9);
  }
  // Nothing overlaps and all ranks do equal work: a step is the host's time plus the sum of the
  // transfers, so steps differ exactly as these sums do.
  const auto host = [](const Times& times) {
    double rest = times.at("step");
    for (const auto& [what, seconds] : times) rest -= what == "step" ? 0 : seconds;
    return rest;
  };
  EXPECT_NEAR(host(rows_inside) / host(columns_inside), 1, 1e-9);
  EXPECT_NEAR(host(blocks) / host(columns_inside), 1, 1e-9);
  // Blocks of 2 x 2 halve what crosses nodes: q = 4 with blocks costs (row + col) / 2 of slow
  // times.
  const double slow = columns_inside.at("broadcast row") + rows_inside.at("broadcast col");
  EXPECT_NEAR(blocks.at("broadcast row") + blocks.at("broadcast col"), slow / 2, slow * 1e-9);
}

TEST(DeviceOrder, a_ring_across_rails_goes_at_the_rate_of_one_card) {
  const std::string ring = "ring_attention(4,dp=4,order=none";
  const Times inside = times_of(compiled(ring + ")")),
              rails = times_of(compiled(ring + ",device_order=\"cp,dp\")"));
  ASSERT_GT(inside.at("permute cp"), 0);
  EXPECT_NEAR(rails.at("permute cp") / inside.at("permute cp"), 8, 1e-9);
}

TEST(DeviceOrder, stages_side_by_side_in_a_node_send_at_its_rate) {
  const std::string pipeline = "megatron(dp=4,pp=4,micro_batches=2";
  const SimulateOptions options = exact();
  const Compiled apart = compiled(pipeline + ")"),
                 beside = compiled(pipeline + ",device_order=\"dp,pp\")");
  const Times far = times_of(apart), near = times_of(beside);
  EXPECT_GT(far.at("send pp"), 4 * near.at("send pp"));
  EXPECT_LT(far.at("all_reduce dp"), near.at("all_reduce dp") / 4);
}

// Planners try orders on one lowering.
TEST(DeviceOrder, of_the_options_is_as_if_the_plan_said_it_and_programs_do_not_depend_on_it) {
  const Compiled plain = compiled("summa(4)"),
                 ordered = compiled("summa(4,device_order=\"row:2,col:2\")");
  SimulateOptions options = exact();
  options.devices = ordered.plan().devices;
  EXPECT_EQ(times_of(plain, options), times_of(ordered));
  EXPECT_EQ(to_text(plain.lowering->texts(), PlaceId(0), plain.graph()),
            to_text(ordered.lowering->texts(), PlaceId(0), ordered.graph()));
}

TEST(DeviceOrder, any_list_of_devices_will_do_if_the_machine_has_them) {
  const std::string plan = "tensor_parallel(4,device_order=\"";
  const Times inside = times_of(compiled(plan + "12,15,13,14\")")),
              across = times_of(compiled(plan + "1,5,9,13\")"));
  EXPECT_NEAR(across.at("all_reduce tp") / inside.at("all_reduce tp"), 8, 1e-9);
  const auto failed = simulate(*compiled(plan + "0,1,2,16\")").lowering, two_levels(), exact());
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().message,
            "cluster 'local': expected at least 17 devices for the plan's ranks, found 16");
}

// One rank of each class also represents all its ranks under every order.
TEST(DeviceOrder, folding_equal_ranks_changes_nothing) {
  for (const std::string call :
       {"summa(4,device_order=\"row:2,col:2\")",
        "megatron(tp=2,dp=4,pp=2,device_order=\"dp:2,pp\")",
        "ring_attention(4,dp=2,order=none,device_order=\"0,4,8,12,1,5,9,14\")"}) {
    SCOPED_TRACE(call);
    const Compiled plan = compiled(call);
    SimulateOptions options = exact();
    const Times folded = times_of(plan, options);
    options.fold = false;
    const Times each = times_of(plan, options);
    ASSERT_EQ(folded.size(), each.size());
    for (const auto& [what, seconds] : each)
      EXPECT_NEAR(folded.at(what), seconds, 1e-12 + 1e-9 * seconds) << what;
  }
}

}  // namespace
}  // namespace tessera
