// Tests plans that compress what ranks exchange: bytes are as predicted, and losses near those of
// the plan without compression.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/compile/compile.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

constexpr const char* kDataParallel =
    "mesh = { dp = 2 }\nmicro_batches = 2\n"
    "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n";
constexpr const char* kPipeline =
    "mesh = { pp = 2, dp = 2 }\nmicro_batches = 2\n"
    "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
    "stage = [ { ops = \"{embed,blocks.0}\", at = 0 }, "
    "{ ops = \"{blocks.1,final,head,loss}\", at = 1 } ]\n";
constexpr const char* kTensorParallel =
    "mesh = { tp = 2 }\n"
    "split = [ { ops = \"blocks.*.attn\", dim = \"heads\", over = \"tp\" },\n"
    "          { ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"tp\" } ]\n";

std::string compress(const std::string& tensors, const std::string& on, const std::string& with,
                     bool feedback = false) {
  return "compress = [ { tensors = \"" + tensors + "\", on = \"" + on + "\", with = \"" + with +
         "\"" + (feedback ? ", error_feedback = true" : "") + " } ]\n";
}

class Compression : public ::testing::Test {
 protected:
  Compression()
      : folder_(std::filesystem::temp_directory_path() /
                ("tessera_compression_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 500; ++i) text << "the same words again and again; ";
  }
  ~Compression() override { std::filesystem::remove_all(folder_); }

  struct Run {
    std::vector<double> losses;
    std::map<std::string, int64_t> bytes;
    int64_t total() const {
      int64_t sum = 0;
      for (const auto& [kind, count] : bytes) sum += count;
      return sum;
    }
  };
  Run train(const std::string& plan, const std::string& precision = "float32",
            bool plain_sgd = false) const {
    const std::string path = (folder_ / "plan.toml").string();
    std::ofstream(path) << plan;
    RunConfig c;
    c.model = "gpt:layers=2,hidden=16,heads=2,seq=8,vocab=256";
    c.data = {(folder_ / "text").string()};
    c.batch = 8;
    c.steps = 40;
    c.plan = path;
    c.precision = precision;
    c.optimizer.lr = 1e-2;
    c.optimizer.warmup = 2;
    if (plain_sgd) {
      c.steps = 160;
      c.optimizer.kind = "sgd";
      c.optimizer.lr = c.optimizer.min_lr = 0.3;
      c.optimizer.momentum = c.optimizer.weight_decay = c.optimizer.clip = 0;
    }
    Run run;
    TrainingCallbacks callbacks;
    callbacks.step = [&](const StepReport& report) { run.losses.push_back(report.loss); };
    const auto summary = run_training(c, callbacks);
    EXPECT_TRUE(summary) << plan << (summary ? "" : summary.error().message);
    if (summary) run.bytes = summary->bytes_sent;
    return run;
  }
  std::filesystem::path folder_;
};

// Returns the mean of the last losses, since those of single steps are noisy.
double final_loss(const std::vector<double>& losses) {
  double sum = 0;
  for (size_t i = losses.size() - 5; i < losses.size(); ++i) sum += losses[i];
  return sum / 5;
}

TEST_F(Compression, TrainingReachesTheLossOfTheUncompressedRun) {
  const Run exact = train(kDataParallel);
  ASSERT_EQ(exact.losses.size(), 40U);
  EXPECT_LT(exact.losses.back(), exact.losses.front() - 2);
  struct Case {
    const char* with;
    bool feedback;
    double margin, ratio;  // of the loss; most bytes against float32
  };
  for (const Case& c : {Case{"bfloat16", false, 0.05, 0.51}, Case{"float16", false, 0.05, 0.51},
                        Case{"int8", false, 0.05, 0.28}, Case{"int8", true, 0.05, 0.28}}) {
    const Run run = train(kDataParallel + compress("role:gradient", "*", c.with, c.feedback));
    ASSERT_EQ(run.losses.size(), 40U) << c.with;
    EXPECT_NEAR(final_loss(run.losses), final_loss(exact.losses), c.margin) << c.with;
    EXPECT_LT(static_cast<double>(run.total()), c.ratio * static_cast<double>(exact.total()))
        << c.with;
    EXPECT_GT(run.bytes.at("reduce_scatter"), 0) << c.with;  // the halves of the all-reduce
  }
}

// The theory of error feedback is about plain gradient descent: there a fiftieth of the elements is
// enough with error feedback, and not without.
TEST_F(Compression, TopKNeedsErrorFeedback) {
  const Run exact = train(kDataParallel, "float32", true);
  const auto top = [&](bool feedback) {
    return train(kDataParallel + compress("role:gradient", "*", "topk:0.02", feedback), "float32",
                 true);
  };
  const Run without = top(false), with = top(true);
  EXPECT_EQ(without.total(), with.total());
  EXPECT_LT(static_cast<double>(with.total()), 0.05 * static_cast<double>(exact.total()));
  EXPECT_LT(final_loss(exact.losses), exact.losses.front() - 4);
  EXPECT_NEAR(final_loss(with.losses), final_loss(exact.losses), 0.15);
  EXPECT_GT(final_loss(without.losses), final_loss(exact.losses) + 0.5);
}

TEST_F(Compression, ActivationsBetweenStagesAndRanks) {
  for (const char* plan : {kPipeline, kTensorParallel}) {
    const Run exact = train(plan);
    for (const char* with : {"bfloat16", "int8"}) {
      const Run run = train(plan + compress("role:activation", "*", with));
      EXPECT_NEAR(final_loss(run.losses), final_loss(exact.losses), 0.1) << plan << with;
      EXPECT_LT(run.total(), exact.total()) << plan << with;
    }
  }
}

TEST_F(Compression, OverflowsAreStillSeen) {
  const Run run = train(kDataParallel + compress("role:gradient", "*", "int8", true), "float16");
  EXPECT_LT(final_loss(run.losses), run.losses.front() - 2);
}

class CompressedPlans : public ::testing::TestWithParam<const char*> {};

// verify says that the plan is lossy and compares the loss; bytes, messages and memory are exact.
TEST_P(CompressedPlans, CountWhatIsPredicted) {
  const auto model =
      build_model("gpt:layers=2,hidden=16,heads=4,seq=8,vocab=32", 8, DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  for (const char* with : {"int8", "topk:0.2"}) {
    for (const bool feedback : {false, true}) {
      const std::string plan =
          GetParam() + compress("{grad,blocks,embed,final,head,updated}*", "*", with, feedback);
      VerifyConfig config;
      config.steps = 3;
      config.lossy_tolerance = 0.5;  // of activations, too, only a fifth arrives
      const auto report = verify_model(*model, plan, config);
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_TRUE(report->ok) << plan << report->why;
      EXPECT_TRUE(report->lossy);
      EXPECT_GT(report->gradients_error, 1e-9);
      EXPECT_EQ(report->bytes_predicted, report->bytes_counted);
      EXPECT_EQ(report->messages_predicted, report->messages_counted);
      EXPECT_EQ(report->peak_predicted, report->peak_counted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Edges, CompressedPlans,
    ::testing::Values(kDataParallel, kPipeline, kTensorParallel,
                      "mesh = { dp = 2 }\n"
                      "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
                      "store = [ { tensors = \"role:parameter\", over = \"dp\" } ]\n",
                      "mesh = { dp = 2 }\nmicro_batches = 2\n"
                      "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
                      "store = [ { tensors = \"role:gradient\", over = \"dp\" },\n"
                      "          { tensors = \"optimizer.*\", over = \"dp\" } ]\n"));

}  // namespace
}  // namespace tessera
