#include "tessera/orchestrate/share/controller.h"

#include <gtest/gtest.h>

#include "tessera/orchestrate/share/metrics.h"
#include "tessera/orchestrate/workloads/rated_job.h"

namespace tessera::share {
namespace {

JobSpec rigid(const std::string& name, double submit_s, int gpus, double seconds) {
  JobSpec out;
  out.name = name;
  out.submit_s = submit_s;
  out.gpus = gpus;
  out.model = rigid_job(gpus, seconds);
  return out;
}

// Gives the first job all GPUs of node 0 and changes it to node 1 after some time.
class Mover : public Policy {
 public:
  Decision decide(const View& view) override {
    const int node = view.now_s < 120 ? 0 : 1;
    return {{Allocation{{{node, view.jobs[0].spec->gpus}}}}};
  }
};

TEST(Machines, TextsAreReadAndWrongOnesRefused) {
  const auto machines = parse_machines("k80:2x4,v100:1x8");
  ASSERT_TRUE(machines.has_value());
  EXPECT_EQ(machines->gpus(), 16);
  EXPECT_EQ(machines->gpus(1), 8);
  EXPECT_EQ(machines->packed(6, 0).gpus, (std::vector<int>{4, 2}));
  EXPECT_TRUE(machines->packed(9, 1).gpus.empty());
  for (const char* text :
       {"", "4", "0x4", "4x0", "ax4", ":4x4", "a:4x4,a:1x1", "100001x1", "4x4x4"})
    EXPECT_FALSE(parse_machines(text).has_value()) << text;
}

TEST(Controller, AChangeOfGpusPausesAndKeepsTheWork) {
  const std::vector<JobSpec> jobs{rigid("a", 0, 4, 300)};
  const Machines machines = *parse_machines("2x4");
  Mover policy;
  ControllerOptions options;
  options.switching.seconds = 30;
  const auto outcome = simulate_jobs(jobs, machines, policy, options);
  ASSERT_TRUE(outcome.has_value());
  // Seen at 60 s; 30 s pause, 30 s work; at 120 s moved: 30 s pause, 270 s of work are left.
  EXPECT_DOUBLE_EQ(outcome->jobs[0].end_s, 120 + 30 + 270);
  EXPECT_EQ(outcome->jobs[0].usage.switches, 1);
  EXPECT_DOUBLE_EQ(outcome->jobs[0].usage.switching_gpu_seconds, 4 * 60);
  // A running job that keeps no GPU is stopped and started; live changes need one.
  options.switching.live_seconds = 1;
  EXPECT_DOUBLE_EQ(simulate_jobs(jobs, machines, policy, options)->jobs[0].end_s, 420);
}

// A clock and workers of a live system, played by the simulated ones, get the same decisions.
TEST(Controller, ARecordedRunIsReplayedWithEqualDecisions) {
  std::vector<JobSpec> jobs;
  for (int i = 0; i < 12; ++i)
    jobs.push_back(rigid(std::to_string(i), 40 * i, 1 + i % 4, 100 + 37 * i));
  const Machines machines = *parse_machines("2x4");
  const auto run = [&] {
    const auto policy = make_policy("tiresias", {});
    SimulatedClock clock;
    SimulatedWorkers workers(jobs, machines, (*policy)->batch_rule(), {.seconds = 10}, false);
    return run_jobs(jobs, machines, **policy, clock, workers, {});
  };
  EXPECT_EQ(run()->changes, run()->changes);
}

TEST(Controller, APolicyThatNeverEndsIsGivenUp) {
  class Idle : public Policy {
   public:
    Decision decide(const View& view) override {
      return {std::vector<Allocation>(view.jobs.size())};
    }
  };
  Idle policy;
  ControllerOptions options;
  options.most_s = 6000;
  const auto outcome =
      simulate_jobs({rigid("a", 0, 1, 10)}, *parse_machines("1x1"), policy, options);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message,
            "the policy leaves jobs that never end: 0 of 1 are done at 6000 s, job 'a' is not");
}

TEST(Reasons, ScatteredGpusAreNamedWithTheirNodes) {
  const Machines machines = *parse_machines("16x4");
  const std::vector<JobSpec> jobs{rigid("a", 0, 8, 10), rigid("b", 0, 4, 10)};
  WaitFacts facts{16, 9, {}};
  EXPECT_EQ(wait_reason(jobs[0], jobs, machines, facts, 0, 0).text,
            "16 GPUs are free, but on 9 nodes; it asks for 8 on 2 nodes");
  facts = {3, 1, {{51600, 4, 0}, {60000, 8, 1}}};
  EXPECT_EQ(
      wait_reason(jobs[0], jobs, machines, facts, 12, 0).text,
      "asks for 8 GPUs, 3 are free; 12 jobs submitted before it wait; earliest start 16:40 when "
      "job b ends");
  facts = {64, 16, {}};
  EXPECT_EQ(wait_reason(jobs[0], jobs, machines, facts, 1, 0).text,
            "asks for 8 GPUs, 64 are free, which the policy keeps for other jobs; 1 job submitted "
            "before it waits");
}

TEST(Metrics, QuantilesLieBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4, 5}, 0.9), 4.6);
  EXPECT_DOUBLE_EQ(quantile({}, 0.9), 0);
}

TEST(Profile, TheFitPredictsWhatAFormulaMade) {
  StepFit truth{0.05, 0.002, 0.08, 0.001, 0.02, 0.0005, 1.5};
  std::vector<ProfileRow> rows;
  for (const auto& [nodes, gpus] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 4}, {2, 8}, {4, 16}}) {
    for (const int64_t local : {16, 32, 64}) {
      const double m = static_cast<double>(local), step = truth.step_s(nodes, gpus, m);
      rows.push_back({nodes, gpus, local, step, step - truth.pass_s(m)});
    }
  }
  const StepFit fit = fit_steps(rows, StepFit());
  for (const ProfileRow& row : rows)
    EXPECT_NEAR(fit.step_s(row.nodes, row.gpus, static_cast<double>(row.local)), row.step_s,
                0.1 * row.step_s);
}

}  // namespace
}  // namespace tessera::share
