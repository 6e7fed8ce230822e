#include "tessera/search/choices/offload_levels.h"

#include <gtest/gtest.h>

#include "tessera/compile/compile.h"
#include "tessera/search/test_questions.h"

namespace tessera {
namespace {

// The model has 0.11 billion parameters: 1.8 GB of parameters, gradients and optimizer state.
const char* const kModel = "gpt:layers=8,hidden=1024,heads=16,seq=512,vocab=8192";
constexpr int64_t kLimit = 2300000000;

std::unique_ptr<Asked> ask_one_device(int64_t limit) {
  auto asked = ask(kModel, "2080ti:1", 8);
  asked->question.compute = DType::kFloat16;
  asked->question.memory_limit_bytes = limit;
  asked->question.fixed["devices"] = "1";
  asked->question.evaluations = 6;
  return asked;
}

PlanAnswer on_one_device(const std::string& offload, int64_t limit = kLimit) {
  const auto asked = ask_one_device(limit);
  if (!offload.empty()) asked->question.fixed["offload"] = offload;
  return find_plan(asked->question, "auto", search_planners()).value();
}

TEST(Offload, FitsWhereNothingElseDoes) {
  EXPECT_FALSE(on_one_device("none").best.has_value());
  const PlanAnswer found = on_one_device("");
  ASSERT_TRUE(found.best.has_value());
  EXPECT_FALSE(found.offloaded.empty());
  EXPECT_LE(found.simulated[*found.best].need_bytes, found.limit_bytes);
  EXPECT_NE(found.plan.find("tier = \"host\""), std::string::npos);

  // The text says all: when it is lowered again, it takes as long and holds as much.
  const auto asked = ask_one_device(kLimit);
  Compiler compiler;
  const auto model = compiler.model(kModel, 8, storage_dtype(DType::kFloat16)).value();
  const Plan plan = parse_plan(found.plan, "answer").value();
  const auto lowering = compiler.lower(forward_of(model), plan).value();
  const Simulation again = simulate(*lowering, *asked->question.cluster, {}).value();
  EXPECT_NEAR(again.step_time_s, step_of(found), 1e-6 * step_of(found));
  EXPECT_GT(again.roles.front().memory.arena_bytes[static_cast<size_t>(Tier::kHost)], 0);
  EXPECT_LE(again.roles.front().memory.high, found.limit_bytes);

  // The answer is the fastest of all levels that fit.
  for (const std::string& name : offload_names()) {
    const PlanAnswer one = on_one_device(name);
    if (one.best) {
      EXPECT_LE(step_of(found), step_of(one)) << name;
    }
  }
}

TEST(Offload, StaysAwayWhereMemoryDoesNotBind) {
  const PlanAnswer found = on_one_device("", 0);
  ASSERT_TRUE(found.best.has_value());
  EXPECT_TRUE(found.offloaded.empty());
  EXPECT_EQ(found.plan.find("tier"), std::string::npos);
}

// Memory that is the host's own cannot be saved by a copy in the host's memory.
TEST(Offload, StaysAwayWhereDevicesAreTheHost) {
  const auto asked = ask("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", "local:2", 4);
  asked->question.memory_limit_bytes = 100000;
  asked->question.fixed = {{"pp", "1"}, {"tp", "1"}};
  asked->question.evaluations = 4;
  const PlanAnswer found = find_plan(asked->question, "auto", search_planners()).value();
  EXPECT_FALSE(found.best.has_value());
  EXPECT_TRUE(found.offloaded.empty());
}

// The host has little memory: what rests there must fit, too.
TEST(Offload, TheHostsMemoryIsALimit) {
  const auto asked = ask_one_device(kLimit);
  Cluster small = *asked->question.cluster;
  small.parts.front().type.host_bytes = 1000000000;
  asked->question.cluster = &small;
  for (const char* name : {"optimizer", "states"}) {
    asked->question.fixed["offload"] = name;
    EXPECT_FALSE(find_plan(asked->question, "auto", search_planners())->best.has_value()) << name;
  }
}

}  // namespace
}  // namespace tessera
