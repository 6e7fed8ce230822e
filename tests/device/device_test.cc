// Programs on the device `test`: they compute what they compute on the processor, and a wait that is
// missing shows.
#include <gtest/gtest.h>

#include "dropped_waits.h"
#include "formula_runs.h"
#include "matrix_cases.h"
#include "tessera/runtime/session.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

const std::string kGpt = "gpt:layers=2,hidden=24,heads=6,seq=6,vocab=30";

Result<VerifyReport> verified(const std::string& plan, const std::string& device,
                              const std::string& model = kGpt, int64_t batch = 12) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = batch;
  config.device = device;
  return verify_plan(config);
}

TEST(OnTestDevice, SomePlansOfTheMatrixEqualTheSerialRun) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases) << cases.error().message;
  uint64_t seed = 0;
  int quick = 0;
  for (const MatrixCase& one : *cases) {
    if (!one.quick || ++quick % 20 != 0) continue;
    VerifyConfig config;
    config.model = one.spec;
    config.plan =
        one.plan.ends_with(".toml") ? std::string(TESSERA_SOURCE_DIR) + "/" + one.plan : one.plan;
    config.batch = one.batch;
    config.ranks = one.ranks;
    config.device = "test(seed=" + std::to_string(++seed) + ")";
    const auto report = verify_plan(config);
    ASSERT_TRUE(report) << one.model << " " << one.plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << one.model << " " << one.plan << ": " << report->why;
  }
  EXPECT_GE(seed, 10U);
}

TEST(OnTestDevice, EachSeedGivesTheSameResult) {
  const auto expected = verified("fsdp(dp=2,prefetch=1)", "cpu");
  ASSERT_TRUE(expected) << expected.error().message;
  for (int seed = 1; seed <= 8; ++seed) {
    const auto found = verified("fsdp(dp=2,prefetch=1)", "test(seed=" + std::to_string(seed) + ")");
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->ok) << found->why;
    EXPECT_EQ(found->parameters_error, expected->parameters_error);
    EXPECT_EQ(found->peak_counted, expected->peak_counted);
    EXPECT_EQ(found->bytes_counted, expected->bytes_counted);
  }
}

TEST(OnTestDevice, FormulasEqualTheSerialRunOfTheProcessor) {
  for (const char* plan : {"serial", "megatron(tp=2,dp=2)", "fsdp(dp=2)"}) {
    const auto report = verified(plan, "test(kernels=formulas)");
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

TEST(OnTestDevice, FormulasOfMixturesDropoutAndTablesEqualTheSerialRunOfTheProcessor) {
  for (const FormulaRun& run : formula_runs()) {
    if (run.quick) expect_equal_to_serial(run, "test(kernels=formulas)");
  }
}

// A model whose maps or sequences plans cut, with its batch.
struct OtherModel {
  const char* model;
  const char* plan;
  int64_t batch;
};

TEST(OnTestDevice, FormulasOfMapsAndRecurrencesEqualTheSerialRunOfTheProcessor) {
  for (const OtherModel& one : {
           OtherModel{"vgg:layers=11,form=cifar,norm=1,width=2,image=32,classes=5,ghost=2",
                      "spatial(h=2,w=2)", 4},
           OtherModel{"cosmoflow:width=16,channels=2,filters=2,outputs=3", "spatial(d=2,h=2)", 4},
           OtherModel{"swin:image=16,patch=2,hidden=8,depths=1-2,heads=2,window=4,classes=5",
                      "fsdp(2,prefetch=0)", 4},
           OtherModel{"nemotron_h:pattern=M*,hidden=16,heads=4,kv_heads=2,seq=6,vocab=30,"
                      "ssm_heads=8,ssm_head_dim=4,ssm_groups=4,state=4,chunk=4",
                      "tensor_parallel(2)", 4},
           OtherModel{"llama:layers=2,hidden=16,heads=4,kv_heads=2,seq=6,vocab=30,ffn=24,"
                      "delta_heads=2,delta_value_heads=4,delta_head_dim=4,delta_value_dim=4",
                      "tensor_parallel(2)", 4},
       }) {
    for (const char* device : {"test(kernels=formulas)", "stand-in"}) {
      const auto report = verified(one.plan, device, one.model, one.batch);
      ASSERT_TRUE(report) << one.model << " " << device << ": " << report.error().message;
      EXPECT_TRUE(report->ok) << one.model << " under " << one.plan << " " << device << ": "
                              << report->why;
    }
  }
}

// The stand-in goes the ways of a GPU: libtorch's guards, streams, events and allocator, and NCCL.
TEST(OnStandIn, PlansEqualTheSerialRun) {
  for (const char* plan :
       {"serial", "megatron(tp=2,dp=2)", "fsdp(dp=2,prefetch=1)", "gpipe(pp=2,micro_batches=2)",
        "pipeline(2,4,zb_h1)", "offload(to=disk,gradients=true)",
        "compressed(2,pp=2,micro_batches=4,borders=bfloat16)"}) {
    for (const char* device : {"stand-in", "stand-in(messages=host)"}) {
      const auto report = verified(plan, device);
      ASSERT_TRUE(report) << plan << " " << device << ": " << report.error().message;
      EXPECT_TRUE(report->ok) << plan << " " << device << ": " << report->why;
    }
  }
}

TEST(OnStandIn, MixturesDropoutAndTablesEqualTheSerialRun) {
  for (const FormulaRun& run : formula_runs()) {
    if (run.quick) expect_equal_to_serial(run, "stand-in");
  }
}

TEST(OnTestDevice, AnUnknownDeviceIsRefused) {
  const auto report = verified("serial", "tpu");
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(report.error().message,
            "device 'tpu': expected cpu, cuda, cuda(messages=host), stand-in, "
            "stand-in(messages=host), test, test(seed=N) or test(kernels=formulas)");
}

// Where there is no GPU, one line says what is missing first; where there is one, gpu-check runs.
TEST(OnCuda, WhatIsMissingIsSaidInOneLine) {
  const auto report = verified("serial", "cuda");
  if (report) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(report.error().code, ErrorCode::kInvalidInput);
  EXPECT_TRUE(report.error().message.starts_with("device cuda: expected "))
      << report.error().message;
  EXPECT_EQ(report.error().message.find('\n'), std::string::npos);
}

TEST(DroppedWaits, AreSeen) {
  DroppedWaits result;
  for (const char* plan : {"megatron(tp=2,dp=1)", "fsdp(dp=2)", "gpipe(pp=2,micro_batches=2)"}) {
    const Status done = drop_waits(kGpt, 12, plan, /*most=*/12, /*seeds=*/5, result);
    ASSERT_TRUE(done) << plan << ": " << done.error().message;
  }
  EXPECT_EQ(result.programs, 3);
  EXPECT_GE(result.dropped, 20);
  EXPECT_GT(result.of_sends, 0);
  EXPECT_GE(static_cast<double>(result.seen), 0.95 * static_cast<double>(result.dropped))
      << testing::PrintToString(result.unseen);
}

}  // namespace
}  // namespace tessera
