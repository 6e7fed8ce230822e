#include "tessera/plan/recipes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/plan/prepare.h"
#include "tessera/plan/test_graphs.h"

namespace tessera {
namespace {

std::string emit(std::string_view call, const Graph& graph) {
  const auto text = emit_recipe(call, graph);
  return text ? *text : text.error().message;
}

TEST(Recipes, GoldenTexts) {
  TestModel model;
  model.layers = 5;
  const Graph graph = test_transformer(model);
  EXPECT_EQ(emit("serial", graph), "# serial\nmesh = {}\n");
  EXPECT_EQ(emit("data_parallel(4)", graph), R"(# data_parallel(4)
mesh = { dp = 4 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
)");
  EXPECT_EQ(emit("zero(stage=3, dp=4)", graph), R"(# zero(stage=3, dp=4)
mesh = { dp = 4 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
store = [
  { tensors = "optimizer.*",    over = "dp" },
  { tensors = "role:gradient",  over = "dp" },
  { tensors = "role:parameter", over = "dp" },
]
)");
  EXPECT_EQ(emit("compressed(2, with=topk:0.01)", graph), R"(# compressed(2, with=topk:0.01)
mesh = { dp = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
compress = [
  { tensors = "role:gradient", with = "topk:0.01", error_feedback = true },
]
)");
  EXPECT_EQ(emit("tensor_parallel(tp=2)", graph), R"(# tensor_parallel(tp=2)
mesh = { tp = 2 }
split = [
  { ops = "blocks.*.attn",     dim = "heads", over = "tp" },
  { ops = "blocks.*.mlp",      dim = "ffn",   over = "tp" },
  { ops = "{embed,head,loss}", dim = "vocab", over = "tp" },
]
)");
  EXPECT_EQ(emit("gpipe(pp=2, micro_batches=4)", graph), R"(# gpipe(pp=2, micro_batches=4)
mesh = { pp = 2 }
micro_batches = 4
schedule = "gpipe"
stage = [
  { ops = "{embed,blocks.[0-2]}",           at = 0 },
  { ops = "{blocks.[3-4],final,head,loss}", at = 1 },
]
)");
  EXPECT_EQ(emit("one_f_one_b(4, 8)", graph), R"(# one_f_one_b(4, 8)
mesh = { pp = 4 }
micro_batches = 8
schedule = "1f1b"
stage = [
  { ops = "{embed,blocks.[0-1]}",       at = 0 },
  { ops = "blocks.2",                   at = 1 },
  { ops = "blocks.3",                   at = 2 },
  { ops = "{blocks.4,final,head,loss}", at = 3 },
]
)");
}

TEST(Recipes, GoldenTextsOfCombinations) {
  const Graph graph = test_transformer();
  EXPECT_EQ(emit("megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=4)", graph),
            R"(# megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=4)
mesh = { pp = 2, dp = 2, tp = 2 }
micro_batches = 4
schedule = "1f1b"
split = [
  { ops = "*",                 dim = "batch", over = "dp" },
  { ops = "blocks.*.attn",     dim = "heads", over = "tp" },
  { ops = "blocks.*.mlp",      dim = "ffn",   over = "tp" },
  { ops = "{embed,head,loss}", dim = "vocab", over = "tp" },
]
stage = [
  { ops = "{embed,blocks.0}",           at = 0 },
  { ops = "{blocks.1,final,head,loss}", at = 1 },
]
store = [
  { tensors = "optimizer.*", over = "dp" },
]
)");
  EXPECT_EQ(emit("summa(q=2)", graph), R"(# summa(q=2)
mesh = { row = 2, col = 2 }
split = [
  { ops = "*",                      dim = "batch",  over = "row" },
  { ops = "*",                      dim = "hidden", over = "col" },
  { ops = "blocks.*.attn.{q,k,v}",  dim = "hidden", over = "time:2" },
  { ops = "blocks.*.mlp.{up,gate}", dim = "hidden", over = "time:2" },
  { ops = "blocks.*.attn",          dim = "heads",  over = "col" },
  { ops = "blocks.*.mlp",           dim = "ffn",    over = "col" },
  { ops = "blocks.*.attn.out",      dim = "heads",  over = "time:2" },
  { ops = "blocks.*.mlp.down",      dim = "ffn",    over = "time:2" },
  { ops = "{embed.token,head}",     dim = "vocab",  over = "time:2" },
  { ops = "loss",                   dim = "vocab",  over = "col" },
]
store = [
  { tensors = "role:parameter", over = "row" },
]
)");
}

TEST(Recipes, AxesOfSizeOneAreLeftOut) {
  const Graph graph = test_transformer();
  EXPECT_EQ(emit("megatron()", graph), "# megatron()\nmesh = {}\n");
  EXPECT_EQ(emit("megatron(dp=2, zero=1)", graph), R"(# megatron(dp=2, zero=1)
mesh = { dp = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
store = [
  { tensors = "optimizer.*", over = "dp" },
]
)");
  EXPECT_EQ(emit("megatron(micro_batches=2)", graph),
            "# megatron(micro_batches=2)\nmesh = {}\nmicro_batches = 2\nschedule = \"1f1b\"\n");
}

TEST(Recipes, QueryGroupsAreCutWhenKeyHeadsAreTooFew) {
  TestModel model;
  model.heads = 2;
  model.group = 4;
  const std::string text = emit("tensor_parallel(4)", test_transformer(model));
  EXPECT_NE(text.find("{ ops = \"blocks.*.attn\",     dim = \"group\", over = \"tp\" }"),
            std::string::npos)
      << text;
}

TEST(Recipes, EveryRecipeMakesAPlanThatResolves) {
  TestModel model;
  model.layers = 4;
  const auto trained = differentiate(test_transformer(model), OptimizerSpec{});
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  const std::vector<std::pair<std::string, int64_t>> calls{
      {"serial", 1},
      {"data_parallel(dp=4)", 4},
      {"zero(1, 4)", 4},
      {"zero(2, 4)", 4},
      {"zero(3, 4)", 4},
      {"tensor_parallel(3)", 3},
      {"gpipe(2, 4)", 2},
      {"one_f_one_b(pp=4, micro_batches=8)", 4},
      {"megatron(tp=2, pp=2, dp=2, zero=2, micro_batches=4, schedule=\"gpipe\")", 8},
      {"summa(2)", 4}};
  for (const auto& [call, ranks] : calls) {
    const auto text = emit_recipe(call, *trained);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    EXPECT_LE(std::count(text->begin(), text->end(), '\n'), 40) << *text;
    const auto plan = parse_plan(*text, call);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    const auto prepared = prepare(*trained, *plan);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    EXPECT_EQ(prepared->plan.ranks, ranks) << call;
    // The text from the forward graph alone is the same.
    EXPECT_EQ(emit(call, test_transformer(model)), *text);
  }
}

TEST(Recipes, ErrorsNameRecipeAndArgument) {
  const Graph graph = test_transformer();
  struct Case {
    std::string call, message;
  };
  const std::vector<Case> cases{
      {"megatrom(tp=2)", "unknown recipe 'megatrom', did you mean 'megatron'?"},
      {"megatron(tq=2)", "recipe megatron: unknown argument 'tq', did you mean 'tp'?"},
      {"zero(stage=1)", "recipe zero: argument 'dp' is missing: expected zero(stage, dp)"},
      {"zero(stage=4, dp=2)", "recipe zero: expected stage = 1, 2 or 3, found 4"},
      {"zero(0, 2)", "recipe zero: expected stage >= 1 (a whole number), found '0'"},
      {"zero(1, 2, 3)", "recipe zero: too many arguments: expected zero(stage, dp)"},
      {"zero(1, stage=2)", "recipe zero: argument 'stage' is given twice"},
      {"data_parallel(dp=four)",
       "recipe data_parallel: expected dp >= 1 (a whole number), found 'four'"},
      {"serial(2)", "recipe serial: too many arguments: expected serial()"},
      {"gpipe(pp=3, micro_batches=4)",
       "recipe gpipe: pp = 3 needs at least 3 blocks, but the graph has 2"},
      {"tensor_parallel(8)",
       "recipe tensor_parallel: tp = 8 is more than the 4 attention heads (heads = 4, group = 1)"},
      {"summa(5)", "recipe summa: q = 5 is more than the 4 attention heads (heads = 4, group = 1)"},
      {"megatron(schedule=1f2b)", "recipe megatron: unknown schedule '1f2b', did you mean '1f1b'?"},
      {"megatron(zero=4)", "recipe megatron: expected zero = 0, 1, 2 or 3, found 4"},
  };
  for (const Case& c : cases) EXPECT_EQ(emit(c.call, graph), c.message) << c.call;
  EXPECT_EQ(emit("tensor_parallel(2)", test_mlp()),
            "recipe tensor_parallel: tensor parallelism needs ops blocks.*.attn with the dim "
            "'heads', blocks.*.mlp with "
            "'ffn' or {embed,head,loss} with 'vocab', found none");
}

TEST(Recipes, TheListNamesEveryArgument) {
  for (const Recipe& recipe : all_recipes()) {
    EXPECT_EQ(find_recipe(recipe.name), &recipe);
    EXPECT_FALSE(recipe.summary.empty());
    for (const RecipeArgument& argument : recipe.arguments) EXPECT_FALSE(argument.meaning.empty());
  }
  EXPECT_EQ(signature(*find_recipe("megatron")),
            "megatron(tp=1, pp=1, dp=1, zero=0, micro_batches=1, schedule=1f1b)");
}

}  // namespace
}  // namespace tessera
