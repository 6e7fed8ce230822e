// Compares models whose op names say nothing, under recipes that find blocks by their repetition
// and ops by their dims, with the serial run.
#include <gtest/gtest.h>

#include "support/nameless.h"
#include "tessera/models/model.h"
#include "tessera/plan/recipes.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

void expect_equal_to_serial(const char* spec, const char* call, int64_t ranks) {
  VerifyConfig config;
  config.batch = 8;
  config.ranks = ranks;
  auto model = build_model(spec, config.batch, DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  model->graph = nameless(model->graph);
  const auto plan = emit_recipe(call, model->graph);
  ASSERT_TRUE(plan) << call << " on " << spec << ": " << plan.error().message;
  const auto report = verify_model(*model, *plan, config);
  ASSERT_TRUE(report) << call << " on " << spec << ": " << report.error().message;
  EXPECT_TRUE(report->ok) << call << " on " << spec << ": " << report->why;
}

TEST(NamelessModels, EqualTheSerialRun) {
  constexpr const char* kGpt = "gpt:layers=2,hidden=24,heads=6,seq=6,vocab=30,dropout=0.1";
  constexpr const char* kLlama =
      "llama:layers=2,hidden=32,heads=8,kv_heads=2,seq=6,vocab=30,ffn=40";
  constexpr const char* kMixtral =
      "mixtral:layers=2,hidden=24,heads=6,kv_heads=3,experts=4,seq=6,vocab=30,ffn=24";
  expect_equal_to_serial(kGpt, "summa(2)", 4);
  expect_equal_to_serial(kLlama, "cannon(2)", 4);
  expect_equal_to_serial(kGpt, "tesseract(2,2,pp=2,micro_batches=2)", 16);
  expect_equal_to_serial(kLlama, "tensor_parallel_3d(2,2,2)", 8);
  expect_equal_to_serial(kMixtral, "summa(2,cols=3)", 6);
  expect_equal_to_serial(kMixtral, "expert_parallel(4,zero=3)", 4);
  expect_equal_to_serial(kMixtral, "expert_parallel(2,dp=2,tp=2,recompute=selective)", 8);
}

}  // namespace
}  // namespace tessera
