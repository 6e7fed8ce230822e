#include "tessera/search/choices/choice.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/compile/compile.h"
#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/recipes.h"

namespace tessera::choice_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=64,heads=4,seq=16,vocab=96";

TEST(Choice, DimsThatDivideTheWork) {
  const Graph forward = build_model(kGpt, 8).value().graph;
  const auto dims = dims_to_cut(forward);
  for (const char* dim : {"batch", "seq", "hidden", "heads", "ffn"})
    EXPECT_NE(std::find(dims.begin(), dims.end(), dim), dims.end()) << dim;
  // Rings are worth a try where sequences are long.
  const auto has_rings = [](const std::string& model) {
    const auto of = dims_to_cut(build_model(model, 8).value().graph);
    return std::find(of.begin(), of.end(), "seq~kv") != of.end();
  };
  EXPECT_TRUE(has_rings("gpt:layers=4,hidden=64,heads=4,seq=256,vocab=96"));
  EXPECT_FALSE(has_rings("gpt:layers=4,hidden=64,heads=4,seq=4,vocab=96"));
}

// Sequence-sharded Megatron 1-D is the list [heads, ffn, vocab, seq].
TEST(Choice, IsWrittenAsPeopleWriteIt) {
  const Graph forward = build_model(kGpt, 8).value().graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.axes = {{"dp", 2, {"batch"}}, {"tp", 2, {"heads", "ffn", "vocab", "seq"}}};
  choice.stages = 2;
  choice.micro_batches = 2;
  choice.sharded = 1;
  choice.cuts = {0, 0};
  for (size_t u = 0; u < fold.units.size(); ++u) {
    if (forward.op(fold.units[u].ops.front()).path.starts_with("blocks.2.") && choice.cuts[1] == 0)
      choice.cuts.set(1, u);
  }
  EXPECT_EQ(choice.str(),
            "pp=2 dp=2[batch] tp=2[heads,ffn,vocab,seq] 1f1b micro_batches=2 sharded=1");
  EXPECT_EQ(write_plan(choice, forward, fold.units, "a test").value(), R"(# a test
mesh = { pp = 2, dp = 2, tp = 2 }
micro_batches = 2
schedule = "1f1b"
split = [
  { ops = "*",                                                                                   dim = "batch", over = "dp" },
  { ops = "*",                                                                                   dim = "vocab", over = "tp" },
  { ops = "{embed.add,final,loss.{token,mean},blocks.*.{ln_1,ln_2,attn.residual,mlp.residual}}", dim = "seq",   over = "tp" },
  { ops = "*",                                                                                   dim = "heads", over = "tp" },
  { ops = "*",                                                                                   dim = "ffn",   over = "tp" },
]
stage = [
  { ops = "{embed,blocks.[0-1]}",           at = 0 },
  { ops = "{blocks.[2-3],final,head,loss}", at = 1 },
]
store = [
  { tensors = "optimizer.*", over = "dp" },
]
)");
}

// The text cuts each op as the choice does: along the first dim of the list that the op has.
TEST(Choice, EachOpIsCutAlongTheFirstDimItHas) {
  const Graph forward = build_model(kGpt, 16).value().graph;
  const Fold fold = fold_layers(forward).value();
  std::vector<std::string> dims = dims_to_cut(forward);
  std::mt19937 random(7);  // NOLINT: the same choices in every run
  for (int round = 0; round < 50; ++round) {
    Choice choice;
    for (const char* axis : {"a", "b"}) {
      std::shuffle(dims.begin(), dims.end(), random);
      choice.axes.push_back({axis, 2, {dims.begin(), dims.begin() + 1 + round % 3}});
    }
    const std::string text = write_plan(choice, forward, fold.units, "random").value();
    const auto plan = resolve(parse_plan(text).value(), forward);
    ASSERT_TRUE(plan.has_value()) << text << plan.error().message;
    for (const Op& op : forward.ops()) {
      for (size_t axis = 0; axis < 2; ++axis) {
        std::string found;
        const auto& cut = plan->ops[op.id.index()].dims;
        for (size_t d = 0; d < cut.size(); ++d) {
          for (const AxisId id : cut[d].axes) {
            if (id.index() == axis) found = op.annotation.dims[d].name;
          }
        }
        EXPECT_EQ(found, dim_to_cut(op, choice.axes[axis])) << op.path << "\n" << text;
      }
    }
  }
}

// The plan of a ring with Megatron's dims inside it is what the recipe writes: the loop in which
// keys travel, the order of the tokens under a causal mask, shards over replicas and ring.
TEST(Choice, KeysTravelAroundAnAxis) {
  const char* const model = "llama:layers=4,hidden=64,heads=4,seq=32,vocab=96,ffn=64,kv_heads=4";
  const auto built = std::make_shared<Model>(build_model(model, 8).value());
  const Graph& forward = built->graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.axes = {{"dp", 2, {"batch"}},
                 {"tp_outer", 4, {"seq~kv", "seq"}},
                 {"tp", 2, {"heads", "ffn", "vocab"}}};
  choice.sharded = 1;
  EXPECT_EQ(choice.str(), "dp=2[batch] tp_outer=4[seq~kv,seq] tp=2[heads,ffn,vocab] sharded=1");
  const std::string text = write_plan(choice, forward, fold.units, "a test").value();
  EXPECT_EQ(text, R"(# a test
mesh = { dp = 2, tp_outer = 4, tp = 2 }
reorder = [ { dim = "seq", as = "zigzag", pieces = 8 } ]
split = [
  { ops = "*",                  dim = "batch", over = "dp" },
  { ops = "*",                  dim = "seq",   over = "tp_outer" },
  { ops = "*",                  dim = "vocab", over = "tp" },
  { ops = "*",                  dim = "heads", over = "tp" },
  { ops = "*",                  dim = "ffn",   over = "tp" },
  { ops = "blocks.*.attn.core", dim = "kv",    over = "time:4",   order = "rotated", skew = "-tp_outer" },
]
store = [
  { tensors = "optimizer.*", over = ["dp", "tp_outer"] },
]
)");
  const RecipeCall call = parse_recipe_call("megatron(dp=2, cp=4, tp=2, zero=1)").value();
  const Plan recipe = parse_plan(emit_recipe(call, forward, "recipe").value()).value();
  const Plan own = parse_plan(text).value();
  Compiler compiler;
  const auto a = compiler.lower(forward_of(built), own),
             b = compiler.lower(forward_of(built), recipe);
  ASSERT_TRUE(a && b) << text;
  const Graph& graph = (*a)->graph();
  ASSERT_EQ(graph.ops().size(), (*b)->graph().ops().size());
  for (const Op& op : graph.ops()) {
    const OpPlan &one = (*a)->plan().ops[op.id.index()], &other = (*b)->plan().ops[op.id.index()];
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const DimSplit &x = one.dims[d], &y = other.dims[d];
      EXPECT_TRUE(x.axes == y.axes && x.steps == y.steps && x.order == y.order && x.skew == y.skew)
          << op.path << " " << op.annotation.dims[d].name;
    }
  }
  for (const Tensor& tensor : graph.tensors()) {
    EXPECT_EQ((*a)->plan().tensors[tensor.id.index()].over,
              (*b)->plan().tensors[tensor.id.index()].over)
        << tensor.name;
  }
  EXPECT_EQ(own.reorders, recipe.reorders);
  // Slices of a sequence come in its order.
  choice.slices = {20, 12};
  EXPECT_EQ(write_plan(choice, forward, fold.units, "x").value().find("reorder"),
            std::string::npos);
}

TEST(Choice, EntriesAreTakenApart) {
  const auto parts = [](const char* text) {
    const ListEntry entry = parse_entry(text);
    return std::vector<std::string>{std::string(entry.scope), std::string(entry.dim),
                                    std::string(entry.travels)};
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts("seq"), (Parts{"", "seq", ""}));
  EXPECT_EQ(parts("attention/heads"), (Parts{"attention", "heads", ""}));
  EXPECT_EQ(parts("seq~kv"), (Parts{"", "seq", "kv"}));
  EXPECT_EQ(parts("attn.core/seq~kv"), (Parts{"attn.core", "seq", "kv"}));
  // The op that makes the bias of attention scores has both dims, too, but compares nothing, so
  // there the keys do not travel.
  const Graph forward =
      build_model("t5:layers=1,hidden=64,heads=4,source=16,seq=16,vocab=96,ffn=64", 2)
          .value()
          .graph;
  size_t rings = 0;
  for (const Op& op : forward.ops()) {
    const AxisCut cut = cut_of(op, {"tp", 2, {"seq~kv", "seq"}});
    if (cut.travels.empty()) continue;
    ++rings;
    EXPECT_EQ(cut, (AxisCut{"seq", "kv"})) << op.path;
    EXPECT_TRUE(query_key_of(op).has_value()) << op.path;
  }
  EXPECT_GT(rings, 0U);
}

// There are rings inside rings, and keys that stay where their queries are whole.
TEST(Choice, PlansWithRingsAreLowered) {
  const auto model = std::make_shared<Model>(build_model(kGpt, 4).value());
  const Graph& forward = model->graph;
  const Fold fold = fold_layers(forward).value();
  using Lists = std::vector<std::vector<std::string>>;
  for (const Lists& lists :
       {Lists{{"seq~kv", "seq"}, {"seq~kv", "seq"}}, Lists{{"seq~kv", "seq"}, {"seq"}},
        Lists{{"heads", "ffn"}, {"seq~kv", "seq"}}, Lists{{"seq~kv"}, {"batch"}},
        Lists{{"attention/seq~kv", "hidden"}, {"vocab", "heads"}}}) {
    Choice choice;
    choice.axes = {{"a", 2, lists[0]}, {"b", 2, lists[1]}};
    const std::string text = write_plan(choice, forward, fold.units, "x").value();
    EXPECT_NE(text.find("dim = \"kv\""), std::string::npos) << text;
    const auto lowering = Compiler().lower(forward_of(model), parse_plan(text).value());
    EXPECT_TRUE(lowering.has_value()) << text << lowering.error().message;
  }
}

TEST(Choice, AxesThatCutTokensAloneHoldCopies) {
  const Graph forward = build_model(kGpt, 8).value().graph;
  const auto holds = [&](const std::vector<std::string>& dims, int64_t size = 2) {
    return holds_copies({"tp", size, dims}, forward);
  };
  EXPECT_TRUE(holds({"batch"}));
  EXPECT_TRUE(holds({"heads", "ffn", "vocab", "batch"}));
  EXPECT_TRUE(holds({"seq"}));
  EXPECT_TRUE(holds({"seq~kv", "seq"}));
  EXPECT_TRUE(holds({"vocab", "seq"}));
  EXPECT_FALSE(holds({"heads", "ffn", "vocab", "seq"}));
  EXPECT_FALSE(holds({"seq"}, 1));
  // The embedding alone stays whole; it counts the less the more blocks a model has.
  EXPECT_FALSE(holds({"heads", "ffn"}));
  std::vector<int64_t> times(forward.ops().size(), 1);
  for (const Op& op : forward.ops()) {
    if (op.block < 0) times[op.id.index()] = 10;
  }
  EXPECT_TRUE(holds_copies({"tp", 2, {"heads", "ffn"}}, forward, times));
}

// Returns the unit of the first op whose path begins so.
size_t unit_at(const Graph& forward, const Fold& fold, const std::string& path) {
  for (size_t u = 0; u < fold.units.size(); ++u) {
    if (forward.op(fold.units[u].ops.front()).path.starts_with(path)) return u;
  }
  return fold.units.size();
}

// Six devices hold two replicas of the first two blocks, and four of the other units.
TEST(Choice, StagesOnMeshesOfTheirOwn) {
  const Graph forward = build_model(kGpt, 8).value().graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.axes = {{"dp", 4, {"batch"}}, {"tp", 1, {"heads"}}};
  choice.stage_axes = {{{"dp", 2, {"batch"}}, {"tp", 1, {"heads"}}},
                       {{"dp", 4, {"batch"}}, {"tp", 1, {"heads"}}}};
  choice.stages = 2;
  choice.micro_batches = 2;
  choice.cuts = {0, unit_at(forward, fold, "blocks.2.")};
  EXPECT_EQ(choice.ranks(), 6);
  EXPECT_EQ(choice.str(), "pp=2 dp=2/4[batch] 1f1b micro_batches=2");
  const std::string text = write_plan(choice, forward, fold.units, "x").value();
  const auto plan = resolve(parse_plan(text).value(), forward);
  ASSERT_TRUE(plan.has_value()) << text << plan.error().message;
  ASSERT_EQ(plan->stages.size(), 2U) << text;
  EXPECT_EQ(plan->stages[0].mesh.size(), 2) << text;
  EXPECT_EQ(plan->stages[1].mesh.size(), 4) << text;
  choice.stage_axes.own().pop_back();
  EXPECT_FALSE(write_plan(choice, forward, fold.units, "x").has_value());
}

// One block is cut by heads, rests in shards or is computed again, and the others are not.
TEST(Choice, UnitsWithTheirOwnDimsShardsAndRecomputation) {
  const auto model = std::make_shared<Model>(build_model(kGpt, 8).value());
  const Graph& forward = model->graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.axes = {{"dp", 2, {"batch"}}, {"both", 2, {"batch"}}};
  choice.units.own().resize(fold.units.size());
  const size_t unit = unit_at(forward, fold, "blocks.1.");
  choice.units.own()[unit].dims = {{"batch"}, {"heads", "ffn"}};
  choice.units.own()[unit].recompute = "full";
  choice.units.own()[unit_at(forward, fold, "blocks.2.")].sharded = 3;
  const std::string text = write_plan(choice, forward, fold.units, "x").value();
  const auto lowering = Compiler().lower(forward_of(model), parse_plan(text).value());
  ASSERT_TRUE(lowering.has_value()) << text << lowering.error().message;
  const Graph& graph = (*lowering)->graph();
  const ResolvedPlan& plan = (*lowering)->plan();
  const auto axes_of = [&](const std::string& path, const std::string& dim) {
    for (const Op& op : graph.ops()) {
      const int d = op.annotation.find(dim);
      if (op.path == path && d >= 0)
        return plan.ops[op.id.index()].dims[static_cast<size_t>(d)].axes.size();
    }
    return size_t{99};
  };
  EXPECT_EQ(axes_of("blocks.0.attn.q", "batch"), 2U) << text;
  EXPECT_EQ(axes_of("blocks.1.attn.q", "batch"), 1U) << text;
  EXPECT_EQ(axes_of("blocks.1.attn.q", "heads"), 1U) << text;
  EXPECT_EQ(axes_of("blocks.0.attn.q", "heads"), 0U) << text;
  for (const Tensor& tensor : graph.tensors()) {
    const TensorPlan& rests = plan.tensors[tensor.id.index()];
    const std::string maker = tensor.producer.valid() ? graph.op(tensor.producer).path : "";
    if (maker == "blocks.1.attn.q") {
      EXPECT_TRUE(rests.recompute) << text;
    }
    if (maker == "blocks.0.attn.q") {
      EXPECT_FALSE(rests.recompute) << text;
    }
    if (tensor.role != Role::kParameter) continue;
    EXPECT_EQ(rests.over.numbers().size(), tensor.name.starts_with("blocks.2.") ? 2U : 0U)
        << tensor.name;
  }
}

TEST(Choice, TokensInSlices) {
  const Graph forward = build_model(kGpt, 8).value().graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.axes = {{"dp", 1, {"batch"}}};
  choice.stages = 2;
  choice.schedule = "token";
  choice.slices = {10, 6};
  choice.sliced_stages = true;
  choice.cuts = {0, unit_at(forward, fold, "blocks.2.")};
  const Plan plan = parse_plan(write_plan(choice, forward, fold.units, "x").value()).value();
  ASSERT_EQ(plan.loops.size(), 1U);
  EXPECT_EQ(plan.loops[0].sizes, choice.slices);
  EXPECT_TRUE(plan.loops[0].stages);
  const auto model = std::make_shared<Model>(build_model(kGpt, 8).value());
  EXPECT_TRUE(Compiler().lower(forward_of(model), plan).has_value());
}

// The decoder's ops on its own tokens need nothing of the encoder, so they may stand in the first
// stage; ranks are on the devices that the choice names.
TEST(Choice, UnitsInAnotherOrderAndDevices) {
  const auto model = std::make_shared<Model>(
      build_model("t5:layers=2,hidden=64,heads=4,source=16,seq=16,vocab=96,ffn=64", 8).value());
  const Graph& forward = model->graph;
  const Fold fold = fold_layers(forward).value();
  size_t early = 0;  // the last unit that reads no activation
  for (size_t u = 0; u < fold.units.size(); ++u) {
    bool reads = false;
    for (const OpId op : fold.units[u].ops) {
      for (const TensorId input : forward.op(op).inputs)
        reads = reads || forward.tensor(input).producer.valid();
    }
    if (!reads) early = u;
  }
  ASSERT_GT(early, 1U);
  Choice choice;
  choice.axes = {{"dp", 2, {"batch"}}};
  choice.stages = 2;
  choice.micro_batches = 2;
  choice.schedule = "gpipe";
  choice.unit_order = {early};
  for (size_t u = 0; u < fold.units.size(); ++u) {
    if (u != early) choice.unit_order.push_back(u);
  }
  choice.cuts = {0, 2};
  choice.device_order = {0, 2, 1, 3};
  const std::string text = write_plan(choice, forward, fold.units, "x").value();
  EXPECT_NE(text.find("device_order = [0, 2, 1, 3]"), std::string::npos) << text;
  const auto plan = resolve(parse_plan(text).value(), forward);
  ASSERT_TRUE(plan.has_value()) << text << plan.error().message;
  for (size_t u = 0; u < fold.units.size(); ++u) {
    const size_t stage = u == early || u == 0 ? 0 : 1;
    for (const OpId op : fold.units[u].ops)
      EXPECT_EQ(plan->ops[op.index()].stage.index(), stage) << forward.op(op).path << text;
  }
  EXPECT_TRUE(Compiler().lower(forward_of(model), parse_plan(text).value()).has_value());
}

TEST(Choice, AStageWithoutUnitsIsRefused) {
  const Graph forward = build_model("mlp:layers=1", 8).value().graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.stages = 2;
  choice.cuts = {0, fold.units.size()};
  EXPECT_FALSE(write_plan(choice, forward, fold.units, "x").has_value());
}

}  // namespace
}  // namespace tessera::choice_test
