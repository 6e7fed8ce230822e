// Tests running state as it is executed: the value of a buffer after steps, under plans, in
// evaluations and in runs that go on from a checkpoint.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tessera/data/test_files.h"
#include "tessera/graph/carried.h"
#include "tessera/graph/transform.h"
#include "tessera/models/model.h"
#include "tessera/models/running_norm.h"
#include "tessera/runtime/kernels/tensor.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/testing.h"
#include "tessera/test/source_dir.h"

namespace tessera::carried_test {
namespace {

using testing::relative_error;
using testing::Workspace;

VerifyReport verify(const std::string& model, const std::string& plan, int64_t batch,
                    int64_t steps = 3) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = batch;
  config.steps = steps;
  const auto report = verify_plan(config);
  EXPECT_TRUE(report) << model << " " << plan << ": " << (report ? "" : report.error().message);
  return report.value_or(VerifyReport{});
}

void expect_equal_to_serial(const std::string& model, const std::string& plan, int64_t batch) {
  const VerifyReport report = verify(model, plan, batch);
  EXPECT_TRUE(report.ok) << model << " " << plan << ": " << report.why;
}

std::string error_of(const std::string& model, const std::string& plan, int64_t batch) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = batch;
  const auto report = verify_plan(config);
  return report ? "no error" : report.error().message;
}

// ---- running statistics of batch norm, against PyTorch's
constexpr int64_t kGroups = 3, kSamples = 4, kChannels = 5, kSide = 3;

Graph norm_graph(const RunningNorm& how) {
  GraphBuilder g("norm");
  const Dim channels{"channels", kChannels};
  const auto x = g.input(
      "x",
      {{"batch", kGroups}, {"sample", kSamples}, channels, {"height", kSide}, {"width", kSide}},
      DType::kFloat64);
  const auto y = running_batch_norm(g, "bn", x, channels, "sample height width", how);
  g.graph().loss = g.op1("loss", "reduce_sum", {y},
                         {{"dims", std::string("batch sample channels height width")}});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

at::Tensor tensor_of(const std::vector<double>& values, const std::vector<int64_t>& shape) {
  return at::tensor(values, at::kDouble).reshape(shape);
}
std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* first = flat.const_data_ptr<double>();
  return {first, first + flat.numel()};
}

TEST(RunningNorm, FollowsTheMeanOfWhatPyTorchGivesEachGroup) {
  const RunningNorm how{.keep = 0.9, .eps = 1e-3};
  const Graph graph = norm_graph(how);
  Workspace w(graph);
  w.initialise();
  std::vector<double> mean(kChannels, 0.0), variance(kChannels, 1.0);
  for (int step = 0; step < 3; ++step) {
    const TensorId x = graph.find_tensor("x");
    w.randomise(x, step, step + 2.0);
    w.run();
    const at::Tensor values = tensor_of(w.get(x), {kGroups, kSamples, kChannels, kSide, kSide});
    at::Tensor means = at::zeros({kChannels}, at::kDouble), variances = means.clone();
    for (int64_t group = 0; group < kGroups; ++group) {
      at::Tensor one = tensor_of(mean, {kChannels}), other = tensor_of(variance, {kChannels});
      at::batch_norm(values[group], {}, {}, one, other, true, 1 - how.keep, how.eps, false);
      means.add_(one, 1.0 / kGroups);
      variances.add_(other, 1.0 / kGroups);
    }
    for (const auto& [name, expected] :
         {std::pair("bn.running_mean", means), std::pair("bn.running_variance", variances)}) {
      const std::vector<double> found = w.get(graph.find_tensor(std::string("updated.") + name));
      EXPECT_LT(relative_error(found, values_of(expected)), 1e-12) << name << ", step " << step;
      w.set(graph.find_tensor(name), found);
    }
    mean = values_of(means);
    variance = values_of(variances);
  }
}

TEST(RunningNorm, AnEvaluationNormalisesByWhatRuns) {
  const RunningNorm how{.keep = 0.5, .eps = 1e-3};
  const Graph graph = norm_graph(how);
  const auto expanded = expand_ops(graph, {graph.tensor(graph.find_tensor("bn.y")).producer});
  ASSERT_TRUE(expanded) << expanded.error().message;
  const std::vector<double> mean = {1, 2, 3, 4, 5}, variance = {0.5, 1, 2, 3, 4};
  for (const Graph* one : {&graph, &*expanded}) {
    Workspace w(*one);
    w.initialise();
    w.randomise(one->find_tensor("x"), 0, 4);
    w.set(one->find_tensor("bn.running_mean"), mean);
    w.set(one->find_tensor("bn.running_variance"), variance);
    w.context().evaluating = true;
    w.run();
    const at::Tensor values =
        tensor_of(w.get(one->find_tensor("x")), {kGroups * kSamples, kChannels, kSide, kSide});
    const at::Tensor expected =
        at::batch_norm(values, {}, {}, tensor_of(mean, {kChannels}),
                       tensor_of(variance, {kChannels}), false, 0.0, how.eps, false);
    EXPECT_LT(relative_error(w.get(one->find_tensor("bn.y")), values_of(expected)), 1e-12);
  }
}

// ---- under plans
constexpr const char* kRunning = "resnet:layers=18,width=4,image=48,classes=5,ghost=2,running=0.9";

TEST(Carried, RunningStatisticsEqualTheSerialRun) {
  expect_equal_to_serial(kRunning, "data_parallel(3)", 6);
  // The statistics change once a step, from all micro-batches together.
  expect_equal_to_serial(kRunning, "data_parallel(2,micro_batches=2)", 8);
  expect_equal_to_serial(kRunning, "fsdp(2)", 4);
  expect_equal_to_serial(kRunning, "one_f_one_b(pp=2,micro_batches=3)", 6);
  // The halves of the batch pass in opposite directions.
  expect_equal_to_serial(kRunning, "chimera(pp=2)", 8);
  expect_equal_to_serial(kRunning, "megatron(pp=2,dp=2,zero=1,micro_batches=2,recompute=full)", 8);
}

TEST(Carried, RunningStatisticsEqualTheSerialRunWithSplitMapsAndChannels) {
  const std::string examples = std::string(TESSERA_SOURCE_DIR) + "/examples/plans/";
  expect_equal_to_serial(kRunning, examples + "resnet_channels.toml", 4);
  expect_equal_to_serial("resnet:layers=18,width=4,image=48,classes=5,ghost=4,running=0.9",
                         examples + "resnet_synchronized.toml", 8);
}

constexpr const char* kSmc = "smc:width=4,image=16,classes=5,ghost=2,steps=6";

TEST(Carried, AQueueOfSoftLabelsEqualsTheSerialRun) {
  expect_equal_to_serial(kSmc, "data_parallel(2)", 8);
  expect_equal_to_serial(kSmc, "data_parallel(4)", 8);
  expect_equal_to_serial(kSmc, "zero(stage=3, dp=2)", 4);
  expect_equal_to_serial(kSmc, "chimera(pp=2)", 8);
}

TEST(Carried, WhatIsKeptOfEachSampleNeedsTheWholeBatchAtOnce) {
  const std::string error = error_of(kSmc, "data_parallel(2,micro_batches=2)", 8);
  EXPECT_NE(
      error.find("expected micro_batches = 1, found 2: tensor 'soft_labels' keeps values for the "
                 "whole 'batch' from one step to the next"),
      std::string::npos)
      << error;
}

// ---- in runs
class CarriedRuns : public TestFiles {
 protected:
  static RunConfig config(const std::string& model, const std::string& plan, int64_t steps) {
    RunConfig c;
    c.model = model;
    c.data = {"random"};
    c.batch = 8;
    c.steps = steps;
    c.plan = plan;
    c.precision = "float64";
    c.optimizer.lr = c.optimizer.min_lr = 1e-2;
    c.optimizer.warmup = 1;
    return c;
  }
  static std::map<int64_t, StepReport> run(const RunConfig& c) {
    std::map<int64_t, StepReport> all;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) { all[report.step] = report; };
    const auto summary = run_training(c, callbacks);
    EXPECT_TRUE(summary) << c.plan << ": " << (summary ? "" : summary.error().message);
    return all;
  }
};

TEST_F(CarriedRuns, GoOnFromACheckpointBitForBit) {
  for (const char* model : {kSmc, kRunning}) {
    RunConfig whole = config(model, "data_parallel(2)", 6);
    whole.eval.data = {"random"};
    whole.eval.every = 1;
    const auto expected = run(whole);
    RunConfig first = whole;
    first.steps = 3;
    first.checkpoint.dir = path(std::string("checkpoints.") + (model == kSmc ? "smc" : "resnet"));
    run(first);
    RunConfig second = first;
    second.steps = 6;
    second.resume = true;
    const auto found = run(second);
    ASSERT_EQ(found.size(), 3U);
    for (const auto& [step, report] : found) {
      EXPECT_EQ(report.loss, expected.at(step).loss) << model << ", step " << step;
      EXPECT_EQ(*report.eval_loss, *expected.at(step).eval_loss) << model << ", step " << step;
    }
    // On other ranks a run continues from this state, up to rounding.
    RunConfig serial = second;
    serial.plan = "serial";
    serial.checkpoint.every = 100;
    std::filesystem::remove_all(first.checkpoint.dir + "/step-000000000006");
    for (const auto& [step, report] : run(serial))
      EXPECT_NEAR(report.loss, expected.at(step).loss, 1e-9) << model << ", step " << step;
  }
}

TEST_F(CarriedRuns, EvaluationsOfEveryPlanUseWhatRuns) {
  RunConfig serial = config(kRunning, "serial", 3);
  serial.eval.data = {"random"};
  serial.eval.every = 1;
  const auto expected = run(serial);
  for (const char* plan : {"data_parallel(2)", "one_f_one_b(pp=2,micro_batches=2)"}) {
    RunConfig c = serial;
    c.plan = plan;
    for (const auto& [step, report] : run(c)) {
      const StepReport& one = expected.at(step);
      EXPECT_NEAR(*report.eval_loss, *one.eval_loss, 1e-9 * *one.eval_loss) << plan;
      EXPECT_EQ(*report.eval_accuracy, *one.eval_accuracy) << plan;
    }
  }
}

// The plan changes between two steps: the state moves along.
TEST_F(CarriedRuns, StateMovesWithAChangeOfThePlan) {
  for (const char* model : {kSmc, kRunning}) {
    const auto expected = run(config(model, "serial", 4));
    RunConfig c = config(model, "data_parallel(2)", 4);
    c.changes = {{1, "data_parallel(4)"}, {3, "serial"}};
    for (const auto& [step, report] : run(c))
      EXPECT_NEAR(report.loss, expected.at(step).loss, 1e-9 * report.loss) << model;
  }
}

}  // namespace
}  // namespace tessera::carried_test
