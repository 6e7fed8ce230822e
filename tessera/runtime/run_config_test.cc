#include "tessera/runtime/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kRun = R"toml(model = "gpt:layers=2"
data = ["docs/*.md", "x.txt"]
batch = 16
plan = "zero(stage=1, dp=2)"
precision = "bfloat16"
timeout_s = 5

[optimizer]
kind = "sgd"
lr = 1
)toml";

std::string parse_error(std::string_view text) {
  const auto config = parse_run_config(text, "run.toml");
  return config ? "" : config.error().message;
}

std::string set_error(std::string_view assignment) {
  RunConfig config;
  const auto status = set_run_key(config, assignment);
  return status ? "" : status.error().message;
}

TEST(RunConfig, ReadsKeysAndKeepsDefaults) {
  const auto config = parse_run_config(kRun, "run.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model, "gpt:layers=2");
  EXPECT_THAT(config->data, ElementsAre("docs/*.md", "x.txt"));
  EXPECT_EQ(config->data_line, 2);
  EXPECT_EQ(config->batch, 16);
  EXPECT_EQ(config->steps, 100);
  EXPECT_EQ(config->plan, "zero(stage=1, dp=2)");
  EXPECT_EQ(config->precision, "bfloat16");
  EXPECT_EQ(config->timeout_s, 5);
  EXPECT_EQ(config->optimizer.kind, "sgd");
  EXPECT_EQ(config->optimizer.lr, 1);
  EXPECT_EQ(config->optimizer.momentum, 0.9);
}

TEST(RunConfig, ErrorsNameFileLineAndTheNearestKey) {
  EXPECT_EQ(parse_error("model = \"mlp\"\nbach = 2\n"),
            "run.toml:2: unknown key 'bach', did you mean 'batch'?");
  EXPECT_EQ(parse_error("[optimizer]\nlearning = 2\n").substr(0, 45),
            "run.toml:2: unknown key 'optimizer.learning',");
  EXPECT_EQ(parse_error("steps = 0\n"),
            "run.toml:1: expected steps to be an integer of at least 1, found 0");
  EXPECT_EQ(parse_error("steps = \"many\"\n"),
            "run.toml:1: expected steps to be an integer of at least 1, found 'many'");
  EXPECT_EQ(parse_error("precision = \"float8\"\n"),
            "run.toml:1: expected precision to be one of float32, float64, bfloat16, float16, "
            "found 'float8'");
  EXPECT_EQ(parse_error("data = [1]\n"),
            "run.toml:1: expected data to be a list of strings, found a list");
  EXPECT_EQ(parse_error("model = \"gpt\nbatch = 2\n").substr(0, 11), "run.toml:1:");
}

TEST(RunConfig, SetTakesTomlValuesAndBareStrings) {
  auto config = parse_run_config(kRun, "run.toml");
  ASSERT_TRUE(config);
  for (const char* assignment :
       {"optimizer.lr=3e-4", "plan=megatron(tp=2,dp=2)", "data=[\"a\", \"b\"]", "steps = 7",
        "precision=float64", "model=\"mlp:in=4\"", "optimizer=adamw"}) {
    const auto status = set_run_key(*config, assignment);
    EXPECT_TRUE(status) << status.error().message;
  }
  EXPECT_EQ(config->optimizer.lr, 3e-4);
  EXPECT_EQ(config->plan, "megatron(tp=2,dp=2)");
  EXPECT_THAT(config->data, ElementsAre("a", "b"));
  EXPECT_EQ(config->data_line, 0);
  EXPECT_EQ(config->steps, 7);
  EXPECT_EQ(config->precision, "float64");
  EXPECT_EQ(config->model, "mlp:in=4");
  EXPECT_EQ(config->optimizer.kind, "adamw");
}

TEST(RunConfig, SetErrorsRepeatTheAssignment) {
  EXPECT_EQ(set_error("step=3"), "--set step=3: unknown key 'step', did you mean 'steps'?");
  EXPECT_EQ(set_error("steps"), "--set steps: expected key=value");
  EXPECT_EQ(set_error("steps=x"),
            "--set steps=x: expected steps to be an integer of at least 1, found 'x'");
}

TEST(RunConfig, ModelAndDataMustBeGiven) {
  auto config = parse_run_config("batch = 2\n", "run.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(check_run_config(*config).error().message.substr(0, 39),
            "run.toml: expected the key 'model', for");
  config->model = "gpt";
  EXPECT_EQ(check_run_config(*config).error().message,
            "run.toml: expected the key 'data', for example data = [\"docs/**/*.md\"]");
  config->data = {"x"};
  EXPECT_TRUE(check_run_config(*config));
}

TEST(RunConfig, RandomDataIsAWordOfItsOwn) {
  RunConfig config;
  config.data = {"random"};
  EXPECT_TRUE(has_random_data(config));
  config.data = {"./random"};
  EXPECT_FALSE(has_random_data(config));
  config.data = {"random", "random"};
  EXPECT_FALSE(has_random_data(config));
}

TEST(RunConfig, DataErrorsEndInThePlaceOfTheKey) {
  auto config = parse_run_config("model = \"gpt\"\n\ndata = \"nowhere/*.txt\"\n", "run.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(open_run_data(*config, 8, 256).error().message,
            "data: no file matches 'nowhere/*.txt' (run.toml:3)");
  EXPECT_EQ(open_run_data(*config, 8, 128).error().message,
            "data: bytes are the tokens, so the model needs vocab >= 256, found vocab = 128");
}

TEST(RunConfig, DataIsFoundBesideTheRunFile) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("tessera_run_config_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file((folder / "a_text.txt").string(), "some bytes"));
  const auto config =
      parse_run_config("model = \"gpt\"\ndata = \"a_t*.txt\"\n", (folder / "run.toml").string());
  ASSERT_TRUE(config);
  const auto data = open_run_data(*config, 4, 256);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->bytes(), 10);
  std::filesystem::remove_all(folder);
}

TEST(LearningRate, WarmsUpLinearlyThenFallsToTheMinimum) {
  OptimizerConfig optimizer;
  optimizer.lr = 1;
  optimizer.min_lr = 0.1;
  optimizer.warmup = 10;
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 1, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 10, 110), 1);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 60, 110), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 110, 110), 0.1);
  optimizer.warmup = 0;
  EXPECT_GT(learning_rate(optimizer, 1, 10), 0.9);
  optimizer.min_lr = 2;
  EXPECT_DOUBLE_EQ(learning_rate(optimizer, 5, 10), 1);
}

TEST(RunConfig, GroupsOfParametersAreTrainedOtherwise) {
  const auto config = parse_run_config(
      "[optimizer]\nkind = \"muon\"\ngroup = [\n"
      "  { parameters = \"head\", kind = \"adamw\", rate = 0.5 },\n"
      "  { parameters = \"blocks.*.ln_*\", weight_decay = 0 },\n]\n",
      "run.toml");
  ASSERT_TRUE(config) << config.error().message;
  const OptimizerSpec spec = specification(config->optimizer);
  ASSERT_EQ(spec.groups.size(), 2U);
  EXPECT_EQ(spec.groups[0], (OptimizerGroup{"head", 0.5, std::nullopt, "adamw"}));
  EXPECT_EQ(spec.groups[1], (OptimizerGroup{"blocks.*.ln_*", 1, 0.0, ""}));
  const auto error = [](const std::string& text) {
    const auto wrong = parse_run_config("[optimizer]\ngroup = " + text + "\n", "run.toml");
    EXPECT_FALSE(wrong) << text;
    return wrong ? "" : wrong.error().message;
  };
  EXPECT_EQ(error("3"), "run.toml:2: expected optimizer.group to be a list of tables, found 3");
  EXPECT_EQ(error("[{ rate = 2 }]"),
            "run.toml:2: optimizer.group: expected the key 'parameters', for example parameters = "
            "\"embed\"");
  EXPECT_EQ(error("[{ parameters = \"a\", lr = 2 }]"),
            "run.toml:2: optimizer.group: expected parameters, rate, weight_decay or kind, found "
            "'lr'");
  EXPECT_EQ(error("[{ parameters = \"a\", rate = -1 }]"),
            "run.toml:2: expected rate to be a number of at least 0, found -1");
}

}  // namespace
}  // namespace tessera
