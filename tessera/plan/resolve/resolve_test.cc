#include <gtest/gtest.h>

#include <chrono>

#include "tessera/plan/plan.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/test_graphs.h"

namespace tessera::resolve_test {
namespace {

Result<ResolvedPlan> resolve_text(std::string_view text, const Graph& graph) {
  TESSERA_TRY(const Plan plan, parse_plan(text, "plan.toml"));
  return resolve(plan, graph);
}

std::string error_of(std::string_view text, const Graph& graph) {
  const auto resolved = resolve_text(text, graph);
  return resolved ? "accepted" : resolved.error().message;
}

OpId find_op(const Graph& graph, std::string_view path) {
  for (const Op& op : graph.ops()) {
    if (op.path == path) return op.id;
  }
  ADD_FAILURE() << "no op " << path;
  return OpId(0);
}

// Returns the split dims only: "batch: dp, ffn: tp time:2".
std::string splits_of(const ResolvedPlan& resolved, const Graph& graph, std::string_view path) {
  const OpId id = find_op(graph, path);
  const OpPlan& op_plan = resolved.ops[id.index()];
  std::string out;
  for (size_t d = 0; d < op_plan.dims.size(); ++d) {
    const DimSplit& split = op_plan.dims[d];
    if (!split.split()) continue;
    out += (out.empty() ? "" : ", ") + graph.op(id).annotation.dims[d].name + ":";
    for (AxisId axis : split.axes)
      out += " " + resolved.stages[op_plan.stage.index()].mesh.axis(axis).name;
    if (split.steps > 1) out += " time:" + std::to_string(split.steps);
  }
  return out;
}

int stage_of(const ResolvedPlan& resolved, const Graph& graph, std::string_view path) {
  return resolved.ops[find_op(graph, path).index()].stage.value;
}

constexpr std::string_view kTwoAxes = R"(mesh = { dp = 2, tp = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
  { ops = "{up,act,down}", dim = "ffn", over = "tp" },
]
)";

TEST(Resolve, BackwardOpsInheritByDimName) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(kTwoAxes, graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(resolved->ranks, 4);
  EXPECT_EQ(splits_of(*resolved, graph, "up"), "batch: dp, ffn: tp");
  EXPECT_EQ(splits_of(*resolved, graph, "down.dx"), "batch: dp, ffn: tp");
  EXPECT_EQ(splits_of(*resolved, graph, "down.dw"), "batch: dp, ffn: tp");
  EXPECT_EQ(splits_of(*resolved, graph, "seed"), "");  // no mirror, not split
  EXPECT_EQ(splits_of(*resolved, graph, "update.down.weight"),
            "");  // update ops only by phase = "update"
  EXPECT_TRUE(resolved->to_expand.empty());
}

// The derivative of a view lies as the gradient that another stage makes; that stage's mesh may
// number the same axis otherwise.
TEST(Resolve, AViewFollowsItsGradientOntoItsOwnMesh) {
  GraphBuilder g("views");
  const Dim batch{"batch", 12}, seq{"seq", 2}, hidden{"f", 8};
  const TensorId x = g.input("x", {batch, seq, hidden}, DType::kFloat32);
  const TensorId scaled =
      g.op1("scale", "mul", {x, g.parameter("weight", {hidden}, {Init::Kind::kNormal, 0.1})});
  const TensorId turned =
      g.op1("turn", "rename", {scaled}, {{"from", std::string("seq")}, {"to", std::string("k")}});
  const TensorId square = g.op1("square", "mul", {turned, turned});
  g.graph().loss = g.op1("sum", "reduce_sum", {square}, {{"dims", std::string("batch k f")}});
  const auto forward = g.finish();
  ASSERT_TRUE(forward) << forward.error().message;
  const Graph graph = differentiate(*forward, OptimizerSpec{}).value();
  const auto resolved = resolve_text(R"(schedule = "1f1b"
split = [ { ops = "{turn,square}", dim = "batch", over = "b" } ]
stage = [
  { ops = "{scale,turn}", at = 0, mesh = { b = 2 }, devices = 0 },
  { ops = "{square,sum}", at = 1, mesh = { a = 2, b = 2 }, devices = 2 },
]
)",
                                     graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  size_t split_in_backward = 0;
  for (const Op& op : graph.ops()) {
    const OpPlan& plan = resolved->ops[op.id.index()];
    for (const DimSplit& split : plan.dims) {
      for (const AxisId axis : split.axes) {
        const Mesh& mesh = resolved->stages[plan.stage.index()].mesh;
        ASSERT_LT(axis.index(), mesh.axes.size()) << op.path;
        EXPECT_EQ(mesh.axis(axis).name, "b") << op.path;
      }
    }
    if (op.mirror.valid() && graph.op(op.mirror).path == "turn")
      split_in_backward += splits_of(*resolved, graph, op.path) == "batch: b";
  }
  EXPECT_GE(split_in_backward, 1U);
}

TEST(Resolve, EntriesWithAPhaseOverrideWhatIsInherited) {
  const Graph graph = test_mlp();
  const std::string text = R"(mesh = { dp = 2, tp = 2 }
split = [
  { ops = "down", phase = "backward", dim = "ffn", over = "dp" },
  { ops = "down", phase = "backward", dim = "batch", over = [] },
  { ops = "*", phase = "update", dim = "ffn", over = "dp" },
  { ops = "*", dim = "batch", over = "dp" },
])";
  const auto resolved = resolve_text(text, graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(splits_of(*resolved, graph, "down"), "batch: dp");
  EXPECT_EQ(splits_of(*resolved, graph, "down.dx"), "ffn: dp");
  EXPECT_EQ(splits_of(*resolved, graph, "update.down.weight"), "ffn: dp");
}

std::string pins_of(const ResolvedPlan& resolved, const Graph& graph, std::string_view path) {
  std::string out;
  const OpPlan& plan = resolved.ops[find_op(graph, path).index()];
  for (const AxisPin& pin : plan.at) {
    out += resolved.stages[plan.stage.index()].mesh.axis(pin.axis).name + ":" +
           std::to_string(pin.coordinate) + " ";
  }
  return out;
}

TEST(Resolve, APinnedOpIsNotCutOverItsAxisAndItsBackwardOpsFollow) {
  const Graph graph = test_mlp();
  const std::string text = R"(mesh = { dp = 2, tp = 3 }
pin = [
  { ops = "down", axis = "dp", at = 1 },
  { ops = "down", phase = "backward", axis = "tp", at = 2 },
  { ops = "down", axis = "dp", at = 0 },
]
split = [
  { ops = "*", dim = "batch", over = "dp" },
  { ops = "down", dim = "ffn", over = "tp" },
])";
  const auto resolved = resolve_text(text, graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(pins_of(*resolved, graph, "down"), "dp:0 ") << "the later entry counts";
  EXPECT_EQ(splits_of(*resolved, graph, "down"), "ffn: tp");
  EXPECT_EQ(pins_of(*resolved, graph, "down.dx"), "dp:0 tp:2 ");
  EXPECT_EQ(splits_of(*resolved, graph, "down.dx"), "");
  EXPECT_EQ(pins_of(*resolved, graph, "up"), "");
  EXPECT_EQ(splits_of(*resolved, graph, "up"), "batch: dp");
  EXPECT_NE(explain(*resolved, graph, find_op(graph, "down")).find("  at dp = 0 alone\n"),
            std::string::npos);
  EXPECT_EQ(parse_plan(to_toml(resolved->plan)).value(), resolved->plan);
}

TEST(Resolve, ErrorsOfPins) {
  const Graph graph = test_mlp();
  const std::string mesh = "mesh = { dp = 2, tp = 2 }\n";
  EXPECT_EQ(error_of(mesh + "pin = [ { ops = \"up\", axis = \"dp\", at = 2 } ]", graph),
            "plan.toml:2: at = 2: expected a coordinate below 2, the size of axis 'dp'");
  EXPECT_EQ(error_of(mesh + "pin = [ { ops = \"up\", axis = \"dq\", at = 1 } ]", graph),
            "plan.toml:2: axis 'dq' is not in the mesh {dp=2, tp=2}, did you mean 'dp'?");
  EXPECT_EQ(error_of(mesh + "pin = [ { ops = \"up\", axis = \"dp\" } ]", graph),
            "plan.toml:2: [[pin]] needs the key 'at'");
  EXPECT_EQ(error_of(mesh + "pin = [ { ops = \"up\", axis = \"dp\", at = 1 } ]\nsplit = [ { ops = "
                            "\"up\", dim = \"ffn\", over = \"time:2\", order = \"rotated\", skew = "
                            "\"dp\" } ]",
                     graph),
            "plan.toml:3: op 'up' is at one coordinate of axis 'dp' alone ([[pin]]): expected no "
            "time loop that is skewed by it");
}

TEST(Resolve, LaterEntriesOverrideEarlierOnesDimByDim) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(R"(mesh = { dp = 2, tp = 2 }
split = [
  { ops = "*", dim = "batch", over = "dp" },
  { ops = "*", dim = "ffn", over = "tp" },
  { ops = "act", dim = "ffn", over = [] },
  { ops = "down", dim = "ffn", over = ["tp", "time:4"] },
])",
                                     graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(splits_of(*resolved, graph, "up"), "batch: dp, ffn: tp");
  EXPECT_EQ(splits_of(*resolved, graph, "act"), "batch: dp");
  EXPECT_EQ(splits_of(*resolved, graph, "down"), "batch: dp, ffn: tp time:4");
  EXPECT_EQ(splits_of(*resolved, graph, "down.dw"), "batch: dp, ffn: tp time:4");
}

TEST(Resolve, UnevenAndEmptyPiecesAreAllowed) {
  EXPECT_EQ(error_of("mesh = { x = 3 }\nsplit = [ { ops = \"*\", dim = \"batch\", over = \"x\" } ]",
                     test_mlp()),
            "accepted");
  EXPECT_EQ(
      error_of("mesh = { x = 32 }\nsplit = [ { ops = \"*\", dim = \"batch\", over = \"x\" } ]",
               test_mlp()),
      "accepted");
}

TEST(Resolve, StagesOfUnnamedOps) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(
      "mesh = { pp = 2 }\nstage = [ { ops = \"up\", at = 0 }, { ops = \"down\", at = 1 } ]", graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(stage_of(*resolved, graph, "act"), 0);      // with the named op before it
  EXPECT_EQ(stage_of(*resolved, graph, "down.dx"), 1);  // with its mirror
  EXPECT_EQ(stage_of(*resolved, graph, "update.down.weight"),
            1);  // with the parameter's first consumer
  EXPECT_EQ(resolved->stages[1].mesh.first_device, 1);
  const auto late = resolve_text(
      "mesh = { pp = 2 }\nstage = [ { ops = \"act\", at = 0 }, { ops = \"down\", at = 1 } ]",
      graph);
  ASSERT_TRUE(late.has_value()) << late.error().message;
  EXPECT_EQ(stage_of(*late, graph, "up"), 0);  // nothing named before: with the first named op
}

TEST(Resolve, StagesMayHaveMeshesOfTheirOwn) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(R"(mesh = { dp = 2 }
split = [ { ops = "*", dim = "batch", over = "dp" }, { ops = "*", dim = "ffn", over = "tp" } ]
stage = [ { ops = "{up,act}", at = 0 }, { ops = "down", at = 1, mesh = { tp = 3 } } ])",
                                     graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(resolved->ranks, 5);
  EXPECT_EQ(resolved->stages[0].mesh.to_string(), "{dp=2}");
  EXPECT_EQ(resolved->stages[1].mesh.to_string(), "{tp=3}");
  EXPECT_EQ(resolved->stages[1].mesh.first_device, 2);
  EXPECT_EQ(splits_of(*resolved, graph, "up"), "batch: dp");  // stage 0 has no tp, stage 1 no dp
  EXPECT_EQ(splits_of(*resolved, graph, "down"), "ffn: tp");
}

TEST(Resolve, StoresByNameAndByRole) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(R"(mesh = { dp = 2, tp = 2 }
store = [
  { tensors = "optimizer.*", over = "dp", dim = "ffn" },
  { tensors = "role:gradient", over = ["dp", "tp"] },
  { tensors = "role:parameter", tier = "host" },
  { tensors = "down.weight", tier = "device" },
  { tensors = "act", recompute = true },
])",
                                     graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  const auto plan_of = [&](std::string_view name) {
    return resolved->tensors[graph.find_tensor(name).index()];
  };
  EXPECT_EQ(plan_of("optimizer.momentum.down.weight").over.numbers(), Axes{AxisId(0)});
  EXPECT_EQ(plan_of("optimizer.momentum.down.weight").dim, "ffn");
  EXPECT_EQ(plan_of("grad.down.weight").over.numbers(), (Axes{AxisId(0), AxisId(1)}));
  EXPECT_FALSE(plan_of("down.dx").has_over);  // the gradient of an activation
  EXPECT_EQ(plan_of("up.weight").tier, Tier::kHost);
  EXPECT_EQ(plan_of("down.weight").tier, Tier::kDevice);
  EXPECT_EQ(resolved->to_recompute, std::vector<TensorId>{graph.find_tensor("act")});
}

TEST(Resolve, AnAxisOfOneRankShiftsNoLoop) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(R"(mesh = { a = 1, b = 2 }
split = [ { ops = "up", dim = "batch", over = "time:4", order = "rotated", skew = "-a" } ])",
                                     graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  for (const DimSplit& split : resolved->ops[0].dims) {
    EXPECT_TRUE(split.skew.empty());
    EXPECT_EQ(split.order, StepOrder::kAligned);
  }
}

struct Case {
  std::string text, message;
};

TEST(Resolve, ErrorsOfSplitsAndStores) {
  const Graph mlp = test_mlp();
  const std::string head = "mesh = { dp = 2, tp = 2 }\n";
  const std::vector<Case> cases{
      {head + "split = [ { ops = \"dwon\", dim = \"ffn\", over = \"tp\" } ]",
       "plan.toml:2: ops = \"dwon\" selects no forward op, did you mean 'down'?"},
      {head + "split = [ { ops = \"up\", phase = \"update\", dim = \"ffn\", over = \"tp\" } ]",
       "plan.toml:2: ops = \"up\" selects no update op, did you mean 'update'?"},
      {head + "split = [ { ops = \"*\", dim = \"fnn\", over = \"tp\" } ]",
       "plan.toml:2: no op that ops = \"*\" selects has the dim 'fnn': op 'up' has (batch, in, "
       "ffn), did you mean 'ffn'?"},
      {head + "split = [\n { ops = \"*\", dim = \"batch\", over = \"dp\" },\n { ops = \"up\", dim "
              "= \"ffn\", over = [\"tp\", "
              "\"dp\"] } ]",
       "plan.toml:4: axis 'dp' splits two dims of op 'up': 'batch' (line 3) and 'ffn' (line 4)"},
      {head + "split = [\n { ops = \"up\", dim = \"in\", over = \"time:2\" },\n { ops = \"up\", "
              "dim = \"ffn\", over = "
              "\"time:2\" } ]",
       "plan.toml:4: op 'up' has two time loops: over 'in' (line 3) and 'ffn' (line 4)"},
      {head + "split = [ { ops = \"up\", dim = \"in\", over = \"time:5\" } ]",
       "plan.toml:2: time:5 has more steps than dim 'in' of op 'up' has elements (4)"},
      {head + "micro_batches = 9",
       "plan.toml:2: micro_batches = 9 is more than dim 'batch' of tensor 'x', whose size is 8 "
       "(batch=8 in=4)"},
      {head + "micro_batches = 2\nmicro_batch_dim = \"bacth\"",
       "plan.toml:2: micro_batches = 2 needs tensors with the dim 'bacth', but none has it, did "
       "you mean 'batch'?"},
      {head + "store = [ { tensors = \"optimiser.*\", over = \"dp\" } ]",
       "plan.toml:2: tensors = \"optimiser.*\" selects no tensor, did you mean 'optimizer'?"},
      {head + "store = [ { tensors = \"role:params\", over = \"dp\" } ]",
       "plan.toml:2: unknown role 'params' in tensors = \"role:params\", did you mean "
       "'parameter'?"},
      {head + "store = [ { tensors = \"role:buffer\", over = \"dp\" } ]",
       "plan.toml:2: tensors = \"role:buffer\" selects no tensor"},
      {head + "store = [ { tensors = \"*.weight\", over = \"dp\", dim = \"fn\" } ]",
       "plan.toml:2: no tensor that tensors = \"*.weight\" selects has the dim 'fn', did you mean "
       "'ffn'?"},
      {head + "store = [ { tensors = \"*.weight\", recompute = true } ]",
       "plan.toml:2: recompute needs activations, but tensors = \"*.weight\" selects none: "
       "'up.weight' is of role "
       "parameter"},
      {head + "schedule = [[\"F0\", \"B0\"], [\"F0\", \"B0\"]]",
       "plan.toml:2: expected 1 lists in 'schedule' (one a place), found 2"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of(c.text, mlp), c.message) << c.text;
}

TEST(Resolve, ErrorsOfStages) {
  const Graph mlp = test_mlp();
  const std::string two = "stage = [\n { ops = \"up\", at = 0 },\n { ops = \"down\", at = 1 } ]";
  const std::vector<Case> cases{
      {"mesh = { pp = 3 }\n" + two,
       "plan.toml:4: expected 3 stages (axis 'pp' of the mesh {pp=3}), or a multiple of it, found "
       "2; 'place' puts them otherwise"},
      {"mesh = { pp = 2 }",
       "plan.toml: expected 2 stages (axis 'pp' of the mesh {pp=2}), or a multiple of it, found 1; "
       "'place' puts them otherwise"},
      {"mesh = { dp = 2 }\n" + two,
       "plan.toml:4: 2 stages need the stage axis 'pp' in the mesh {dp=2}, or a mesh of their own"},
      {"mesh = { pp = 2 }\nstage = [ { ops = \"up\", at = 0 }, { ops = \"down\", at = 2 } ]",
       "plan.toml:2: stages must be numbered 0..2 without a gap, but no entry has at = 1"},
      {"mesh = { pp = 2 }\nstage = [ { ops = \"up\", at = 1 }, { ops = \"down\", at = 0 } ]",
       "plan.toml:2: op 'down' at stage 0 reads 'act', which op 'act' makes at the later stage 1"},
      {"mesh = { pp = 2 }\nstage = [ { ops = \"up\", at = 0 },\n { ops = \"*\", at = 1 } ]",
       "plan.toml:2: stage 0 has no ops: later entries move all of them elsewhere"},
      {"stage = [ { ops = \"up\", at = 0, mesh = { a = 2 } },\n { ops = \"down\", at = 1, mesh = { "
       "a = 2 }, devices = 1 } ]",
       "plan.toml:2: stages 0 and 1 share device 1"},
      {"stage = [ { ops = \"up\", at = 0, mesh = { a = 2 } },\n { ops = \"down\", at = 1, mesh = { "
       "a = 2 }, devices = 3 } ]",
       "plan.toml:1: device 2 belongs to no stage"},
      {"stage = [ { ops = \"up\", at = 0, mesh = { a = 2 } },\n { ops = \"act\", at = 0, mesh = { "
       "a = 3 } } ]",
       "plan.toml:2: stage 0 already has a mesh of its own (line 1), and this is another"},
      {"stage = [ { ops = \"pu\", at = 0 } ]",
       "plan.toml:1: ops = \"pu\" selects no forward op, did you mean 'up'?"},
      {"mesh = { dp = 2 }\nsplit = [ { ops = \"down\", dim = \"batch\", over = \"dp\" } ]\nstage = "
       "[ { ops = \"up\", at = 0 },"
       "\n { ops = \"down\", at = 1, mesh = { tp = 3 } } ]",
       "plan.toml:2: over = \"dp\": op 'down' runs on the mesh {tp=3} of stage 1, which lacks that "
       "axis"},
  };
  for (const Case& c : cases) EXPECT_EQ(error_of(c.text, mlp), c.message) << c.text;
}

TEST(Resolve, AFrozenDimIsAnErrorUnlessItExpandsOrAnotherOpTakesTheSplit) {
  const Graph graph = test_transformer();
  const std::string mesh = "mesh = { tp = 2 }\n";
  EXPECT_EQ(
      error_of(
          mesh + "split = [ { ops = \"blocks.*.attn.core\", dim = \"head_dim\", over = \"tp\" } ]",
          graph),
      "plan.toml:2: dim 'head_dim' of op 'blocks.0.attn.core' (attention) cannot be split; dims "
      "that can: batch, "
      "seq, heads, group, kv");
  const auto wide =
      resolve_text(mesh + "split = [ { ops = \"*\", dim = \"head_dim\", over = \"tp\" } ]", graph);
  ASSERT_TRUE(wide.has_value()) << wide.error().message;
  EXPECT_EQ(splits_of(*wide, graph, "blocks.0.attn.q"), "head_dim: tp");
  EXPECT_EQ(splits_of(*wide, graph, "blocks.0.attn.core"), "");
  EXPECT_TRUE(wide->to_expand.empty());
  const auto norms =
      resolve_text(mesh + "split = [ { ops = \"*\", dim = \"hidden\", over = \"tp\" } ]", graph);
  ASSERT_TRUE(norms.has_value()) << norms.error().message;
  EXPECT_EQ(norms->to_expand,
            (std::vector<OpId>{find_op(graph, "blocks.0.ln_1"), find_op(graph, "blocks.1.ln_1"),
                               find_op(graph, "final.ln")}));
  const auto taken_back =
      resolve_text(mesh +
                       "split = [ { ops = \"*\", dim = \"hidden\", over = \"tp\" },\n"
                       "{ ops = \"*.{ln_1,ln}\", dim = \"hidden\", over = [] } ]",
                   graph);
  ASSERT_TRUE(taken_back.has_value()) << taken_back.error().message;
  EXPECT_TRUE(taken_back->to_expand.empty());
}

TEST(Resolve, KeysMayBeCutOverTimeOnly) {
  const Graph graph = test_transformer();
  const std::string mesh = "mesh = { a = 2, b = 2 }\n";
  const std::string entry =
      mesh + "split = [ { ops = \"blocks.*.attn.core\", dim = \"kv\", over = ";
  EXPECT_EQ(error_of(entry + "[\"a\", \"time:2\"] } ]", graph),
            "plan.toml:2: dim 'kv' of op 'blocks.0.attn.core' (attention) cannot be cut over 'a': "
            "expected over = \"time:N\", or no split");
  EXPECT_TRUE(resolve_text(entry + "\"time:2\" } ]", graph).has_value());
}

// The pieces of uneven shards lie where one axis cuts them: no other cut has the same borders.
TEST(Resolve, UnevenBlocksAreCutOverTheirAxisOnly) {
  TestModel model;
  model.layers = 1;
  model.ffn = 11;
  const std::string text = R"(mesh = { a = 3, b = 2 }
split = [
  { ops = "blocks.*.mlp", dim = "ffn", over = "a" },
  { ops = "blocks.*.mlp.up@part1#0", dim = "ffn", over = "b" },
]
loop = [ { ops = "blocks.*.mlp", dim = "ffn", steps = 2 } ])";
  const auto plan = parse_plan(text, "plan.toml");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto shaped = shape_forward(test_transformer(model), *plan, std::nullopt);
  ASSERT_TRUE(shaped.has_value()) << shaped.error().message;
  EXPECT_EQ(
      error_of(text, *shaped),
      "plan.toml:4: dim 'ffn' of op 'blocks.0.mlp.up' lies in 3 uneven shards, each of which a "
      "loop takes in steps: expected no cut of it but over the one axis of 3 ranks, found over "
      "= [\"b\"] (op 'blocks.0.mlp.up@part1#0'); a dim that 3 divides may be cut so");
}

TEST(Resolve, TheStepsOfANestedLoopAreTheProductOfItsAxes) {
  const Graph graph = test_transformer();
  const std::string entry =
      "mesh = { a = 2, b = 2 }\nsplit = [ { ops = \"blocks.*.attn.core\", dim = \"kv\", order = "
      "\"nested\", skew = [\"-a\", \"-b\"], over = ";
  EXPECT_EQ(error_of(entry + "\"time:2\" } ]", graph),
            "plan.toml:2: expected time:4 (the product of the axes in skew = \"-a, -b\"), found "
            "time:2");
  EXPECT_TRUE(resolve_text(entry + "\"time:4\" } ]", graph).has_value());
}

TEST(Prepare, TransformsTheForwardGraphAsThePlanAsks) {
  const Graph graph = test_transformer();
  const auto transformed = [&](const std::string& text) {
    return shape_forward(graph, *parse_plan(text, "plan.toml"), std::nullopt);
  };
  const auto error = [&](const std::string& text) {
    const auto out = transformed(text);
    return out ? "" : out.error().message;
  };
  const auto expanded = transformed("expand = \"blocks.0.attn\"");
  ASSERT_TRUE(expanded.has_value()) << expanded.error().message;
  EXPECT_TRUE(find_op(*expanded, "blocks.0.attn.core.scores").valid());
  EXPECT_TRUE(find_op(*expanded, "blocks.1.attn.core").valid());
  EXPECT_EQ(error("expand = \"blocks.*.atn\""),
            "plan.toml:1: expand = \"blocks.*.atn\" selects no forward op, did you mean "
            "'blocks.0.attn.q'?");
  EXPECT_EQ(error("mesh = {}\nexpand = \"blocks.1.mlp\""),
            "plan.toml:2: expand = \"blocks.1.mlp\" selects no op that can be taken apart, only "
            "such as 'blocks.1.mlp.up' (einsum)");
  EXPECT_EQ(error("reorder = [ { dim = \"sequ\", as = \"zigzag\", pieces = 4 } ]"),
            "plan.toml:1: no tensor of the graph has the dim 'sequ'");
}

TEST(Prepare, ExpandsAndRecomputesUntilNothingIsLeft) {
  const auto trained = differentiate(test_transformer(), OptimizerSpec{});
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  const auto plan = parse_plan(R"(mesh = { tp = 2 }
split = [ { ops = "*", dim = "hidden", over = "tp" } ]
store = [ { tensors = "blocks.*.ln_1", recompute = true }, { tensors = "blocks.*.mlp.act", recompute = true } ]
)");
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const auto first = resolve(*plan, *trained);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(first->to_expand.size(), 6u);  // three norms and their gradients
  const auto prepared = prepare(*trained, *plan);
  ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
  EXPECT_TRUE(prepared->plan.to_expand.empty());
  EXPECT_TRUE(prepared->plan.to_recompute.empty());
  EXPECT_TRUE(prepared->graph.verify().has_value());
  int clones = 0;
  for (const Op& op : prepared->graph.ops()) {
    EXPECT_NE(op.kind, "layer_norm");
    EXPECT_NE(op.kind, "layer_norm_grad");
    if (!op.path.ends_with("@recompute")) continue;
    ++clones;
    EXPECT_EQ(splits_of(prepared->plan, prepared->graph, op.path),
              splits_of(prepared->plan, prepared->graph, prepared->graph.op(op.mirror).path));
  }
  EXPECT_GE(clones, 4);
}

TEST(Explain, NamesTheEntryThatDecided) {
  const Graph graph = test_mlp();
  const auto resolved = resolve_text(
      std::string(kTwoAxes) + "store = [ { tensors = \"optimizer.*\", over = \"dp\" } ]\n", graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  EXPECT_EQ(
      explain(*resolved, graph, find_op(graph, "down.dx")),
      "down.dx (einsum, backward)\n"
      "  stage 0 of 1, mesh {dp=2, tp=2}\n"
      "  batch (8): over dp=2, by plan.toml:3 (ops = \"*\"), inherited from 'down'\n"
      "  out (4): not split, no entry names it\n"
      "  ffn (16): over tp=2, by plan.toml:4 (ops = \"{up,act,down}\"), inherited from 'down'\n");
  EXPECT_EQ(explain_tensor(*resolved, graph, graph.find_tensor("optimizer.momentum.down.weight")),
            "optimizer.momentum.down.weight (optimizer_state)\n"
            "  stored over dp, by plan.toml:6 (tensors = \"optimizer.*\")\n");
}

TEST(Explain, SaysWhyAnOpIsLeftWhole) {
  const auto trained = differentiate(test_transformer(), OptimizerSpec{});
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  const Graph& graph = *trained;
  const std::string every =
      "mesh = { tp = 2 }\nsplit = [\n  { ops = \"*\", dim = \"head_dim\", over = \"tp\" },\n";
  const auto resolved = resolve_text(every + "]\n", graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  const auto whole = ops_left_whole(*resolved, graph);
  ASSERT_EQ(whole.size(), 1);
  EXPECT_EQ(to_text(whole[0], *resolved, graph),
            "plan.toml:3 (ops = \"*\", dim = \"head_dim\") leaves 2 ops whole, as the kind "
            "'attention' freezes it: blocks.0.attn.core, blocks.1.attn.core");
  const auto says = [&](const std::string& op, const std::string& line) {
    return explain(*resolved, graph, find_op(graph, op)).find("  head_dim (2): " + line + "\n") !=
           std::string::npos;
  };
  EXPECT_TRUE(says("blocks.0.attn.q", "over tp=2, by plan.toml:3 (ops = \"*\")"));
  EXPECT_TRUE(says("blocks.0.attn.core",
                   "not split though plan.toml:3 (ops = \"*\") names it: the kind 'attention' "
                   "freezes it"));
  EXPECT_TRUE(says("blocks.0.attn.core.grad", "not split, as in 'blocks.0.attn.core'"));
  const auto said = resolve_text(
      every + "  { ops = \"blocks.*.attn.core\", dim = \"head_dim\", over = [] } ]\n", graph);
  ASSERT_TRUE(said.has_value()) << said.error().message;
  EXPECT_TRUE(ops_left_whole(*said, graph).empty()) << "as a later entry says";
}

TEST(Explain, SaysWhichStagesLackAnAxis) {
  const Graph graph = test_transformer();
  const auto resolved = resolve_text(
      "split = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
      "stage = [ { ops = \"blocks.0\", at = 0, mesh = { dp = 2 } },\n"
      "          { ops = \"blocks.1\", at = 1, mesh = { tp = 2 } } ]\n",
      graph);
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  const auto whole = ops_left_whole(*resolved, graph);
  ASSERT_EQ(whole.size(), 1);
  EXPECT_EQ(graph.op(whole[0].ops[0]).path, "blocks.1.ln_1");
  EXPECT_TRUE(to_text(whole[0], *resolved, graph).find("whole, as stage 1 has the mesh {tp=2}: ") !=
              std::string::npos)
      << to_text(whole[0], *resolved, graph);
}

TEST(Resolve, ALargeGraphIsQuick) {
  TestModel model;
  model.layers = 96;
  const auto trained = differentiate(test_transformer(model), OptimizerSpec{});
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  std::string text =
      "mesh = { pp = 2, dp = 2, tp = 2 }\nsplit = [\n{ ops = \"*\", dim = \"batch\", over = \"dp\" "
      "},\n";
  for (int i = 0; i < 16; ++i) {
    text += "{ ops = \"blocks.[" + std::to_string(6 * i) + "-" + std::to_string(6 * i + 5) +
            "].{attn,mlp}.*\", dim = \"heads\", over = \"tp\" },\n";
  }
  text +=
      "]\nstage = [ { ops = \"{embed,blocks.[0-47]}\", at = 0 }, { ops = "
      "\"{blocks.[48-95],final,head,loss}\", at = 1 } "
      "]\nstore = [ { tensors = \"optimizer.*\", over = \"dp\" } ]";
  const auto start = std::chrono::steady_clock::now();
  const auto resolved = resolve_text(text, *trained);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message;
  RecordProperty("ops", static_cast<int>(trained->ops().size()));
  RecordProperty("milliseconds", static_cast<int>(seconds.count() * 1e3));
  EXPECT_LT(seconds.count(), 3.0) << trained->ops().size()
                                  << " ops";  // 0.3 s in release; sanitizers and load are slower
}

}  // namespace
}  // namespace tessera::resolve_test
