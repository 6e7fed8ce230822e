#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tessera/graph/builder.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"
#include "tessera/plan/test_graphs.h"

namespace tessera::experts_test {
namespace {

// Returns two blocks of a mixture of four experts with one product each, and a head.
Graph test_mixture() {
  GraphBuilder g("mixture");
  const Init init{Init::Kind::kNormal, 0.02};
  const Dim batch{"batch", 8}, seq{"seq", 4}, hidden{"hidden", 8}, experts{"experts", 4},
      ffn{"ffn", 8}, vocab{"vocab", 6};
  auto x = g.input("x", {batch, seq, hidden}, DType::kFloat32);
  const auto product = [&](const std::string& name, TensorId in, std::vector<Dim> dims,
                           const char* spec) {
    const auto weight = g.parameter(name + ".weight", std::move(dims), init);
    return g.op1(name, "einsum", {in, weight}, {{"spec", std::string(spec)}});
  };
  for (const char* scope : {"blocks.0.moe", "blocks.1.moe"}) {
    g.push(scope);
    const auto logits = product("router", x, {hidden, experts},
                                "batch seq hidden+, hidden experts -> batch seq experts");
    const auto probs =
        g.op1("probabilities", "softmax", {logits}, {{"dim", std::string("experts")}});
    const auto route =
        g.op("route", "moe_route", {probs}, {{"top_k", int64_t{2}}, {"capacity", int64_t{2}}});
    auto slots = g.op1("dispatch", "moe_dispatch", {x, route.at(0)},
                       {{"experts", int64_t{4}}, {"capacity", int64_t{2}}});
    slots = g.op1("arrive", "scale", {slots}, {{"factor", 1.0}});
    slots = product("up", slots, {experts, hidden, ffn},
                    "experts batch capacity hidden+, experts hidden ffn -> experts batch capacity "
                    "ffn");
    slots = product("down", slots, {experts, ffn, hidden},
                    "experts batch capacity ffn+, experts ffn hidden -> experts batch capacity "
                    "hidden");
    slots = g.op1("return", "scale", {slots}, {{"factor", 1.0}});
    x = g.op1("residual", "add",
              {x, g.op1("combine", "moe_combine", {slots, route.at(0), route.at(1)})});
    g.pop();
  }
  x = product("head", x, {vocab, hidden}, "batch seq hidden+, vocab hidden -> batch seq vocab");
  g.graph().loss = g.op1("loss", "reduce_sum", {x}, {{"dims", std::string("batch seq vocab")}});
  auto graph = g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

std::string emit(std::string_view call, const Graph& graph) {
  const auto text = emit_recipe(call, graph);
  return text ? *text : text.error().message;
}

TEST(ExpertParallel, GoldenTexts) {
  const Graph graph = test_mixture();
  EXPECT_EQ(emit("expert_parallel(4)", graph), R"(# expert_parallel(4)
mesh = { ep = 4 }
split = [
  { ops = "*",                                                 dim = "batch",   over = "ep" },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "batch",   over = [] },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "experts", over = "ep" },
]
)");
  EXPECT_EQ(emit("expert_parallel(ep=2, dp=2, tp=2, pp=2, zero=1, micro_batches=4)", graph),
            R"(# expert_parallel(ep=2, dp=2, tp=2, pp=2, zero=1, micro_batches=4)
mesh = { pp = 2, dp = 2, ep = 2, tp = 2 }
micro_batches = 4
schedule = "1f1b"
split = [
  { ops = "*",                                                 dim = "batch",   over = ["dp", "ep"] },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "batch",   over = "dp" },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "experts", over = "ep" },
  { ops = "{head,loss}",                                       dim = "vocab",   over = "tp" },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "ffn",     over = "tp" },
  { ops = "blocks.*.moe.{dispatch,return,combine}",            dim = "hidden",  over = "tp" },
]
stage = [
  { ops = "blocks.0",             at = 0 },
  { ops = "{blocks.1,head,loss}", at = 1 },
]
store = [
  { tensors = "optimizer.*", over = ["dp", "ep"] },
]
)");
  // Whole experts lie over both axes.
  EXPECT_EQ(emit("expert_parallel(2, tp=2, experts_over_tp=true)", graph),
            R"(# expert_parallel(2, tp=2, experts_over_tp=true)
mesh = { ep = 2, tp = 2 }
split = [
  { ops = "*",                                                 dim = "batch",   over = "ep" },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "batch",   over = [] },
  { ops = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}", dim = "experts", over = ["ep", "tp"] },
  { ops = "{head,loss}",                                       dim = "vocab",   over = "tp" },
  { ops = "blocks.*.moe.{dispatch,return,combine}",            dim = "hidden",  over = "tp" },
]
)");
  EXPECT_EQ(emit("expert_parallel(1)", graph), "# expert_parallel(1)\nmesh = {}\n");
  EXPECT_EQ(emit("expert_parallel(ep=1, dp=2, zero=1)", graph),
            R"(# expert_parallel(ep=1, dp=2, zero=1)
mesh = { dp = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
]
store = [
  { tensors = "optimizer.*", over = "dp" },
]
)");
}

TEST(ExpertParallel, EveryCallMakesAPlanThatResolves) {
  const auto trained = differentiate(test_mixture(), OptimizerSpec{});
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  for (const auto& [call, ranks] :
       {std::pair{"expert_parallel(3)", 3},
        {"expert_parallel(ep=1, tp=2, dp=2, zero=3)", 4},
        {"expert_parallel(ep=2, zero=2)", 2},
        {"expert_parallel(2, tp=2, dp=2, zero=1, experts_over_tp=true)", 8},
        {"expert_parallel(2, dp=2, tp=2, pp=2, zero=3)", 16}}) {
    const auto text = emit_recipe(call, *trained);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    EXPECT_LE(std::count(text->begin(), text->end(), '\n'), 40) << *text;
    const auto plan = parse_plan(*text, call);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    const auto prepared = prepare(*trained, *plan);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    EXPECT_EQ(prepared->plan.ranks, ranks) << call;
  }
}

TEST(ExpertParallel, ErrorsNameRecipeAndArgument) {
  EXPECT_EQ(emit("expert_parallel(2)", test_transformer()),
            "recipe expert_parallel: expected ops "
            "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down} with the dim 'experts' (as mixtral "
            "has), found none");
  const Graph graph = test_mixture();
  EXPECT_EQ(emit("expert_parallel(5)", graph),
            "recipe expert_parallel: ep = 5 is more than the 4 experts");
  EXPECT_EQ(emit("expert_parallel(4, tp=2, experts_over_tp=true)", graph),
            "recipe expert_parallel: ep tp = 8 is more than the 4 experts, which experts_over_tp "
            "leaves whole");
  EXPECT_EQ(emit("expert_parallel(2, zero=4)", graph),
            "recipe expert_parallel: expected zero = 0, 1, 2 or 3, found 4");
  EXPECT_EQ(emit("expert_parallel(2, schedule=1f2b)", graph),
            "recipe expert_parallel: expected schedule = 1f1b or eager_1f1b or gpipe or "
            "interleaved or zb_h1 or zb_h2 or zb_v or chimera or nf1b or interlaced or token or "
            "token_1f1b, found '1f2b', did you mean '1f1b'?");
}

}  // namespace
}  // namespace tessera::experts_test
