// Tests the contract of paths and dims: every family keeps it, and the error for a model that
// breaks it says what was expected, which recipes need it, and what was found.
#include "tessera/models/contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/models/families.h"
#include "tessera/models/huggingface/huggingface.h"
#include "tessera/models/huggingface/huggingface_defaults.h"
#include "tessera/models/nn.h"
#include "tessera/models/planning_model.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

// Names of a model of one linear layer in one block; the defaults are those of the contract.
struct Names {
  std::string batch = "batch", block = "blocks.0", layer = "mlp.up", features = "ffn",
              weight = "mlp.up.weight", head = "head", classes = "vocab", loss = "loss";
};

std::string breach_of(const Names& names) {
  GraphBuilder g("test");
  const Dim batch = {names.batch, 4}, hidden = {"hidden", 3}, features = {names.features, 2},
            classes = {names.classes, 5};
  const TensorId x = g.input("x", {batch, hidden}, DType::kFloat64);
  const TensorId targets = g.input("targets", {batch}, DType::kInt64);
  const auto product = [&](const std::string& path, TensorId input, const Dim& from, const Dim& to,
                           const std::string& weight) {
    const TensorId w = g.parameter(weight, {from, to}, normal(1), DType::kFloat64);
    return g.op1(path, "einsum", {input, w},
                 {{"spec", batch.name + " " + from.name + "+, " + from.name + " " + to.name +
                               " -> " + batch.name + " " + to.name}});
  };
  g.push(names.block);
  const TensorId h = product(names.layer, x, hidden, features, names.weight);
  g.pop();
  const TensorId logits = product(names.head, h, features, classes, "head.weight");
  g.graph().loss = cross_entropy_sum(g, names.loss, logits, targets, 4);
  const auto graph = g.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  if (!graph) return "";
  const auto status = check_contract(*graph);
  return status ? "none" : status.error().message;
}

TEST(Contract, EveryExampleOfEveryFamilyKeepsIt) {
  for (const ModelFamily& family : all_families()) {
    EXPECT_FALSE(family.examples.empty()) << family.name;
    for (const std::string& spec : family.examples) {
      const auto model = build_model(spec, 4);
      ASSERT_TRUE(model) << spec << ": " << model.error().message;
      EXPECT_TRUE(check_contract(model->graph)) << spec;
      EXPECT_EQ(model->family, family.name);
      EXPECT_GT(model->vocab, 1) << spec;
    }
  }
}

TEST(Contract, AModelWithTheRightNamesKeepsIt) { EXPECT_EQ(breach_of({}), "none"); }

TEST(Contract, ABreachSaysWhatWasExpectedAndFoundAndWhoNeedsIt) {
  EXPECT_EQ(breach_of({.layer = "dense.up", .weight = "dense.up.weight"}),
            "expected the dim 'ffn' in ops blocks.<i>.{mlp,moe} and in no other op of a block, "
            "found op 'blocks.0.dense.up' with the dims batch hidden ffn (needed by recipes "
            "tensor_parallel, megatron, summa, tensor_parallel_3d, co_shard)");
  EXPECT_EQ(breach_of({.features = "width"}),
            "expected the dim 'ffn' in ops blocks.<i>.{mlp,moe} and in no other op of a block, "
            "found op 'blocks.0.mlp.up' with the dims batch hidden width (needed by recipes "
            "tensor_parallel, megatron, summa, tensor_parallel_3d, co_shard)");
  EXPECT_EQ(breach_of({.weight = "mlp.up.kernel"}),
            "expected parameters with names that end in 'weight' or 'bias', found parameter "
            "'blocks.0.mlp.up.kernel' (needed by recipe per_layer)");
}

TEST(Contract, EachClauseIsChecked) {
  const auto found = [](const Names& names) {
    const std::string breach = breach_of(names);
    const size_t begin = breach.find("found ");
    return begin == std::string::npos
               ? breach
               : breach.substr(begin + 6, breach.find(" (needed") - begin - 6);
  };
  EXPECT_EQ(found({.batch = "rows"}), "input 'x' [rows=4, hidden=3]");
  EXPECT_EQ(found({.block = "blocks.1"}), "op 'blocks.1.mlp.up' before block 0");
  EXPECT_EQ(found({.features = "heads"}), "op 'blocks.0.mlp.up' with the dims batch hidden heads");
  EXPECT_EQ(found({.layer = "attn.q"}), "op 'blocks.0.attn.q' with the dims batch hidden ffn");
  EXPECT_EQ(found({.features = "kv"}), "op 'blocks.0.mlp.up' with the dims batch hidden kv");
  EXPECT_EQ(found({.features = "experts"}),
            "op 'blocks.0.mlp.up' with the dims batch hidden experts");
  EXPECT_EQ(found({.layer = "moe.up"}), "op 'blocks.0.moe.up' with the dims batch hidden ffn");
  EXPECT_EQ(found({.head = "final.out"}), "op 'final.out' with the dims batch ffn vocab");
  EXPECT_EQ(found({.classes = "classes", .loss = "end"}), "op 'end.mean'");
}

// Expects `table` as the part of the page between the marker and the next end; with
// TESSERA_REWRITE_GOLDEN set, writes the part anew.
void expect_table(const std::string& name, const std::string& table) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/reference/models.md";
  const auto text = read_file(path);
  ASSERT_TRUE(text) << text.error().message;
  const std::string marker = "<!-- table: " + name + " -->\n";
  const size_t begin = text->find(marker);
  ASSERT_NE(begin, std::string::npos) << "the page lacks " << marker;
  const size_t from = begin + marker.size(), to = text->find("<!-- end -->\n", from);
  ASSERT_NE(to, std::string::npos) << "the page lacks an end of " << name;
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, text->substr(0, from) + table + text->substr(to)));
    return;
  }
  EXPECT_EQ(text->substr(from, to - from), table);
}

TEST(ModelDocs, ListTheFamiliesOfTheRegistry) {
  std::string table = "| family | what it is | keys and defaults |\n|---|---|---|\n";
  for (const ModelFamily& family : all_families()) {
    std::vector<std::string> keys;
    for (const ModelKeyText& key : family.keys)
      keys.push_back("`" + key.name + "=" + key.value + "`");
    table += "| `" + family.name + "` | " + family.summary + " | " + join(keys, " ") + " |\n";
  }
  expect_table("families", table);
}

// Compares the keys of a config.json and their defaults, for files that leave keys out.
TEST(ModelDocs, ListTheKeysOfHuggingFace) {
  const auto defaults = nlohmann::json::parse(huggingface_defaults());
  std::string table = "| model_type | keys that are read, with their defaults |\n|---|---|\n";
  for (const std::string& type : huggingface_model_types()) {
    std::vector<std::string> keys;
    for (const std::string& key : huggingface_keys(type)) {
      const auto at = defaults[type].find(key);
      keys.push_back(at == defaults[type].end() ? "`" + key + "`"
                                                : "`" + key + "=" + at->dump() + "`");
    }
    table += "| " + type + " | " + join(keys, " ") + " |\n";
  }
  expect_table("huggingface", table);
}

// Compares what planning approximates in files as they are published (planning_model_test.cc).
TEST(ModelDocs, SayWhatPlanningApproximates) {
  const std::filesystem::path folder =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/models/configs";
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    files.push_back(file.path().string());
  std::sort(files.begin(), files.end());
  std::string table = "| model_type | what planning approximates |\n|---|---|\n";
  for (const std::string& file : files) {
    const auto model = read_for_planning(file);
    ASSERT_TRUE(model) << model.error().message;
    const std::string name = std::filesystem::path(file).stem().string();
    const std::string near = join(model->approximations, "; ");
    table += "| " + name + " | " + (near.empty() ? "nothing" : near) + " |\n";
  }
  expect_table("approximations", table);
}

TEST(ModelDocs, StateTheContract) {
  std::string table = "| clause | a model has | recipes that rely on it |\n|---|---|---|\n";
  for (const ContractClause& clause : contract()) {
    table += "| " + clause.name + " | " + clause.expected + " | `" + join(clause.recipes, "` `") +
             "` |\n";
  }
  expect_table("contract", table);
}

}  // namespace
}  // namespace tessera
