// Tests a change of the plan in the middle of a run. Oracle: the serial run (verify_plan compares
// loss, gradients and parameters of every step), and bytes and messages counted by the
// communicator.
#include "tessera/runtime/training/periods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/runtime/session.h"

namespace tessera::periods_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModel =
    "llama:layers=4,hidden=12,heads=3,kv_heads=3,head_dim=4,seq=5,vocab=22,ffn=20";

VerifyConfig config_of(const std::string& plan, std::vector<PlanChange> changes) {
  VerifyConfig config;
  config.model = kModel;
  config.plan = plan;
  config.batch = 12;
  config.changes = std::move(changes);
  config.steps = 2 * static_cast<int64_t>(config.changes.size() + 1);
  return config;
}

void expect_equal_to_serial(const VerifyConfig& config) {
  const auto report = verify_plan(config);
  ASSERT_TRUE(report) << config.plan << ": " << report.error().message;
  EXPECT_TRUE(report->ok) << config.plan << ": " << report->why;
  EXPECT_GT(report->bytes_counted, 0);
}

TEST(Periods, TheRunGoesOnAsIfNothingHappened) {
  const std::vector<std::string> plans{
      "data_parallel(2)", "tensor_parallel(3)", "zero(stage=3,dp=4)",
      "megatron(tp=3,dp=2,zero=1,micro_batches=2)", "pipeline(4,4,1f1b,1)"};
  for (size_t a = 0; a < plans.size(); ++a) {
    for (size_t b = 0; b < plans.size(); ++b) {
      if ((a + b) % 2 == 0) continue;  // half of the pairs, each plan before and after others
      SCOPED_TRACE(plans[a] + " to " + plans[b]);
      expect_equal_to_serial(config_of(plans[a], {{2, plans[b]}}));
    }
  }
}

TEST(Periods, RanksAreAddedAndEnded) {
  expect_equal_to_serial(config_of(
      "serial", {{2, "zero(stage=2,dp=4)"}, {4, "tensor_parallel(3)"}, {6, "data_parallel(2)"}}));
}

TEST(Periods, StatesOfOtherOptimizersMoveToo) {
  for (const char* optimizer : {"adafactor", "muon", "lamb"}) {
    SCOPED_TRACE(optimizer);
    VerifyConfig config = config_of("zero(stage=1,dp=3)", {{2, "tensor_parallel(3)"}});
    config.optimizer.kind = optimizer;
    expect_equal_to_serial(config);
  }
}

TEST(Periods, StatesOnDiskMoveToo) {
  expect_equal_to_serial(config_of("offload(dp=2,zero=1,to=disk)", {{2, "data_parallel(3)"}}));
}

TEST(Periods, WhatIsWrongIsSaid) {
  const auto error = [](const VerifyConfig& config) {
    const auto report = verify_plan(config);
    return report ? std::string() : report.error().message;
  };
  VerifyConfig late = config_of("serial", {{4, "data_parallel(2)"}});
  EXPECT_THAT(error(late), HasSubstr("before the last of 4 steps, found one after step 4"));
  const VerifyConfig order =
      config_of("serial", {{3, "data_parallel(2)"}, {2, "data_parallel(3)"}});
  EXPECT_THAT(error(order), HasSubstr("in the order of their steps"));
  EXPECT_EQ(parse_plan_change("50:megatron(tp=2)")->after, 50);
  EXPECT_EQ(parse_plan_change("50:megatron(tp=2)")->plan, "megatron(tp=2)");
  for (const char* text : {"50", "x:serial", "0:serial", "50:"}) {
    const auto change = parse_plan_change(text);
    ASSERT_FALSE(change) << text;
    EXPECT_THAT(change.error().message, HasSubstr("expected STEPS:PLAN"));
  }
}

}  // namespace
}  // namespace tessera::periods_test
