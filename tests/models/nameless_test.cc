// Recipes on models whose op names say nothing: the plan must split every op as it does in the
// model with the names of the contract.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/nameless.h"
#include "tessera/models/model.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"

namespace tessera {
namespace {

constexpr const char* kGpt = "gpt:layers=3,hidden=24,heads=6,seq=6,vocab=30,dropout=0.1";
constexpr const char* kLlama = "llama:layers=2,hidden=32,heads=8,kv_heads=2,seq=6,vocab=30,ffn=40";
constexpr const char* kBert = "bert:layers=2,hidden=24,heads=6,seq=6,vocab=30";
constexpr const char* kMixtral =
    "mixtral:layers=2,hidden=24,heads=6,kv_heads=3,experts=4,seq=6,vocab=30,ffn=24";
constexpr const char* kLatent =
    "mixtral:layers=2,hidden=16,heads=4,kv_heads=4,experts=4,seq=6,vocab=30,ffn=24,shared_ffn=10,"
    "latent=8,weigh_inside=1,z_loss=0.1";

// Returns a line for each forward op with the dims that the plan splits, or an error's message.
// Stages are not compared: a block that is found may begin an op before or after the named one.
std::string splits(const Graph& forward, const std::string& call) {
  const auto text = emit_recipe(call, forward);
  if (!text) return text.error().message;
  const auto plan = parse_plan(*text, call);
  if (!plan) return plan.error().message;
  const auto resolved = resolve(*plan, forward);
  if (!resolved) return resolved.error().message;
  std::string out;
  for (const Op& op : forward.ops()) {
    const OpPlan& of = resolved->ops[op.id.index()];
    out += fmt::format("op {} ({}):", op.id.index(), op.kind);
    for (size_t d = 0; d < of.dims.size(); ++d) {
      const DimSplit& split = of.dims[d];
      if (!split.split()) continue;
      out += fmt::format(" {} over", op.annotation.dims[d].name);
      for (const auto& axis : split.axes) out += fmt::format(" {}", axis.index());
      if (split.steps > 1)
        out += fmt::format(" time:{} {}", split.steps, static_cast<int>(split.order));
    }
    out += "\n";
  }
  return out;
}

void expect_the_same(const char* spec, const std::string& call) {
  const auto model = build_model(spec, 8);
  ASSERT_TRUE(model) << model.error().message;
  const std::string named = splits(model->graph, call);
  EXPECT_EQ(named.substr(0, 4), "op 0") << call << " on " << spec << ": " << named;
  EXPECT_EQ(splits(nameless(model->graph), call), named) << call << " on " << spec;
}

TEST(NamelessModels, AreCutAsModelsWithNames) {
  for (const char* spec : {kGpt, kLlama, kBert, kMixtral}) {
    for (const char* call : {"tensor_parallel(3,sequence_shard=true)", "ulysses(2)", "summa(2)",
                             "summa(2,cols=3)", "cannon(2,pp=2,micro_batches=2)", "tesseract(2,2)",
                             "tensor_parallel_3d(2,2,2)", "tensor_parallel_3d(1,2,3,dp=2)"})
      expect_the_same(spec, call);
  }
  for (const char* spec : {kMixtral, kLatent}) {
    for (const char* call : {"expert_parallel(2)", "expert_parallel(4,dp=2)",
                             "expert_parallel(2,tp=2,pp=2,micro_batches=2)"})
      expect_the_same(spec, call);
  }
}

TEST(NamelessModels, ErrorsAreThoseOfModelsWithNames) {
  for (const auto& [spec, call] : {std::pair{kGpt, "summa(7)"},
                                   {kLlama, "tensor_parallel_3d(1,9,1)"},
                                   {kMixtral, "expert_parallel(5)"},
                                   {kGpt, "expert_parallel(2)"}}) {
    const auto model = build_model(spec, 8);
    ASSERT_TRUE(model) << model.error().message;
    const std::string named = splits(model->graph, call);
    EXPECT_EQ(named.substr(0, 7), "recipe ") << named;
    EXPECT_EQ(splits(nameless(model->graph), call), named);
  }
}

}  // namespace
}  // namespace tessera
