#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/test_graphs.h"

namespace tessera::pipeline_test {
namespace {

Graph blocks(int64_t layers, int64_t batch = 8) {
  TestModel model;
  model.layers = layers;
  model.batch = batch;
  return test_transformer(model);
}

// Returns the text without its first line, the call; or the error.
std::string emit(const std::string& call, const Graph& graph) {
  const auto text = emit_recipe(call, graph);
  return text ? text->substr(text->find('\n') + 1) : text.error().message;
}

TEST(PipelineRecipes, PlaceStagesAsTheScheduleWants) {
  EXPECT_EQ(emit("pipeline(2, 4, interleaved, 2)", blocks(5)), R"(mesh = { pp = 2 }
micro_batches = 4
schedule = "interleaved"
stage = [
  { ops = "{embed,blocks.[0-1]}",       at = 0 },
  { ops = "blocks.2",                   at = 1 },
  { ops = "blocks.3",                   at = 2 },
  { ops = "{blocks.4,final,head,loss}", at = 3 },
]
)");
  EXPECT_EQ(emit("pipeline(2, 3, zb_v)", blocks(4)), R"(mesh = { pp = 2 }
micro_batches = 3
place = [0, 1, 1, 0]
schedule = "zb_v"
stage = [
  { ops = "{embed,blocks.0}",           at = 0 },
  { ops = "blocks.1",                   at = 1 },
  { ops = "blocks.2",                   at = 2 },
  { ops = "{blocks.3,final,head,loss}", at = 3 },
]
)");
  EXPECT_EQ(emit("megatron(tp=2, pp=2, micro_batches=2, schedule=interlaced)", blocks(2)),
            R"(mesh = { pp = 2, tp = 2 }
micro_batches = 2
schedule = "interlaced"
split = [
  { ops = "{embed,head,loss}", dim = "vocab", over = "all" },
  { ops = "blocks.*.attn",     dim = "heads", over = "tp" },
  { ops = "blocks.*.mlp",      dim = "ffn",   over = "tp" },
  { ops = "{embed,head,loss}", dim = "vocab", over = ["all", "tp"] },
]
stage = [
  { ops = "embed",            at = 0, mesh = { all = 2, tp = 2 }, devices = 0 },
  { ops = "blocks.0",         at = 1 },
  { ops = "{blocks.1,final}", at = 2 },
  { ops = "{head,loss}",      at = 3, mesh = { all = 2, tp = 2 }, devices = 0 },
]
)");
  EXPECT_EQ(emit("pipeline(2, 1, chimera)", blocks(2)), R"(mesh = { pp = 2 }
place = [0, 1, 1, 0]
schedule = "chimera"
stage = [
  { ops = "{embed,blocks.0}",           at = 0 },
  { ops = "{blocks.1,final,head,loss}", at = 1 },
]
loop = [
  { ops = "*", dim = "batch", steps = 2, stages = true },
]
)");
}

TEST(PipelineRecipes, MakePlansThatResolveInFortyLines) {
  const std::vector<std::pair<std::string, int64_t>> calls{
      {"pipeline(3, 6, eager_1f1b)", 3},
      {"pipeline(16, 16, interleaved, 2)", 16},
      {"pipeline(16, 32, zb_v)", 16},
      {"pipeline(16, 16, interlaced)", 16},
      {"pipeline(1, 4, zb_v)", 1},
      {"pipeline(1, 4, interleaved)", 1},
      {"pipeline(1, 4, interlaced)", 1},
      {"megatron(tp=2, pp=16, dp=2, zero=3, chunks=2, micro_batches=16, schedule=interleaved, "
       "sequence_shard=true, recompute=selective)",
       64},
      {"megatron(tp=2, pp=16, cp=2, zero=1, chunks=2, micro_batches=16, schedule=interleaved, "
       "sequence_shard=true)",
       64},
      {"megatron(pp=4, dp=2, schedule=chimera)", 8},
      {"summa(2, pp=2, schedule=zb_v, micro_batches=2)", 8},
  };
  const Graph graph = blocks(32, 96);
  for (const auto& [call, ranks] : calls) {
    const auto text = emit_recipe(call, graph);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    EXPECT_LE(std::count(text->begin(), text->end(), '\n'), 40) << *text;
    const auto plan = parse_plan(*text, call);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    const auto forward = shape_forward(graph, *plan, std::nullopt);
    ASSERT_TRUE(forward.has_value()) << forward.error().message;
    const auto prepared = prepare(*differentiate(*forward, OptimizerSpec{}), *plan);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    EXPECT_EQ(prepared->plan.ranks, ranks) << call;
  }
}

TEST(PipelineRecipes, ErrorsAreOneLine) {
  const Graph graph = blocks(3);
  EXPECT_EQ(emit("pipeline(2, 3, interleaved)", graph),
            "recipe pipeline: micro_batches = 3 is not a multiple of pp = 2, which schedule "
            "'interleaved' needs");
  EXPECT_EQ(emit("pipeline(2, 4, interleaved, 2)", graph),
            "recipe pipeline: pp = 2 of 2 chunks needs at least 4 blocks, but the graph has 3");
  EXPECT_EQ(emit("pipeline(2, 4, zb_v)", graph),
            "recipe pipeline: pp = 2 of 2 chunks needs at least 4 blocks, but the graph has 3");
  EXPECT_EQ(emit("pipeline(3, 1, chimera)", graph),
            "recipe pipeline: expected an even pp, found 3");
  EXPECT_EQ(emit("pipeline(2, 4, chimera)", graph),
            "recipe pipeline: schedule 'chimera' halves the batch itself: expected micro_batches = "
            "1, found 4");
  EXPECT_EQ(emit("pipeline(2, 4, interlaevd)", graph),
            "recipe pipeline: expected schedule = 1f1b or eager_1f1b or gpipe or interleaved or "
            "zb_h1 or zb_h2 or zb_v or chimera or nf1b or interlaced or token or token_1f1b, found "
            "'interlaevd', did you mean 'interleaved'?");
  EXPECT_EQ(emit("pipeline(2, 4, zb_h1, 2)", graph),
            "recipe pipeline: chunks = 2 needs schedule = interleaved, found 'zb_h1'");
  EXPECT_EQ(emit("pipeline(2, 4, token)", graph),
            "recipe pipeline: schedule 'token': expected token_pipeline(pp, slices)");
  EXPECT_EQ(emit("pipeline(2, 4, interlaced)", test_mlp()),
            "recipe pipeline: pp = 2 needs at least 2 blocks, but the graph has 0");
}

// Returns a chain of ops "h_0_up", "h_1_up": no path tells that they are blocks.
Graph chain_of_layers(int layers, const std::string& separator) {
  GraphBuilder g("chain");
  const Dim batch{"batch", 4}, in{"in", 5}, hidden{"hidden", 6}, ffn{"ffn", 8};
  const auto product = [&](const std::string& name, TensorId x, const Dim& from, const Dim& to) {
    const TensorId w = g.parameter(name + ".w", {from, to}, {Init::Kind::kNormal, 0.1});
    return g.op1(name, "einsum", {x, w},
                 {{"spec", "batch " + from.name + "+, " + from.name + " " + to.name + " -> batch " +
                               to.name}});
  };
  TensorId x = product("first", g.input("x", {batch, in}, DType::kFloat32), in, hidden);
  for (int i = 0; i < layers; ++i) {
    const std::string at = "h" + separator + std::to_string(i) + separator;
    const TensorId h = g.op1(at + "act", "gelu", {product(at + "up", x, hidden, ffn)});
    x = g.op1(at + "sum", "add", {x, product(at + "down", h, ffn, hidden)});
  }
  g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch hidden")}});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  return graph.value_or(Graph());
}

TEST(PipelineRecipes, BlocksOfOtherNamesAreFoundByTheirRepetition) {
  EXPECT_EQ(emit("gpipe(2, 4)", chain_of_layers(4, ".")),
            "mesh = { pp = 2 }\nmicro_batches = 4\nschedule = \"gpipe\"\n"
            "stage = [\n  { ops = \"{first,h.[0-1]}\", at = 0 },\n"
            "  { ops = \"{h.[2-3],loss}\",  at = 1 },\n]\n");
  EXPECT_EQ(emit("gpipe(2, 4)", chain_of_layers(2, "_")),
            "mesh = { pp = 2 }\nmicro_batches = 4\nschedule = \"gpipe\"\n"
            "stage = [\n  { ops = \"{first,{h_0_up,h_0_act,h_0_down,h_0_sum}}\", at = 0 },\n"
            "  { ops = \"{{h_1_up,h_1_act,h_1_down,h_1_sum},loss}\",  at = 1 },\n]\n");
}

TEST(PipelineRecipes, RecomputationFindsTheBlocksToo) {
  const std::string plan =
      emit("megatron(pp=2,micro_batches=4,recompute=full)", chain_of_layers(4, "."));
  EXPECT_NE(plan.find("{ tensors = \"h.{0.{up,act,down},1.{up,act,down},2.{up,act,down},3.{up,act,"
                      "down}}\", recompute = true }"),
            std::string::npos)
      << plan;
  EXPECT_EQ(emit("recompute(core)", chain_of_layers(2, "_")),
            "recipe recompute: recompute = core needs attention in blocks, found none");
}

// Recipes that cut by paths look for dims in what repeats.
TEST(PipelineRecipes, OpsOfOtherNamesAreFoundByTheirDims) {
  EXPECT_EQ(emit("tensor_parallel(2)", chain_of_layers(2, ".")),
            "mesh = { tp = 2 }\nsplit = [\n"
            "  { ops = \"h.*.{up,act,down}\", dim = \"ffn\", over = \"tp\" },\n]\n");
  EXPECT_EQ(emit("co_shard(2)", chain_of_layers(2, "_")),
            "mesh = {}\nloop = [\n  { ops = \"{h_0_up,h_0_act,h_0_down,h_1_up,h_1_act,h_1_down}\", "
            "dim = \"ffn\", steps = 2, recompute = true },\n]\n");
  EXPECT_EQ(emit("fsdp(2, prefetch=1)", chain_of_layers(3, ".")),
            "mesh = { dp = 2 }\nprefetch = { units = \"h.*\", ahead = 1 }\n"
            "split = [\n  { ops = \"*\", dim = \"batch\", over = \"dp\" },\n]\n"
            "store = [\n  { tensors = \"optimizer.*\",    over = \"dp\" },\n"
            "  { tensors = \"role:gradient\",  over = \"dp\" },\n"
            "  { tensors = \"role:parameter\", over = \"dp\" },\n]\n");
}

// Each range has its blocks, their parameters by name, and its own recomputation.
TEST(PipelineRecipes, LayersOfOtherNamesHaveStrategiesOfTheirOwn) {
  EXPECT_EQ(emit("per_layer(\"embed:dp2;0:tp2;1:dp2,zero1,recompute\")", chain_of_layers(2, ".")),
            "mesh = { a = 2 }\nsplit = [\n"
            "  { ops = \"first\",             dim = \"batch\", over = \"a\" },\n"
            "  { ops = \"h.0.{up,act,down}\", dim = \"ffn\",   over = \"a\" },\n"
            "  { ops = \"{h.1,loss}\",        dim = \"batch\", over = \"a\" },\n]\n"
            "store = [\n  { tensors = \"optimizer.*.{h.1.up.w,h.1.down.w}\", over = \"a\" },\n"
            "  { tensors = \"h.1.{up,act,down}\",                 recompute = true },\n]\n");
}

}  // namespace
}  // namespace tessera::pipeline_test
