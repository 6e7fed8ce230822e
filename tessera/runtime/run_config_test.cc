#include "tessera/runtime/run_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/text.h"

namespace tessera::run_config_test {
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
  EXPECT_EQ(config->data, (DataConfig{"docs/*.md", "x.txt"}));
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

TEST(RunConfig, ADtypeHasTheWordsThatPeopleWrite) {
  for (const auto& [word, name] : {std::pair{"bf16", "bfloat16"}, {"half", "float16"}}) {
    const auto config = parse_run_config(fmt::format("precision = \"{}\"\n", word), "run.toml");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->precision, name);
  }
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
  EXPECT_EQ(config->data, (DataConfig{"a", "b"}));
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
  EXPECT_TRUE(config.data.random);
  config.data = {"./random"};
  EXPECT_FALSE(config.data.random);
  config.data = {"random", "random"};
  EXPECT_FALSE(config.data.random);
}

TEST(RunConfig, DataMayBeTables) {
  const auto config = parse_run_config(R"toml(data = [
  { files = "a.idx", weight = 3 },
  { files = ["b.bin", "c.bin"], format = "uint16", documents = "padded", end_of_document = 0, weight = 1 },
]
)toml",
                                       "run.toml");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->data.tokens.size(), 2U);
  EXPECT_EQ(config->data.tokens[0].weight, 3);
  EXPECT_FALSE(config->data.tokens[0].padded);
  EXPECT_EQ(config->data.tokens[0].end_of_document, -1);
  EXPECT_THAT(config->data.tokens[1].files, ElementsAre("b.bin", "c.bin"));
  EXPECT_EQ(config->data.tokens[1].format, "uint16");
  EXPECT_TRUE(config->data.tokens[1].padded);
  EXPECT_EQ(config->data.tokens[1].end_of_document, 0);
  RunConfig arrays;
  ASSERT_TRUE(set_run_key(arrays, "data={ arrays = { x = \"x.npy\" }, scale = 0.5 }"));
  EXPECT_EQ(arrays.data.arrays.at("x"), "x.npy");
  EXPECT_EQ(arrays.data.scale, 0.5);
  RunConfig clicks;
  ASSERT_TRUE(set_run_key(clicks, "data={ clicks = \"day.clicks\" }"));
  EXPECT_EQ(clicks.data.clicks, "day.clicks");
  EXPECT_TRUE(clicks.data.given());
}

TEST(RunConfig, DataAsTextIsReadBackAsItWas) {
  for (const char* value :
       {R"(["docs/*.md", "a \"quoted\" name.txt"])", R"("random")", R"({ files = "a.idx" })",
        R"([{ files = "a.idx", weight = 3 }, { files = ["b", "c"], format = "uint16", weight = 0.1,
             documents = "padded", end_of_document = 7 }])",
        R"({ arrays = { images = "x.npy", "odd name" = "y.npy" }, scale = 1e-3 })",
        R"({ arrays = { x = "x.npy", y = "x.npy" }, ahead = { y = 1 }, shift = 4, flip = true })",
        R"({ clicks = "runs/a \"day\".clicks" })", R"({ nodes = "graphs/a", part = "val" })",
        R"({ nodes = "graphs/a" })"}) {
    RunConfig config, again;
    ASSERT_TRUE(set_run_key(config, fmt::format("data={}", value)));
    const std::string text = to_text(config.data);
    ASSERT_TRUE(set_run_key(again, "data=" + text)) << text;
    EXPECT_EQ(again.data, config.data) << text;
  }
}

TEST(RunConfig, TheTextOfARunHoldsItsData) {
  const auto config = parse_run_config(
      "model = \"gpt\"\nbatch = 4\ndata = { files = \"a.idx\" }\nfolder = \"runs/a\"\n[eval]\n"
      "data = [\"b.txt\"]\nevery = 7\n",
      "run.toml");
  ASSERT_TRUE(config) << config.error().message;
  const auto again = parse_run_config(to_text(*config), "again.toml");
  ASSERT_TRUE(again) << again.error().message << "\n" << to_text(*config);
  EXPECT_EQ(again->data, config->data);
  EXPECT_EQ(again->eval.data, config->eval.data);
  EXPECT_EQ(again->eval.every, 7);
  EXPECT_EQ(again->folder, "runs/a");
}

TEST(RunConfig, EvaluationsHaveDataOfTheirOwn) {
  const auto config = parse_run_config(
      "model = \"gpt\"\ndata = \"a\"\nfolder = \"runs/a\"\n\n[eval]\nevery = 5\n"
      "data = { files = \"e.bin\", format = \"uint32\" }\nbatches = 3\n",
      "run.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->folder, "runs/a");
  EXPECT_EQ(config->eval.every, 5);
  EXPECT_EQ(config->eval.batches, 3);
  EXPECT_EQ(config->eval.data.tokens.at(0).format, "uint32");
  EXPECT_EQ(config->eval.data_line, 7);
  EXPECT_EQ(parse_error("[eval]\nevry = 5\n"),
            "run.toml:2: unknown key 'eval.evry', did you mean 'eval.every'?");
  RunConfig inline_table;
  EXPECT_EQ(set_error("eval.every=0"),
            "--set eval.every=0: expected eval.every to be an integer of at least 1, found 0");
  ASSERT_TRUE(set_run_key(inline_table, "eval.data=random"));
  EXPECT_TRUE(inline_table.eval.data.random);
}

TEST(RunConfig, ErrorsOfDataTablesNameTheKey) {
  EXPECT_EQ(parse_error("data = { files = \"a\", formt = \"npy\" }\n"),
            "run.toml:1: unknown key 'data.formt', did you mean 'format'?");
  EXPECT_EQ(parse_error("data = { files = \"a\", format = \"uint8\" }\n"),
            "run.toml:1: expected data.format to be one of bytes, uint16, uint32, npy, megatron, "
            "found 'uint8'");
  EXPECT_EQ(parse_error("data = { files = \"a\", weight = -1 }\n"),
            "run.toml:1: expected data.weight to be a number above 0, found -1");
  EXPECT_EQ(parse_error("data = { format = \"npy\" }\n"),
            "run.toml:1: data: expected the key 'files', 'arrays', 'hdf5', 'clicks' or 'nodes', "
            "found none of them");
  EXPECT_EQ(parse_error("data = { nodes = \"a\", scale = 2 }\n"),
            "run.toml:1: data: expected the keys 'nodes' and 'part' together, found 'scale'");
  EXPECT_EQ(parse_error("data = { nodes = \"a\", part = \"rest\" }\n"),
            "run.toml:1: expected data.part to be one of train, val, test, found 'rest'");
  EXPECT_EQ(parse_error("data = { nodes = 3 }\n"),
            "run.toml:1: expected data.nodes to be what the paths of a graph's files begin with, "
            "found an integer");
  EXPECT_EQ(parse_error("data = { arrays = 3 }\n"),
            "run.toml:1: expected data.arrays to be a table of files by input of the model, "
            "found an integer");
  EXPECT_EQ(
      parse_error("data = { arrays = { x = \"x.npy\" }, weight = 3 }\n"),
      "run.toml:1: data: expected the keys 'arrays', 'scale', 'ahead', 'shift', 'flip' and 'store' "
      "together, found 'weight'");
  EXPECT_EQ(parse_error("data = { hdf5 = \"a.h5\", inputs = \"x\" }\n"),
            "run.toml:1: data: expected the key 'labels' beside 'hdf5', found none");
  EXPECT_EQ(parse_error("data = { hdf5 = \"a.h5\", inputs = 3, labels = \"y\" }\n"),
            "run.toml:1: expected data.inputs to be the name of a dataset, found an integer");
  EXPECT_EQ(
      parse_error("data = { hdf5 = \"a.h5\", inputs = \"x\", labels = \"y\", files = \"z\" }\n"),
      "run.toml:1: data: expected the keys 'hdf5', 'inputs', 'labels', 'scale' and 'store' "
      "together, "
      "found 'files'");
  EXPECT_EQ(parse_error("data = [{ files = \"a\" }, \"b\"]\n"),
            "run.toml:1: expected data to be a list of tables, or one of globs, found a list");
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
      "  { parameters = \"blocks.*.ln_*\", weight_decay = 0, rounding = \"stochastic\" },\n]\n",
      "run.toml");
  ASSERT_TRUE(config) << config.error().message;
  const OptimizerSpec spec = specification(config->optimizer);
  ASSERT_EQ(spec.groups.size(), 2U);
  EXPECT_EQ(spec.groups[0], (OptimizerGroup{"head", 0.5, std::nullopt, "adamw", ""}));
  EXPECT_EQ(spec.groups[1], (OptimizerGroup{"blocks.*.ln_*", 1, 0.0, "", "stochastic"}));
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
            "run.toml:2: optimizer.group: expected parameters, rate, weight_decay, kind or "
            "rounding, found 'lr'");
  EXPECT_EQ(error("[{ parameters = \"a\", rounding = \"up\" }]"),
            "run.toml:2: expected rounding to be one of nearest, stochastic, found 'up'");
  EXPECT_EQ(error("[{ parameters = \"a\", rate = -1 }]"),
            "run.toml:2: expected rate to be a number of at least 0, found -1");
}

}  // namespace
}  // namespace tessera::run_config_test
