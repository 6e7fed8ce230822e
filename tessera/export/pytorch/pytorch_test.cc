#include "tessera/export/pytorch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tessera::pytorch_test {
namespace {

// A model of two blocks as an import writes it: ops have the paths of recipes, parameters the names
// of the module.
std::string model_text() {
  std::string out = R"(graph "imported"
input %x [batch=8, seq=4, hidden=8] float32
input %y [batch=8, seq=4] int64
activation %net.enter [batch=8, seq=4, hidden=8] float32
forward op "net.enter" %net.enter = relu(%x)
)";
  std::string before = "net.enter";
  for (const char* block : {"0", "1"}) {
    std::string text =
        R"(parameter %net.layers.#.up.weight [ffn=16, hidden=8] float32 init=normal(0.1)
activation %blocks.#.mlp.up [batch=8, seq=4, ffn=16] float32
forward op "blocks.#.mlp.up" %blocks.#.mlp.up = einsum(%BEFORE, %net.layers.#.up.weight) {spec="batch seq hidden, ffn hidden -> batch seq ffn"}
activation %blocks.#.mlp.act [batch=8, seq=4, ffn=16] float32
forward op "blocks.#.mlp.act" %blocks.#.mlp.act = relu(%blocks.#.mlp.up)
parameter %net.layers.#.down.weight [hidden=8, ffn=16] float32 init=normal(0.1)
activation %blocks.#.mlp.down [batch=8, seq=4, hidden=8] float32
forward op "blocks.#.mlp.down" %blocks.#.mlp.down = einsum(%blocks.#.mlp.act, %net.layers.#.down.weight) {spec="batch seq ffn, hidden ffn -> batch seq hidden"}
activation %blocks.#.add [batch=8, seq=4, hidden=8] float32
forward op "blocks.#.add" %blocks.#.add = add(%BEFORE, %blocks.#.mlp.down)
)";
    for (size_t at = text.find("BEFORE"); at != std::string::npos; at = text.find("BEFORE"))
      text.replace(at, 6, before);
    for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#'))
      text.replace(at, 1, block);
    before = std::string("blocks.") + block + ".add";
    out += text;
  }
  return out +
         R"(activation %net.leave [batch=8, seq=4, hidden=8] float32
forward op "net.leave" %net.leave = relu(%blocks.1.add)
parameter %net.head.weight [part=2, vocab=8, hidden=8] float32 init=normal(0.1) published="(part vocab) hidden"
activation %head.net.head [batch=8, seq=4, part=2, vocab=8] float32
forward op "head.net.head" %head.net.head = einsum(%net.leave, %net.head.weight) {spec="batch seq hidden, part vocab hidden -> batch seq part vocab"}
activation %sum [batch=8, seq=4, vocab=8] float32
forward op "sum" %sum = reduce_sum(%head.net.head) {dims="part", factor=1}
activation %lse [batch=8, seq=4] float32
activation %picked [batch=8, seq=4] float32
forward op "loss.parts" %lse, %picked = cross_entropy(%sum, %y)
activation %each [batch=8, seq=4] float32
forward op "loss.each" %each = sub(%lse, %picked)
activation %loss [] float32
forward op "loss.mean" %loss = reduce_sum(%each) {dims="batch seq", factor=0.03125}
loss %loss
)";
}

class PyTorch : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() /
        ("tessera_pytorch_" + std::to_string(std::hash<std::string>{}(
                                  testing::UnitTest::GetInstance()->current_test_info()->name())));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "model.graph") << model_text();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<PyTorchFile> written(const std::string& plan) const {
    return export_pytorch({folder_ / "model.graph", plan});
  }
  // Returns the text for a plan, which PyTorch can run.
  std::string text(const std::string& plan) const {
    const auto file = written(plan);
    EXPECT_TRUE(file) << file.error().message;
    return file ? file->text : "";
  }
  std::string refusal(const std::string& plan) const {
    const auto file = written(plan);
    EXPECT_FALSE(file) << file->text;
    return file ? "" : file.error().message;
  }

 private:
  std::filesystem::path folder_;
};

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected\n" << part << "\nin\n" << text;
}
void expect_lacks(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << "did not expect\n" << part << "\nin\n" << text;
}

TEST_F(PyTorch, LayoutsOfParametersAndActivationsFollowFromTheSplits) {
  const std::string file = text(R"(# by hand
mesh = { data = 2, model = 2 }
split = [
  { ops = "*",            dim = "batch", over = "data" },
  { ops = "blocks.*.mlp", dim = "ffn",   over = "model" },
]
)");
  expect_has(
      file,
      R"(init_device_mesh(device_type, (2, 1, 2), mesh_dim_names=("data", "whole", "model")))");
  expect_has(file, R"(# Parameters in pieces over 'model' (line 5). All others are whole.
CUT = {
    **{
        f"net.layers.{block}.{path}": value
        for block in range(2)
        for path, value in {
            "down.weight": Shard(1),
            "up.weight": Shard(0),
        }.items()
    },
}
ENTERS = {}  # How activations lie that enter these modules.
# How activations lie that leave these modules.
LEAVES = {
    **{
        f"net.layers.{block}.{path}": value
        for block in range(2)
        for path, value in {
            "down": Replicate(),
        }.items()
    },
}
)");
  expect_lacks(file, "loss_parallel");
}

TEST_F(PyTorch, TokensBetweenProductsAreShardsInDimOne) {
  const std::string file = text(R"(# tokens
mesh = { tp = 2 }
split = [
  { ops = "blocks.*.{mlp.up,mlp.act,mlp.down}", dim = "ffn", over = "tp" },
  { ops = "blocks.*.add",                       dim = "seq", over = "tp" },
]
)");
  expect_has(file, R"("down": Shard(1),)");  // what leaves the module
  expect_has(file, R"(ENTERS = {)");         // the next product gathers tokens
  expect_has(file, R"("net.layers.1.up": Replicate(),)");
}

TEST_F(PyTorch, ShardingIsOfUnitsAndLevels) {
  const std::string zero1 = text("zero(stage=1,dp=2,micro_batches=2)");
  expect_has(zero1, "RESHARD_AFTER_FORWARD = False");
  expect_has(zero1, "SYNC_EVERY = False");
  const std::string zero2 = text("zero(stage=2,dp=2,micro_batches=2)");
  expect_has(zero2, "RESHARD_AFTER_FORWARD = False");
  expect_has(zero2, "SYNC_EVERY = True");
  const std::string hybrid = text("fsdp(dp=2,replicas=2)");
  expect_has(hybrid, "RESHARD_AFTER_FORWARD = True");
  expect_has(hybrid, R"(shard(model, mesh["replicas", "dp"]))");
  expect_has(hybrid, R"(UNITS = tuple(f"net.layers.{block}" for block in range(2)))");
}

TEST_F(PyTorch, BlocksAreMadeAgain) {
  const std::string file = text(R"(# again
mesh = { dp = 2 }
split = [ { ops = "*", dim = "batch", over = "dp" } ]
store = [
  { tensors = "blocks.*",     recompute = true },
  { tensors = "blocks.*.add", recompute = false },
]
)");
  expect_has(file, "REMADE = (\n    \"net.layers.0\",\n    \"net.layers.1\",\n)");
}

TEST_F(PyTorch, StagesBeginWithModules) {
  const std::string file = text("gpipe(pp=2,micro_batches=4)");
  expect_has(file, R"(STAGE_STARTS = ("net.layers.1",))");
  expect_has(file, "ScheduleGPipe(parts[0], MICRO_BATCHES");
}

TEST_F(PyTorch, StagesAreLaidOutAndMadeAgain) {
  const std::string file = text(R"(# stages
mesh = { pp = 2, tp = 2 }
split = [ { ops = "blocks.*.mlp", dim = "ffn", over = "tp" } ]
stage = [ { ops = "{embed,blocks.0}", at = 0 }, { ops = "{blocks.1,head,loss}", at = 1 } ]
store = [
  { tensors = "blocks.*",     recompute = true },
  { tensors = "blocks.*.add", recompute = false },
]
)");
  for (const char* part : {R"(STAGE_STARTS = ("net.layers.1",))", "REMADE = (", "class Remade",
                           R"("up.weight": Shard(0),)", R"(cut_parameters(stage, mesh["tp"]))",
                           "without_checks(torch.export.export", "with running(mesh):"})
    expect_has(file, part);
  const std::string plain = text("gpipe(pp=2,micro_batches=4)");
  for (const char* part : {"Remade", "without_checks", "cut_parameters", "running(mesh)"})
    expect_lacks(plain, part);
}

TEST_F(PyTorch, WhatPyTorchCannotRunIsOneLineWithTheEntryAndTheNearestPlan) {
  const auto expect = [&](const std::string& plan, const std::string& message) {
    const std::string found = refusal(plan);
    expect_has(found, message);
    expect_has(found, "; nearest: ");
    expect_lacks(found, "\n");
  };
  expect("# p\nmesh = { a = 2 }\nsplit = [ { ops = \"head\", dim = \"vocab\", over = \"a\" } ]\n",
         "p:3 (ops = \"head\", dim = \"vocab\", over = \"a\"): PyTorch cannot run this: "
         "'net.head.weight' joins 'part' and 'vocab' in dim 0");
  expect(
      "# p\nmesh = { a = 2 }\nsplit = [ { ops = \"blocks.*.mlp\", dim = \"seq\", over = \"a\" } "
      "]\n",
      "cuts the tokens of products");
  expect(
      "# p\nmesh = { a = 2, b = 2 }\nsplit = [\n  { ops = \"blocks.0.mlp\", dim = \"ffn\", over = "
      "\"a\" },\n  { ops = \"blocks.1.mlp\", dim = \"ffn\", over = \"b\" },\n]\n",
      "2-D products");
  expect(
      "# p\nmesh = { a = 3 }\nsplit = [ { ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"a\" } "
      "]\n",
      "has 16 elements, in 3 unequal pieces; nearest: 2 pieces");
  expect("# p\nsplit = [ { ops = \"blocks.*.mlp\", dim = \"ffn\", over = \"time:2\" } ]\n",
         "no loops over time");
  expect(
      "# p\nmesh = { dp = 2 }\nsplit = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\nstore "
      "= [ { "
      "tensors = \"optimizer.*\", tier = \"host\" } ]\n",
      "CPUOffloadPolicy");
}

TEST_F(PyTorch, AModelWithNamesOfOursIsRefused) {
  const auto file =
      export_pytorch({"gpt:layers=2,hidden=32,heads=4,seq=16,vocab=64", "data_parallel(dp=2)"});
  ASSERT_FALSE(file);
  expect_has(file.error().message, "found the family 'gpt'");
}

}  // namespace
}  // namespace tessera::pytorch_test
