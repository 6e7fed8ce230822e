// Checks the launches of the host (Style::Host) in closed form: a step that the host bounds is the
// sum of its launches, one that the device bounds is that of fused kernels, and a graph adds one
// launch.
#include <gtest/gtest.h>

#include "tessera/cost/launches.h"
#include "tessera/cost/op_cost.h"
#include "tessera/program/test_programs.h"
#include "tessera/simulate/simulate.h"

namespace tessera::host_test {
namespace {

// One rank on one device.
struct Machine {
  Cluster cluster = load_cluster("dgx-a100:1").value();
  Lowering lowering = make_lowering();

  static Lowering make_lowering() {
    const Plan plan = parse_plan("mesh = { dp = 1 }\n").value();
    Prepared prepared = prepare(trained(test_transformer({.layers = 2, .batch = 8})), plan).value();
    const auto graph = std::make_shared<const Graph>(std::move(prepared.graph));
    return Lowering::create(graph, std::move(prepared.plan)).value();
  }
  Device& device() { return cluster.parts[0].type.device; }
  Simulation run(const std::string& style) const {
    SimulateOptions options;
    options.style = parse_style("tessera,host=" + style).value();
    return simulate(lowering, cluster, options).value();
  }
  // The launches of the rank's program by the table.
  double launches() const {
    const Program program = lowering.lower(0).value();
    double count = 0;
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        if (const auto* compute = std::get_if<Compute>(&instruction.body)) {
          const OpWork work = work_of(lowering.graph(), program, *compute);
          count += launches_of(work.op, work.dtype);
        }
      }
    }
    return count;
  }
};

TEST(Host, AStepOfTinyOpsIsTheSumOfItsLaunches) {
  Machine machine;
  machine.device().memory_rate = 1e30;
  machine.device().host_issue_s = 10e-6;
  const Simulation found = machine.run("launches");
  EXPECT_DOUBLE_EQ(found.roles[0].launches, machine.launches());
  EXPECT_NEAR(found.roles[0].host_s, machine.launches() * 10e-6, 1e-12);
  // The last kernel begins when it has been launched.
  EXPECT_NEAR(found.step_time_s, machine.launches() * 10e-6 + machine.device().launch_s, 3e-6);
  EXPECT_GT(found.roles[0].spent_s[static_cast<size_t>(Spent::kHost)], .5 * found.step_time_s);
}

TEST(Host, AStepOfLargeOpsIsThatOfFusedKernels) {
  Machine machine;
  machine.device().memory_rate = 1e6;
  const double ops = machine.run("ops").step_time_s;
  // Only the first op waits for its launches.
  EXPECT_NEAR(machine.run("launches").step_time_s, ops, 30 * machine.device().host_issue_s);
  EXPECT_GT(ops, 1000 * 30 * machine.device().host_issue_s);
}

TEST(Host, AGraphIsOneLaunchAndAGapForEachKernel) {
  Machine machine;
  const Simulation graph = machine.run("graph");
  const double once = machine.device().host_issue_s + machine.device().launch_s;
  machine.device().host_issue_s = machine.device().launch_s = 0;
  const double kernels = machine.run("ops").step_time_s;
  EXPECT_NEAR(graph.step_time_s, once + kernels + machine.launches() * kGraphGapSeconds, 1e-12);
  EXPECT_DOUBLE_EQ(graph.roles[0].launches, machine.launches());
}

TEST(Host, IsNoChoiceWhereKernelsRunInTheIssuingThread) {
  Machine machine;
  machine.cluster = local_cluster(1, nullptr);
  EXPECT_EQ(machine.run("launches").step_time_s, machine.run("ops").step_time_s);
  EXPECT_EQ(machine.run("graph").step_time_s, machine.run("ops").step_time_s);
}

}  // namespace
}  // namespace tessera::host_test
