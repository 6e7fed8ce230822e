// Tests evaluations: the forward pass alone by the step's program, under every kind of plan,
// changes nothing and gives the serial run's loss. Also tests what a run records of itself.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/data/test_files.h"
#include "tessera/runtime/evaluation/metrics.h"
#include "tessera/runtime/session.h"
#include "tessera/test/all_cases.h"

namespace tessera {
namespace {

class Evaluation : public TestFiles {
 protected:
  RunConfig config(const std::string& plan, const std::string& precision = "float64") const {
    RunConfig c;
    c.model = "gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32";
    c.data = {"random"};
    c.batch = 8;
    c.steps = 4;
    c.plan = plan;
    c.precision = precision;
    c.optimizer.lr = 1e-2;
    c.optimizer.warmup = 1;
    return c;
  }
  static RunConfig evaluated(RunConfig c, int64_t every) {
    c.eval.data = {"random"};
    c.eval.every = every;
    c.eval.batches = 2;
    return c;
  }
  static std::vector<StepReport> run(const RunConfig& c) {
    std::vector<StepReport> all;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) { all.push_back(report); };
    const auto summary = run_training(c, callbacks);
    EXPECT_TRUE(summary) << c.plan << ": " << (summary ? "" : summary.error().message);
    return all;
  }
};

// Plans that move parameters, activations and state in every way.
constexpr const char* kPlans[] = {
    "data_parallel(2)",
    "tensor_parallel(2)",
    "zero(stage=3, dp=2)",
    "fsdp(4)",
    "one_f_one_b(pp=2, micro_batches=4)",
    "megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=2)",
    "ring_attention(2)",
    "summa(q=2)",
    "offload(2, gradients=true, to=disk)",
    "offload(2, zero=3, parameters=1, activations=true)",
    "megatron(pp=2, micro_batches=4, recompute=full)",
};

// Dropout is on, which training uses and an evaluation does not. The losses of training, too, are
// those of the serial run; DoesNotDisturbTheRun compares with a run without evaluations.
TEST_F(Evaluation, GivesTheSerialLossUnderEveryPlan) {
  RunConfig serial = evaluated(config("serial"), 1);
  serial.model += ",dropout=0.2,attention_dropout=0.2";
  serial.steps = 2;
  const std::vector<StepReport> expected = run(serial);
  ASSERT_EQ(expected.size(), 2U);
  for (const char* plan : kPlans) {
    RunConfig c = serial;
    c.plan = plan;
    const std::vector<StepReport> found = run(c);
    ASSERT_EQ(found.size(), 2U) << plan;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i].loss, expected[i].loss, 1e-9 * expected[i].loss) << plan;
      ASSERT_TRUE(found[i].eval_loss);
      EXPECT_NEAR(*found[i].eval_loss, *expected[i].eval_loss, 1e-9 * *expected[i].eval_loss)
          << plan << ", step " << i + 1;
    }
  }
}

TEST_F(Evaluation, DoesNotDisturbTheRun) {
  std::vector<std::string> plans(std::begin(kPlans), std::end(kPlans));
  plans.insert(plans.end(), {"serial", "compressed(2, pp=2, micro_batches=2, borders=int8)"});
  for (size_t i = 0; i < plans.size(); i += all_cases() ? 1 : 2) {
    const std::string& plan = plans[i];
    const RunConfig c = config(plan, "float32");
    const std::vector<StepReport> without = run(c), with = run(evaluated(c, 1));
    ASSERT_EQ(with.size(), without.size());
    for (size_t k = 0; k < with.size(); ++k) {
      EXPECT_EQ(with[k].loss, without[k].loss) << plan << ", step " << k + 1;
      EXPECT_FALSE(without[k].eval_loss);
    }
  }
}

// With a learning rate of 0 and as many samples as a batch has, training and evaluation see the
// same samples, in other orders, with the same parameters.
TEST_F(Evaluation, IsTheLossOfTheModelAsItIs) {
  RunConfig c = config("data_parallel(2)");
  c.model = "mlp:in=5,hidden=9,out=4,layers=2";
  std::vector<float> inputs;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < c.batch; ++i) {
    for (int64_t k = 0; k < 5; ++k) inputs.push_back(static_cast<float>((i * 7 + k * 3) % 11) / 5);
    targets.push_back(i * i % 4);
  }
  c.data = DataConfig();
  c.data.arrays = {{"x", write("x.npy", npy("<f4", "(8, 5)", bytes_of(inputs)))},
                   {"targets", write("y.npy", npy("<i8", "(8,)", bytes_of(targets)))}};
  c.optimizer.lr = c.optimizer.min_lr = 0;
  c.eval = {c.data, 1, 1, 0};
  const std::vector<StepReport> steps = run(c);
  ASSERT_EQ(steps.size(), 4U);
  for (const StepReport& step : steps) {
    ASSERT_TRUE(step.eval_loss);
    EXPECT_NEAR(*step.eval_loss, step.loss, 1e-12 * step.loss);
  }
}

// After a change of the plan the evaluation is that of the new plan.
TEST_F(Evaluation, GoesOnAfterAChangeOfThePlan) {
  const std::vector<StepReport> expected = run(evaluated(config("serial"), 1));
  RunConfig c = evaluated(config("zero(stage=3, dp=4)"), 1);
  c.changes = {{1, "one_f_one_b(pp=2, micro_batches=4)"}, {3, "serial"}};
  const std::vector<StepReport> found = run(c);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].eval_loss);
    EXPECT_NEAR(*found[i].eval_loss, *expected[i].eval_loss, 1e-9 * *expected[i].eval_loss)
        << "step " << i + 1;
  }
}

TEST_F(Evaluation, TakesPlaceEverySoManyStepsAndAfterTheLast) {
  RunConfig c = evaluated(config("serial"), 3);
  c.steps = 7;
  std::vector<int64_t> steps;
  for (const StepReport& step : run(c)) {
    if (step.eval_loss) steps.push_back(step.step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 6, 7}));
}

TEST_F(Evaluation, TheRecordOfARunHoldsItsStepsAndIsGoneOnWith) {
  RunConfig c = evaluated(config("data_parallel(2)"), 2);
  c.folder = path("runs/a");
  const std::vector<StepReport> first = run(c);
  const std::string file = path("runs/a/metrics.jsonl");
  std::ofstream(file, std::ios::app) << "{\"step\": 5, \"lo";  // as a killed writer leaves it
  c.plan = "serial";
  run(c);
  std::ifstream lines(file);
  std::vector<std::string> plans;
  std::vector<int64_t> steps;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object()) << line;
    if (json.contains("start")) {
      plans.push_back(json["start"]["plan"]);
      continue;
    }
    steps.push_back(json["step"]);
    const StepReport& expected = first[static_cast<size_t>(steps.back()) - 1];
    EXPECT_NEAR(json["loss"].get<double>(), expected.loss, 1e-9);
    EXPECT_EQ(json.contains("eval_loss"), steps.back() % 2 == 0);
    for (const char* key :
         {"learning_rate", "step_time_s", "tokens_per_s", "memory_bytes", "resident_bytes"})
      EXPECT_GT(json[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(plans, (std::vector<std::string>{"data_parallel(2)", "serial"}));
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST_F(Evaluation, AFolderThatCannotBeMadeIsWrongInput) {
  RunConfig c = config("serial");
  c.folder = write("file", "x") + "/below";
  const auto failed = run_training(c, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(failed.error().message.find("folder: cannot make '" + c.folder + "'"), 0U)
      << failed.error().message;
}

}  // namespace
}  // namespace tessera
