// Evaluations of models that predict classes report the share of samples that is right, equally
// under every plan.
#include "tessera/runtime/evaluation/class_evaluation.h"

#include <gtest/gtest.h>

#include "tessera/compile/compile.h"
#include "tessera/data/test_files.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

class ClassEvaluations : public TestFiles {
 protected:
  // Eight samples of two numbers; the class is 1 where the first number is the larger one, 2 where
  // both are equal, else 0. One target does not count.
  RunConfig config(const std::string& plan) {
    const std::vector<float> x = {1, 0, 0, 1, 2, 1, 1, 2, 3, 3, 0, 5, 4, 0, 1, 1};
    const std::vector<int64_t> y = {1, 0, 1, 0, 2, 0, 1, -1};
    RunConfig c;
    c.model = "mlp:in=2,hidden=8,out=3,layers=2";
    c.data.arrays = {{"x", write("x.npy", npy("<f4", "(8, 2)", bytes_of(x)))},
                     {"targets", write("y.npy", npy("<i8", "(8,)", bytes_of(y)))}};
    c.eval.data = c.data;
    c.eval.every = 30;
    c.eval.batches = 2;
    c.batch = 4;
    c.steps = 90;
    c.plan = plan;
    c.precision = "float64";
    c.optimizer.lr = 0.05;
    c.optimizer.weight_decay = 0;
    return c;
  }
  static std::vector<double> run(const RunConfig& c) {
    std::vector<double> all;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) {
      EXPECT_EQ(report.eval_accuracy.has_value(), report.eval_loss.has_value());
      if (report.eval_accuracy) all.push_back(*report.eval_accuracy);
    };
    const auto summary = run_training(c, callbacks);
    EXPECT_TRUE(summary) << c.plan << ": " << (summary ? "" : summary.error().message);
    if (summary) {
      EXPECT_EQ(summary->eval_accuracy, all.back());
    }
    return all;
  }
};

TEST_F(ClassEvaluations, RiseToOneWhereEverySampleIsRight) {
  const std::vector<double> found = run(config("serial"));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found.back(), 1);
  for (const double share : found) EXPECT_EQ(share * 7, std::round(share * 7));  // of 7 samples
}

TEST_F(ClassEvaluations, AreThoseOfTheSerialRunUnderEveryPlan) {
  RunConfig c = config("serial");
  c.eval.every = 3;
  c.steps = 12;
  const std::vector<double> expected = run(c);
  // Classes are cut over ranks, unevenly: each rank sees some of the logits.
  const std::string classes = write(
      "classes.toml",
      "mesh = { tp = 2 }\nsplit = [ { ops = \"{head,loss}.*\", dim = \"out\", over = \"tp\" } ]\n");
  const std::string stages = write(
      "stages.toml",
      "mesh = { pp = 2 }\nmicro_batches = 2\nschedule = \"gpipe\"\nsplit = []\n"
      "stage = [ { ops = \"layers.0\", at = 0 }, { ops = \"{layers.1,head,loss}\", at = 1 } ]\n");
  const std::string replicas = write("replicas.toml", "mesh = { dp = 2 }\nsplit = []\n");
  for (const std::string& plan :
       {std::string("data_parallel(2)"), std::string("data_parallel(2, micro_batches=2)"),
        std::string("zero(stage=3, dp=3)"), stages, classes, replicas}) {
    c.plan = plan;
    EXPECT_EQ(run(c), expected) << plan;
  }
}

TEST_F(ClassEvaluations, OfModelsThatReadTextThereAreNone) {
  const auto has = [](const std::string& model) {
    const auto compiled = compile({model, "serial", 2});
    EXPECT_TRUE(compiled) << compiled.error().message;
    return ClassEvaluation::op_of(*compiled->model, compiled->graph()).valid();
  };
  EXPECT_FALSE(has("gpt:layers=1,hidden=8,heads=2,seq=4,vocab=16"));
  EXPECT_FALSE(has("dlrm:dense=3,rows=7-5,width=4,bottom=6-4,top=5-1"));
  EXPECT_FALSE(has("cosmoflow:width=16,channels=2,filters=2,outputs=3"));  // numbers, no classes
  EXPECT_TRUE(has("vit:layers=1,hidden=8,heads=2,image=8,patch=4,classes=5"));
  EXPECT_TRUE(has("smc:width=2,image=8,classes=3,ghost=2"));  // has other log-sum-exps of logits
  EXPECT_TRUE(has("resnet:layers=18,width=4,image=32,classes=5,ghost=2"));
}

}  // namespace
}  // namespace tessera
