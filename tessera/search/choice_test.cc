#include "tessera/search/choice.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/models/model.h"
#include "tessera/plan/plan.h"

namespace tessera {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=64,heads=4,seq=16,vocab=96";

TEST(Choice, DimsThatDivideTheWork) {
  const Graph forward = build_model(kGpt, 8).value().graph;
  const auto dims = dims_to_cut(forward);
  for (const char* dim : {"batch", "seq", "hidden", "heads", "ffn"})
    EXPECT_NE(std::find(dims.begin(), dims.end(), dim), dims.end()) << dim;
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
      choice.cuts[1] = u;
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

// What the text says of each op is what the choice says: the first dim of the list that it has.
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

TEST(Choice, AStageWithoutUnitsIsRefused) {
  const Graph forward = build_model("mlp:layers=1", 8).value().graph;
  const Fold fold = fold_layers(forward).value();
  Choice choice;
  choice.stages = 2;
  choice.cuts = {0, fold.units.size()};
  EXPECT_FALSE(write_plan(choice, forward, fold.units, "x").has_value());
}

}  // namespace
}  // namespace tessera
