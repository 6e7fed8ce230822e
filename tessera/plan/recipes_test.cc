#include "tessera/plan/recipes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes/patterns.h"
#include "tessera/plan/recipes/writer.h"
#include "tessera/plan/test_graphs.h"

namespace tessera::recipes_test {
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
  EXPECT_EQ(emit("token_pipeline(pp=2, slices=2+1+1)", graph),
            R"(# token_pipeline(pp=2, slices=2+1+1)
mesh = { pp = 2 }
schedule = "token"
stage = [
  { ops = "{embed,blocks.[0-2]}",           at = 0 },
  { ops = "{blocks.[3-4],final,head,loss}", at = 1 },
]
loop = [
  { ops = "*", dim = "seq", sizes = [2, 1, 1], stages = true },
]
)");
  EXPECT_EQ(emit("token_pipeline(2, 2+3)", graph),
            "recipe token_pipeline: expected slices that add up to seq = 4 (or their number), "
            "found '2+3'");
  EXPECT_EQ(emit("co_shard(steps=2)", graph), R"(# co_shard(steps=2)
mesh = {}
loop = [
  { ops = "blocks.*.attn", dim = "heads", steps = 2, recompute = true },
  { ops = "blocks.*.mlp", dim = "ffn", steps = 2, recompute = true },
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
  { ops = "*",                     dim = "batch",  over = "row" },
  { ops = "*",                     dim = "hidden", over = "col" },
  { ops = "blocks.*.attn.{q,k,v}", dim = "hidden", over = "time:2" },
  { ops = "blocks.*.mlp.up",       dim = "hidden", over = "time:2" },
  { ops = "blocks.*.attn",         dim = "heads",  over = "col" },
  { ops = "blocks.*.mlp",          dim = "ffn",    over = "col" },
  { ops = "blocks.*.attn.out",     dim = "heads",  over = "time:2" },
  { ops = "blocks.*.mlp.down",     dim = "ffn",    over = "time:2" },
  { ops = "{embed.token,head}",    dim = "vocab",  over = "time:2" },
  { ops = "loss",                  dim = "vocab",  over = "col" },
]
store = [
  { tensors = "role:parameter", over = "row" },
]
)");
}

TEST(Recipes, PatternsOfGroupsAreThoseOfEachGroup) {
  TestModel model;
  model.layers = 5;
  const Graph graph = test_transformer(model);
  std::vector<OpId> forward;
  for (const Op& op : graph.ops()) {
    if (op.phase == Phase::kForward) forward.push_back(op.id);
  }
  // The groups are all rows of neighbouring ops that begin with every third op, and every second
  // op.
  std::vector<std::vector<OpId>> groups(1);
  for (size_t i = 0; i < forward.size(); i += 2) groups.front().push_back(forward[i]);
  for (auto first = forward.begin(); forward.end() - first > 3; first += 3) {
    for (auto last = first + 1; last != forward.end(); ++last) groups.emplace_back(first, last);
  }
  groups.push_back(forward);
  const auto patterns = recipes::patterns_of_each(graph, groups);
  ASSERT_EQ(patterns.size(), groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(patterns[g], recipes::patterns_of(graph, groups[g]));
    EXPECT_EQ(recipes::selected(graph, recipes::alternatives(patterns[g])), groups[g]);
  }
}

TEST(Recipes, LongSequences) {
  const Graph graph = test_transformer();
  EXPECT_EQ(emit("ring_attention(cp=4, inner=2)", graph), R"(# ring_attention(cp=4, inner=2)
mesh = { outer = 2, inner = 2 }
reorder = [ { dim = "seq", as = "zigzag", pieces = 8 } ]
split = [
  { ops = "*",                  dim = "seq", over = ["outer", "inner"] },
  { ops = "blocks.*.attn.core", dim = "kv",  over = "time:4",           order = "nested", skew = ["-outer", "-inner"] },
]
)");
  EXPECT_EQ(emit("rsa(sp=2)", graph), R"(# rsa(sp=2)
mesh = { sp = 2 }
expand = "blocks.*.attn.core"
split = [
  { ops = "*",                                  dim = "seq", over = "sp" },
  { ops = "blocks.*.attn.core.{scores,values}", dim = "kv",  over = "time:2", order = "rotated", skew = "-sp" },
]
)");
  EXPECT_EQ(emit("ulysses(2)", graph), R"(# ulysses(2)
mesh = { sp = 2 }
split = [
  { ops = "*",                  dim = "seq",   over = "sp" },
  { ops = "blocks.*.attn.core", dim = "seq",   over = [] },
  { ops = "blocks.*.attn.core", dim = "heads", over = "sp" },
]
)");
}

TEST(Recipes, GoldenTextsOfFamilies) {
  const Graph graph = test_transformer();
  EXPECT_EQ(emit("tensor_parallel(2, sequence_shard=true)", graph),
            R"(# tensor_parallel(2, sequence_shard=true)
mesh = { tp = 2 }
split = [
  { ops = "*",                              dim = "seq",   over = "tp" },
  { ops = "blocks.*.attn.{q,k,v,core,out}", dim = "seq",   over = [] },
  { ops = "blocks.*.mlp.{up,act,down}",     dim = "seq",   over = [] },
  { ops = "blocks.*.attn",                  dim = "heads", over = "tp" },
  { ops = "blocks.*.mlp",                   dim = "ffn",   over = "tp" },
  { ops = "{embed.token,head,loss}",        dim = "seq",   over = [] },
  { ops = "{embed,head,loss}",              dim = "vocab", over = "tp" },
]
)");
  EXPECT_EQ(emit("fsdp(2, replicas=2, recompute=full)", graph),
            R"(# fsdp(2, replicas=2, recompute=full)
mesh = { replicas = 2, dp = 2 }
prefetch = { units = "blocks.*", ahead = 1 }
split = [
  { ops = "*", dim = "batch", over = ["replicas", "dp"] },
]
store = [
  { tensors = "optimizer.*",           over = "dp" },
  { tensors = "role:gradient",         over = "dp" },
  { tensors = "role:parameter",        over = "dp" },
  { tensors = "blocks.*",              recompute = true },
  { tensors = "blocks.*.mlp.residual", recompute = false },
]
)");
  EXPECT_EQ(emit("fsdp(2, prefetch=2)", graph), R"(# fsdp(2, prefetch=2)
mesh = { dp = 2 }
prefetch = { units = "blocks.*", ahead = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
store = [
  { tensors = "optimizer.*",    over = "dp" },
  { tensors = "role:gradient",  over = "dp" },
  { tensors = "role:parameter", over = "dp" },
]
)");
  EXPECT_EQ(emit("cannon(2)", graph), R"(# cannon(2)
mesh = { row = 2, col = 2 }
split = [
  { ops = "*",                     dim = "batch",  over = "row" },
  { ops = "*",                     dim = "hidden", over = "col" },
  { ops = "blocks.*.attn.{q,k,v}", dim = "hidden", over = "time:2", order = "rotated", skew = ["row", "col"] },
  { ops = "blocks.*.mlp.up",       dim = "hidden", over = "time:2", order = "rotated", skew = ["row", "col"] },
  { ops = "blocks.*.attn",         dim = "heads",  over = "col" },
  { ops = "blocks.*.mlp",          dim = "ffn",    over = "col" },
  { ops = "blocks.*.attn.out",     dim = "heads",  over = "time:2", order = "rotated", skew = ["row", "col"] },
  { ops = "blocks.*.mlp.down",     dim = "ffn",    over = "time:2", order = "rotated", skew = ["row", "col"] },
  { ops = "{embed.token,head}",    dim = "vocab",  over = "time:2", order = "rotated", skew = ["row", "col"] },
  { ops = "loss",                  dim = "vocab",  over = "col" },
]
store = [
  { tensors = "role:parameter", over = "row" },
]
)");
  EXPECT_EQ(emit("tesseract(2, 2, zero=1)", graph), R"(# tesseract(2, 2, zero=1)
mesh = { depth = 2, row = 2, col = 2 }
split = [
  { ops = "*",                     dim = "batch",  over = ["depth", "row"] },
  { ops = "*",                     dim = "hidden", over = "col" },
  { ops = "blocks.*.attn.{q,k,v}", dim = "hidden", over = "time:2" },
  { ops = "blocks.*.mlp.up",       dim = "hidden", over = "time:2" },
  { ops = "blocks.*.attn",         dim = "heads",  over = "col" },
  { ops = "blocks.*.mlp",          dim = "ffn",    over = "col" },
  { ops = "blocks.*.attn.out",     dim = "heads",  over = "time:2" },
  { ops = "blocks.*.mlp.down",     dim = "ffn",    over = "time:2" },
  { ops = "{embed.token,head}",    dim = "vocab",  over = "time:2" },
  { ops = "loss",                  dim = "vocab",  over = "col" },
]
store = [
  { tensors = "role:parameter", over = "row" },
  { tensors = "optimizer.*",    over = "depth" },
]
)");
  EXPECT_EQ(emit("tensor_parallel_3d(2, 2, 2)", graph), R"(# tensor_parallel_3d(2, 2, 2)
mesh = { x = 2, y = 2, z = 2 }
split = [
  { ops = "*",                         dim = "batch",  over = ["x", "y"] },
  { ops = "*",                         dim = "hidden", over = "z" },
  { ops = "blocks.*.attn.{q,k,v,out}", dim = "batch",  over = "x" },
  { ops = "blocks.*.attn.core",        dim = "batch",  over = ["x", "z"] },
  { ops = "blocks.*.attn",             dim = "heads",  over = "y" },
  { ops = "blocks.*.mlp.{up,down}",    dim = "batch",  over = "x" },
  { ops = "blocks.*.mlp.act",          dim = "batch",  over = ["x", "z"] },
  { ops = "blocks.*.mlp",              dim = "ffn",    over = "y" },
  { ops = "{embed.token,head}",        dim = "batch",  over = "x" },
  { ops = "loss",                      dim = "batch",  over = ["x", "z"] },
  { ops = "{embed.token,head,loss}",   dim = "vocab",  over = "y" },
]
store = [
  { tensors = "role:parameter", over = "x" },
]
)");
  EXPECT_EQ(emit("per_layer(\"0-0:tp2,dp2,sp;1-1:dp4,zero3,selective\")", graph),
            R"(# per_layer("0-0:tp2,dp2,sp;1-1:dp4,zero3,selective")
mesh = { a = 2, b = 2 }
split = [
  { ops = "{embed,blocks.0}",               dim = "batch", over = "a" },
  { ops = "{embed,blocks.0}",               dim = "seq",   over = "b" },
  { ops = "blocks.0.attn.{q,k,v,core,out}", dim = "seq",   over = [] },
  { ops = "blocks.0.mlp.{up,act,down}",     dim = "seq",   over = [] },
  { ops = "embed.token",                    dim = "seq",   over = [] },
  { ops = "blocks.0.attn",                  dim = "heads", over = "b" },
  { ops = "blocks.0.mlp",                   dim = "ffn",   over = "b" },
  { ops = "embed.token",                    dim = "vocab", over = "b" },
  { ops = "{blocks.1,final,head,loss}",     dim = "batch", over = ["a", "b"] },
]
store = [
  { tensors = "optimizer.*.{blocks.1,final,head,loss}.*{weight,bias}",       over = ["a", "b"] },
  { tensors = "grad.{blocks.1,final,head,loss}.*{weight,bias}",              over = ["a", "b"] },
  { tensors = "{blocks.1,final,head,loss}.*{weight,bias}",                   over = ["a", "b"] },
  { tensors = "blocks.1",                                                    recompute = true },
  { tensors = "blocks.1.{attn.{q,k,v,out,residual},mlp.{up,down,residual}}", recompute = false },
]
)");
  EXPECT_EQ(emit("per_layer(\"embed:tp4;0:ulysses2,tp2,zero1;1:cp2,dp2;head:tp2,dp2\", order=none)",
                 graph),
            R"(# per_layer("embed:tp4;0:ulysses2,tp2,zero1;1:cp2,dp2;head:tp2,dp2", order=none)
mesh = { a = 2, b = 2 }
split = [
  { ops = "embed.token",        dim = "vocab", over = ["a", "b"] },
  { ops = "blocks.0",           dim = "seq",   over = "b" },
  { ops = "blocks.0.attn",      dim = "heads", over = "a" },
  { ops = "blocks.0.attn.core", dim = "seq",   over = [] },
  { ops = "blocks.0.attn.core", dim = "heads", over = ["a", "b"] },
  { ops = "blocks.0.mlp",       dim = "ffn",   over = "a" },
  { ops = "blocks.1",           dim = "batch", over = "a" },
  { ops = "blocks.1",           dim = "seq",   over = "b" },
  { ops = "blocks.1.attn.core", dim = "kv",    over = "time:2",   order = "rotated", skew = "-b" },
  { ops = "{final,head,loss}",  dim = "batch", over = "a" },
  { ops = "{head,loss}",        dim = "vocab", over = "b" },
]
store = [
  { tensors = "optimizer.*.blocks.0.*{weight,bias}", over = "b" },
]
)");
  // This is the plan of megatron with its compression.
  const auto without_call = [](const std::string& text) { return text.substr(text.find('\n')); };
  EXPECT_EQ(
      without_call(
          emit("compressed(2, topk:0.1, 1, tp=2, pp=2, micro_batches=2, borders=bfloat16)", graph)),
      without_call(emit("megatron(tp=2, pp=2, dp=2, zero=1, micro_batches=2)", graph)) +
          R"(compress = [
  { tensors = "role:gradient", with = "topk:0.1", error_feedback = true },
  { tensors = "*",             on = "send", with = "bfloat16" },
]
)");
  EXPECT_EQ(emit("per_op(\"a2,b2\", \"*=batch:a+b;mlp@0=ffn:a+b;norms=seq:a+b\")", graph),
            R"(# per_op("a2,b2", "*=batch:a+b;mlp@0=ffn:a+b;norms=seq:a+b")
mesh = { a = 2, b = 2 }
split = [
  { ops = "*",                          dim = "batch", over = ["a", "b"] },
  { ops = "blocks.0.mlp.{up,act,down}", dim = "batch", over = [] },
  { ops = "blocks.0.mlp.{up,act,down}", dim = "ffn",   over = ["a", "b"] },
  { ops = "blocks.*.ln_*",              dim = "batch", over = [] },
  { ops = "blocks.*.ln_*",              dim = "seq",   over = ["a", "b"] },
]
)");
}

TEST(Recipes, RecomputesModules) {
  const Graph graph = test_transformer();
  EXPECT_EQ(emit("recompute(norm+act)", graph), R"(# recompute(norm+act)
mesh = {}
store = [
  { tensors = "blocks.*.{ln_1,mlp.act}", recompute = true },
]
)");
  // Where a level is among the words, the plan says what is kept; ops that leave a block stay.
  EXPECT_EQ(emit("megatron(recompute=selective+mlp)", graph),
            R"(# megatron(recompute=selective+mlp)
mesh = {}
store = [
  { tensors = "blocks.*",                                          recompute = true },
  { tensors = "blocks.*.{attn.{q,k,v,out,residual},mlp.residual}", recompute = false },
]
)");
  EXPECT_EQ(emit("recompute(none+core)", graph), R"(# recompute(none+core)
mesh = {}
store = [
  { tensors = "blocks.*.attn.core", recompute = true },
]
)");
}

TEST(Recipes, NarrowPrecisionShardsTheMastersWhereTheStateIs) {
  const Graph graph = test_transformer();
  EXPECT_EQ(emit("zero(1, 4, precision=bfloat16)", graph), R"(# zero(1, 4, precision=bfloat16)
mesh = { dp = 4 }
precision = { compute = "bfloat16" }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
store = [
  { tensors = "optimizer.*",    over = "dp" },
  { tensors = "role:parameter", over = "dp" },
  { tensors = "*.cast",         keep = "step" },
]
)");
  // Parameters rest in shards already, or nothing is sharded.
  for (const char* call :
       {"zero(3, 4, precision=float16)", "data_parallel(4, precision=float16)"}) {
    const std::string text = emit(call, graph);
    EXPECT_NE(text.find("precision = { compute = \"float16\" }"), std::string::npos) << text;
    EXPECT_EQ(text.find("keep"), std::string::npos) << text;
  }
  // The precision comes from the command line: as the call's argument, or as the file's `compute`.
  const auto plan = load_plan("zero(1, 4)", graph, "", DType::kBFloat16);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->precision.compute, DType::kBFloat16);
  EXPECT_EQ(plan->stores.size(), 3U);
}

TEST(Recipes, ACallIsReadAgainAsItIsWritten) {
  for (const char* text : {"per_layer(spec=\"0-0:tp2,dp2;1-1:dp4\")",
                           "megatron(tp=2, recompute=norm+act, precision=bfloat16)"}) {
    const auto call = parse_recipe_call(text);
    ASSERT_TRUE(call) << call.error().message;
    EXPECT_EQ(to_string(*call), text);
  }
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
      {"summa(2)", 4},
      {"summa(2, cols=3, dp=2, pp=2)", 24},
      {"cannon(3)", 9},
      {"tesseract(2, 3, zero=1)", 12},
      {"tensor_parallel_3d(2, 3, 2, zero=2)", 12},
      {"fsdp(2, replicas=3, tp=2, sequence_shard=true, recompute=full)", 12},
      {"recompute(selective)", 1},
      {"per_layer(\"0-0:tp2,dp3,sp;1-2:dp6,zero3;3-3:tp2,dp3,recompute\", pp=2)", 12},
      {"per_op(\"a2,b3\", \"*=batch:a;attention=heads:a;mlp@[0-1]=ffn:a+b;norms=hidden:b\")", 6},
      {"ring_attention(4, dp=2)", 8},
      {"ring_attention(4, inner=2, order=striped)", 4},
      {"rsa(2, dp=2)", 4},
      {"ulysses(2)", 2},
      {"ring_ulysses(2, 2)", 4}};
  for (const auto& [call, ranks] : calls) {
    const auto text = emit_recipe(call, *trained);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    EXPECT_LE(std::count(text->begin(), text->end(), '\n'), 40) << *text;
    const auto plan = parse_plan(*text, call);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    const auto forward = shape_forward(test_transformer(model), *plan, std::nullopt);
    ASSERT_TRUE(forward.has_value()) << forward.error().message;
    const auto prepared = prepare(*differentiate(*forward, OptimizerSpec{}), *plan);
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
      {"zero(stage=1)",
       "recipe zero: argument 'dp' is missing: expected zero(stage, dp, micro_batches=1, "
       "reshard_after_forward=0, "
       "precision=float32)"},
      {"zero(1, 4, reshard_after_forward=2)",
       "recipe zero: reshard_after_forward = 2 needs stage = 3, as other parameters do not rest in "
       "shards"},
      {"fsdp(4, reshard_after_forward=3)",
       "recipe fsdp: expected reshard_after_forward = 0, or 2 or more that divides dp = 4, found "
       "3"},
      {"zero(stage=4, dp=2)", "recipe zero: expected stage = 1, 2 or 3, found 4"},
      {"zero(0, 2)", "recipe zero: expected stage >= 1 (a whole number), found '0'"},
      {"zero(3, 2, 3, 2, float32, 6)",
       "recipe zero: too many arguments: expected zero(stage, dp, micro_batches=1, "
       "reshard_after_forward=0, "
       "precision=float32)"},
      {"zero(1, stage=2)", "recipe zero: argument 'stage' is given twice"},
      {"data_parallel(dp=four)",
       "recipe data_parallel: expected dp >= 1 (a whole number), found 'four'"},
      {"serial(2)", "recipe serial: too many arguments: expected serial(precision=float32)"},
      {"gpipe(pp=3, micro_batches=4)",
       "recipe gpipe: pp = 3 needs at least 3 blocks, but the graph has 2"},
      {"tensor_parallel(8)",
       "recipe tensor_parallel: tp = 8 is more than the 4 attention heads (heads = 4, group = 1)"},
      {"summa(5)", "recipe summa: q = 5 is more than the 4 attention heads (heads = 4, group = 1)"},
      {"summa(2, cols=5)",
       "recipe summa: cols = 5 is more than the 4 attention heads (heads = 4, group = 1)"},
      {"megatron(schedule=1f2b)",
       "recipe megatron: expected schedule = 1f1b or eager_1f1b or gpipe or interleaved or zb_h1 "
       "or zb_h2 or zb_v or chimera or nf1b or interlaced or token or token_1f1b, found '1f2b', "
       "did you mean '1f1b'?"},
      {"megatron(sequence_shard=yes)",
       "recipe megatron: expected sequence_shard = true or false, found 'yes', did you mean "
       "'true'?"},
      {"tensor_parallel_3d(2, 5, 2)",
       "recipe tensor_parallel_3d: y = 5 is more than the 4 attention heads (heads = 4, group = "
       "1)"},
      {"per_layer(\"0-1:tq2\")",
       "recipe per_layer: spec: expected tp<N>, dp<N>, cp<N>, ulysses<N>, zero<0-3>, sp, "
       "recompute, selective or modules as norm+act in '0-1:tq2', found 'tq2'"},
      {"per_layer(\"embed:dp2,recompute;0-1:tp2\")",
       "recipe per_layer: spec: expected no recomputation around the blocks, found 'recompute' in "
       "'embed:dp2,recompute'"},
      {"per_layer(\"embed:dp2\")", "recipe per_layer: spec: expected layers 0-1, found none"},
      {"per_layer(\"0:tp2;head:dp2;1:tp2\")",
       "recipe per_layer: spec: expected 'first-last:tp2,dp2,...', found 'head:dp2'"},
      {"per_layer(\"0-1:tp2,ulysses4\")",
       "recipe per_layer: tp * ulysses = 8 is more than the 4 attention heads (heads = 4, group = "
       "1)"},
      {"compressed(2, borders=int8)",
       "recipe compressed: borders = int8 needs stages: expected pp > 1"},
      {"token_pipeline(2, 2, zero=4)",
       "recipe token_pipeline: expected zero = 0, 1, 2 or 3, found 4"},
      {"dap(2)",
       "recipe dap: expected residual sums with two dims between batch and features (rows and "
       "columns), parts of blocks that work along one of them and parts that work along the other "
       "(as evoformer's), found none"},
      {"megatron(recompute=act+cor)",
       "recipe megatron: expected recompute = one of none, selective, full, norm, act, core, "
       "mla_up, mlp, moe, scan, or several with '+', found 'cor', did you mean 'core'?"},
      {"recompute(norm+moe)",
       "recipe recompute: recompute = moe needs ops blocks.*.moe, found none"},
      {"recompute(none+none)",
       "recipe recompute: recompute = none+none selects nothing that stays inside the blocks"},
      {"recompute(mla_up)",
       "recipe recompute: recompute = mla_up needs latent attention (the dim 'rank'), found none"},
      {"recompute(scan)",
       "recipe recompute: recompute = scan needs state space blocks (ops blocks.*.ssm), found "
       "none"},
      {"per_layer(\"0:tp2\")", "recipe per_layer: spec: expected layers 0-1, found layers 0-0"},
      {"per_layer(\"0:tp2;0-1:tp2\")",
       "recipe per_layer: spec: expected a range that starts at layer 1, found '0-1:tp2'"},
      {"per_layer(\"tp2\")",
       "recipe per_layer: spec: expected 'first-last:tp2,dp2,...', found 'tp2'"},
      {"per_layer(\"0:tp2;1:dp3\")", "recipe per_layer: spec: '0:tp2' has 2 ranks, '1:dp3' has 3"},
      {"per_layer(\"0:tp2,dp3;1:tp3,dp2\")",
       "recipe per_layer: spec: no axes make groups of both 2 and 3 neighbours: one must divide "
       "the "
       "other"},
      {"per_op(\"2\", \"*=batch:a\")",
       "recipe per_op: mesh: expected axes such as 'a2,b2', found '2'"},
      {"per_op(\"a2\", \"*=btch:a\")",
       "recipe per_op: spec: expected a dim of the ops, found '*=btch:a'"},
      {"per_op(\"a2\", \"mlp\")",
       "recipe per_op: spec: expected 'attention=heads:a,batch:b', found 'mlp'"},
      {"per_op(\"a2\", \"mlp=ffn\")",
       "recipe per_op: spec: expected splits such as 'heads:a' or 'batch:a+b', found 'mlp=ffn'"},
      {"megatron(zero=4)", "recipe megatron: expected zero = 0, 1, 2 or 3, found 4"},
      {"channel_parallel(2)",
       "recipe channel_parallel: expected convolutions over a dim 'height' (as resnet has), found "
       "none"},
      {"split_brain(2)",
       "recipe split_brain: expected convolutions in front of dense layers, found none"},
  };
  for (const Case& c : cases) EXPECT_EQ(emit(c.call, graph), c.message) << c.call;
  EXPECT_EQ(emit("tensor_parallel(2)", test_mlp()),
            "recipe tensor_parallel: tensor parallelism needs ops blocks.*.attn with the dim "
            "'heads', blocks.*.mlp with "
            "'ffn' or {embed,head,loss} with 'vocab', found none");
  EXPECT_EQ(emit("fsdp(2, prefetch=2)", test_mlp()),
            "recipe fsdp: expected prefetch = 0 or 1 for a model without blocks, found 2");
}

TEST(Recipes, TheListNamesEveryArgument) {
  for (const Recipe& recipe : all_recipes()) {
    EXPECT_EQ(find_recipe(recipe.name), &recipe);
    EXPECT_FALSE(recipe.summary.empty());
    for (const RecipeArgument& argument : recipe.arguments) EXPECT_FALSE(argument.meaning.empty());
  }
  EXPECT_EQ(signature(*find_recipe("megatron")),
            "megatron(tp=1, pp=1, dp=1, zero=0, micro_batches=1, schedule=1f1b, chunks=1, "
            "recompute=none, sequence_shard=false, cp=1, order=zigzag, precision=float32)");
}

}  // namespace
}  // namespace tessera::recipes_test
