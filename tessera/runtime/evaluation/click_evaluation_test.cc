// Evaluations of a model that predicts clicks report how good its predictions are, equally under
// every plan.
#include "tessera/runtime/evaluation/click_evaluation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/data/click_generator.h"
#include "tessera/data/test_files.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

class ClickEvaluations : public TestFiles {
 protected:
  // Trains on 96 samples and evaluates on 32 others.
  RunConfig config(const std::string& plan, const std::string& precision = "float64") {
    ClickOptions options;
    options.dense = 3;
    options.features = {{{"a", 20, 2}, 1.05, {}, true}, {{"b", 9, 1}, 1.05, {}, false}};
    EXPECT_TRUE(generate_clicks(options, 0, 96, path("train.clicks")));
    EXPECT_TRUE(generate_clicks(options, 96, 32, path("eval.clicks")));
    RunConfig c;
    c.model = "dlrm:dense=3,rows=20-9,bags=2-1,width=4,bottom=8-4,top=8-1";
    c.data.clicks = path("train.clicks");
    c.eval.data.clicks = path("eval.clicks");
    c.eval.every = 2;
    c.eval.batches = 4;
    c.batch = 8;
    c.steps = 4;
    c.plan = plan;
    c.precision = precision;
    c.optimizer.kind = "rowwise_adagrad";
    c.optimizer.lr = 0.05;
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

// The four batches of 8 are all samples of the file, each once.
TEST_F(ClickEvaluations, TheNormalisedEntropyIsTheLossOverTheEntropyOfTheFilesClicks) {
  const std::vector<StepReport> steps = run(config("serial"));
  const auto file = ClickFile::open(path("eval.clicks"));
  ASSERT_TRUE(file);
  const double share = static_cast<double>(file->clicks()) / 32;
  const double entropy = -share * std::log(share) - (1 - share) * std::log(1 - share);
  ASSERT_EQ(steps.size(), 4U);
  for (const StepReport& step : steps) {
    ASSERT_EQ(step.eval_clicks.has_value(), step.step % 2 == 0);
    if (!step.eval_clicks) continue;
    EXPECT_NEAR(step.eval_clicks->normalized_entropy, *step.eval_loss / entropy, 1e-12);
    EXPECT_GT(step.eval_clicks->auc, 0);
    EXPECT_LT(step.eval_clicks->auc, 1);
  }
}

TEST_F(ClickEvaluations, AreThoseOfTheSerialRunUnderEveryPlan) {
  const std::vector<StepReport> expected = run(config("serial"));
  // The last product of the top MLP is cut along the dim it sums over: logits are sums of parts.
  const std::string parts =
      write("parts.toml",
            "mesh = { tp = 2 }\n"
            "split = [ { ops = \"top.*\", dim = \"inner\", over = \"tp\" } ]\n");
  const std::string replicas = write("replicas.toml", "mesh = { dp = 2 }\nsplit = []\n");
  for (const std::string& plan :
       {std::string("tables(2)"), std::string("tables(2, by=row, micro_batches=2)"),
        std::string("tables(2, by=table_row, nodes=2)"), std::string("tables(2, by=column)"),
        std::string("zero(stage=3, dp=4)"), parts, replicas}) {
    const std::vector<StepReport> found = run(config(plan));
    ASSERT_EQ(found.size(), expected.size()) << plan;
    for (size_t i = 1; i < found.size(); i += 2) {
      ASSERT_TRUE(found[i].eval_clicks) << plan;
      EXPECT_NEAR(found[i].eval_clicks->normalized_entropy,
                  expected[i].eval_clicks->normalized_entropy, 1e-9)
          << plan;
      EXPECT_EQ(found[i].eval_clicks->auc, expected[i].eval_clicks->auc) << plan;
      EXPECT_NEAR(found[i].loss, expected[i].loss, 1e-9) << plan;
    }
  }
}

TEST_F(ClickEvaluations, NarrowRunsHaveThemToo) {
  const std::vector<StepReport> expected = run(config("serial")),
                                found = run(config("tables(2)", "bfloat16"));
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_NEAR(found[3].eval_clicks->normalized_entropy, expected[3].eval_clicks->normalized_entropy,
              0.02);
}

// Before the first step the run says where its tables rest. The state of rowwise_adagrad in float64
// is a number of 8 bytes a row.
TEST_F(ClickEvaluations, TheStartOfARunSaysWhereTablesRest) {
  const auto shares = [&](const std::string& plan) {
    std::vector<TableShare> found;
    TrainingCallbacks callbacks;
    callbacks.start = [&](const TrainingStart& start) { found = start.tables; };
    const auto summary = run_training(config(plan), callbacks);
    EXPECT_TRUE(summary) << plan << ": " << (summary ? "" : summary.error().message);
    return found;
  };
  const std::string a = "tables.0.weight", b = "tables.1.weight";
  EXPECT_EQ(shares("tables(2)"),
            (std::vector<TableShare>{{a, 0, {0, 20}, {0, 4}, Tier::kDevice, 640, 160},
                                     {b, 1, {0, 9}, {0, 4}, Tier::kDevice, 288, 72}}));
  EXPECT_EQ(shares("tables(2, by=row)"),
            (std::vector<TableShare>{{a, 0, {0, 10}, {0, 4}, Tier::kDevice, 320, 80},
                                     {a, 1, {10, 10}, {0, 4}, Tier::kDevice, 320, 80},
                                     {b, 0, {0, 5}, {0, 4}, Tier::kDevice, 160, 40},
                                     {b, 1, {5, 4}, {0, 4}, Tier::kDevice, 128, 32}}));
  const std::string host = write("host.toml",
                                 "mesh = { dp = 1 }\nsplit = []\n"
                                 "store = [ { tensors = \"{,optimizer.*.}tables.0.*\", "
                                 "tier = \"host\" } ]\n");
  EXPECT_EQ(shares(host),
            (std::vector<TableShare>{{a, 0, {0, 20}, {0, 4}, Tier::kHost, 640, 160},
                                     {b, 0, {0, 9}, {0, 4}, Tier::kDevice, 288, 72}}));
}

TEST_F(ClickEvaluations, ModelsThatPredictOtherThingsHaveNone) {
  RunConfig c = config("serial");
  c.model = "mlp:in=3,hidden=4,out=3";
  c.data = c.eval.data = {"random"};
  const std::vector<StepReport> steps = run(c);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_TRUE(steps[1].eval_loss);
  EXPECT_FALSE(steps[1].eval_clicks);
}

}  // namespace
}  // namespace tessera
