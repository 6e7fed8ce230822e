// Nodes that are namespaces of one machine share its cores.
#include <gtest/gtest.h>

#include "tessera/program/test_programs.h"
#include "tessera/simulate/simulate.h"

namespace tessera::one_machine_test {
namespace {

// Four nodes of one device each, whose network takes no time. With `cores` for all of them.
double step_of(bool one_machine, int64_t cores) {
  Cluster cluster = local_cluster(1, nullptr);
  cluster.parts[0].nodes = 4;
  cluster.one_machine = one_machine;
  NodeType& type = cluster.parts[0].type;
  type.cores = cores;
  type.nic = {LinkKind::kNic, 1e30, 0, true};
  type.nics = 1;
  type.host_memory_rate = 1e30;
  type.device.host_issue_s = 0;
  SimulateOptions options;
  options.style = parse_style("tessera").value();
  options.style.collective_gap_s = options.style.step_overhead_s = 0;
  options.style.host_collective_s = 0;
  const Plan plan = parse_plan(
                        "mesh = { dp = 4 }\nsplit = [ { ops = \"*\", dim = \"batch\", "
                        "over = \"dp\" } ]\n")
                        .value();
  Prepared prepared = prepare(trained(test_transformer({.layers = 2, .batch = 8})), plan).value();
  const auto graph = std::make_shared<const Graph>(std::move(prepared.graph));
  const Lowering lowering = Lowering::create(graph, std::move(prepared.plan)).value();
  return simulate(lowering, cluster, options).value().step_time_s;
}

TEST(OneMachine, nodes_share_its_cores) {
  const double alone = step_of(false, 1);
  EXPECT_NEAR(step_of(true, 4), alone, 1e-9 * alone);
  // A part of the step, below a thousandth, is no work of the cores.
  const double two = step_of(true, 2), one = step_of(true, 1);
  EXPECT_NEAR(two, 2 * alone, 2e-3 * alone);
  EXPECT_NEAR(one - alone, 3 * (two - alone), 1e-9 * alone);
}

}  // namespace
}  // namespace tessera::one_machine_test
