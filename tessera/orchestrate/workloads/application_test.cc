// Golden values of the Pollux traces. They are public data beside the repository; where they are not,
// the tests say so and are skipped.
#include "tessera/orchestrate/workloads/application.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/orchestrate/share/controller.h"
#include "tessera/orchestrate/workloads/workload.h"
#include "tessera/test/source_dir.h"

namespace tessera::share {
namespace {

class PolluxData : public testing::Test {
 protected:
  void SetUp() override {
    data_ = std::string(TESSERA_SOURCE_DIR) + "/../shared/data/pollux";
    if (!std::filesystem::exists(data_)) GTEST_SKIP() << "no Pollux traces in " << data_;
  }
  double mean_jct(const std::string& workload, const std::string& name) const {
    const auto machines = parse_machines("16x4");
    const auto read = read_workload(data_ + "/" + workload, {.machines = *machines});
    EXPECT_TRUE(read.has_value()) << (read ? "" : read.error().message);
    const auto policy = make_policy(name, {});
    ControllerOptions options;
    options.switching.seconds = 30;
    const auto outcome = simulate_jobs(read->jobs, *machines, **policy, options);
    double sum = 0;
    for (size_t i = 0; i < read->jobs.size(); ++i)
      sum += outcome->jobs[i].end_s - read->jobs[i].submit_s;
    return sum / static_cast<double>(read->jobs.size());
  }
  std::string data_;
};

TEST_F(PolluxData, StepTimesOfTheSheet) {
  const auto app = read_pollux_application(data_ + "/traces", "cifar10");
  ASSERT_TRUE(app.has_value());
  const auto expect = [&](std::vector<int> gpus, double step, double sync) {
    const StepTime time = (*app)->step({std::move(gpus), 0}, 128);
    EXPECT_NEAR(time.step_s, step, 5e-9);
    EXPECT_NEAR(time.sync_s, sync, 5e-9);
  };
  expect({1}, 0.10311532, 0.00052534);
  expect({4}, 0.10976017, 0.00443079);
  expect({4, 4}, 0.23039008, 0.12598341);
  expect({1, 4}, 0.19724103, 0.0947726);
  expect({4, 1}, 0.19724103, 0.0947726);
}

// Means that an independent program of the semantics (SciPy's interpolation) gave.
TEST_F(PolluxData, MeanCompletionTimesOfTiresiasAndOptimus) {
  EXPECT_NEAR(mean_jct("workloads-0.5/workload-1.csv", "tiresias"), 1450.938, 6e-4);
  EXPECT_NEAR(mean_jct("workloads-0.5/workload-1.csv", "optimus"), 1309.688, 6e-4);
  EXPECT_NEAR(mean_jct("workloads/workload-1.csv", "tiresias"), 2473.650, 6e-4);
  EXPECT_NEAR(mean_jct("workloads/workload-1.csv", "optimus"), 4087.062, 6e-4);
  EXPECT_NEAR(mean_jct("workloads/workload-2.csv", "tiresias"), 5144.962, 6e-4);
  EXPECT_NEAR(mean_jct("workloads/workload-2.csv", "optimus"), 6913.875, 6e-4);
  EXPECT_NEAR(mean_jct("workloads/workload-3.csv", "tiresias"), 3876.256, 6e-4);
  EXPECT_NEAR(mean_jct("workloads/workload-3.csv", "optimus"), 3944.006, 6e-4);
}

TEST_F(PolluxData, OursBeatsTiresiasByMoreThanAQuarter) {
  EXPECT_LT(mean_jct("workloads/workload-1.csv", "default"),
            0.75 * mean_jct("workloads/workload-1.csv", "tiresias"));
}

TEST(GradientNoise, TheGainOfALargerBatchIsThatOfTheSheet) {
  // sqr = 1, var = 4, four times the batch: gain 2.5, efficiency 0.625.
  const double gain = statistical_gain({.square = 1, .variance = 4}, 4);
  EXPECT_DOUBLE_EQ(gain, 2.5);
  EXPECT_DOUBLE_EQ(gain / 4, 0.625);
}

TEST(Interpolation, IsLinearInsideTheDelaunayTetrahedraOfUnknownPoints) {
  ScatteredTable table;
  // Off a grid, so that the triangulation is unique; the values are linear in the coordinates.
  const std::vector<ScatteredTable::Point> points = {{0, 0, 0}, {7, 1, 0}, {1, 8, 1}, {0, 2, 9},
                                                     {6, 7, 8}, {3, 3, 2}, {5, 1, 7}};
  const auto value = [](const ScatteredTable::Point& p) {
    return 2 + p[0] - 3 * p[1] + 0.5 * p[2];
  };
  for (const auto& point : points) table.add(point, {value(point), -value(point)});
  table.finish();
  EXPECT_FALSE(table.is_known());
  for (const ScatteredTable::Point& point :
       {ScatteredTable::Point{3, 3, 3}, {2, 2, 4}, {3, 3, 2}, {4, 3, 3}}) {
    EXPECT_NEAR(table.at(point)[0], value(point), 1e-9);
    EXPECT_NEAR(table.at(point)[1], -value(point), 1e-9);
  }
}

}  // namespace
}  // namespace tessera::share
