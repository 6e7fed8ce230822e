// Oracles: the step of a plan is that of its own text, simulated anew; what the framework refuses is
// not offered; the baseline of planners is itself a grid.
#include "tessera/search/choices/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/search/test_questions.h"

namespace tessera::grid_test {
namespace {

constexpr const char* kGpt = "gpt:layers=4,hidden=512,heads=8,seq=256,vocab=4096";

std::unique_ptr<Asked> small_question() {
  auto asked = ask(kGpt, "dgx-a100:1", 32);
  asked->question.compute = DType::kBFloat16;
  asked->question.fixed = {{"recompute", "none"}, {"chunks", "1"}};  // for a short test
  return asked;
}

Status accepts_all(const std::string& /*plan*/) { return {}; }

TEST(Grid, steps_are_those_of_the_texts) {
  const auto asked = small_question();
  const auto answer = find_in_grid(asked->question, megatron_grid(), accepts_all);
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_FALSE(answer->plans.empty());
  for (const GridPlan& plan : answer->plans) {
    const auto compiled = compile({kGpt, plan.text, 32, "bfloat16"});
    ASSERT_TRUE(compiled) << compiled.error().message;
    const auto simulation = simulate(*compiled->lowering, asked->cluster, asked->question.options);
    ASSERT_TRUE(simulation) << simulation.error().message;
    EXPECT_DOUBLE_EQ(simulation->step_time_s, *plan.candidate.step_s) << plan.text;
  }
}

TEST(Grid, the_simplest_of_the_fastest_comes_first) {
  const auto asked = small_question();
  const auto answer = find_in_grid(asked->question, megatron_grid(), accepts_all);
  ASSERT_TRUE(answer) << answer.error().message;
  const GridPlan& first = answer->plans.front();
  double best_s = *first.candidate.step_s;
  for (const GridPlan& plan : answer->plans) best_s = std::min(best_s, *plan.candidate.step_s);
  EXPECT_LE(*first.candidate.step_s, best_s * (1 + answer->uncertainty));
  for (const GridPlan& plan : answer->plans) {
    if (*plan.candidate.step_s <= best_s * (1 + answer->uncertainty)) {
      EXPECT_GE(plan.sorts, first.sorts) << plan.text;
    }
  }
}

TEST(Grid, offers_what_the_framework_runs_alone) {
  const auto asked = small_question();
  const auto no_pipelines = [](const std::string& plan) -> Status {
    if (plan.find("stage = ") == std::string::npos) return {};
    return invalid_input("no pipelines");
  };
  const auto answer = find_in_grid(asked->question, megatron_grid(), no_pipelines);
  ASSERT_TRUE(answer) << answer.error().message;
  for (const GridPlan& plan : answer->plans)
    EXPECT_EQ(plan.text.find("stage = "), std::string::npos) << plan.text;
  const auto nothing = [](const std::string&) -> Status { return invalid_input("nothing runs"); };
  const auto none = find_in_grid(asked->question, megatron_grid(), nothing);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->plans.empty());
  EXPECT_GT(none->refused, 0U);
  EXPECT_EQ(none->refusal, "nothing runs");
}

TEST(Grid, has_the_sorts_of_ranks_that_it_states) {
  const auto asked = small_question();
  DegreeGrid grid;
  grid.sharded = {3};
  const auto answer = find_in_grid(asked->question, grid, accepts_all);
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_FALSE(answer->plans.empty());
  for (const GridPlan& plan : answer->plans) {
    EXPECT_EQ(plan.sorts, 0);
    EXPECT_EQ(plan.candidate.choice.sharded, 3);
    EXPECT_EQ(plan.candidate.choice.axes.front().size, 8);
  }
}

TEST(Grid, keeps_the_degrees_that_are_fixed) {
  const std::vector<std::map<std::string, std::string>> cases = {
      {{"cp", "2"}}, {{"cp", "2"}, {"tp", "2"}, {"pp", "1"}}, {{"tp", "4"}, {"cp", "1"}}};
  for (const auto& fixed : cases) {
    const auto asked = small_question();
    asked->question.fixed.insert(fixed.begin(), fixed.end());
    const auto answer = find_in_grid(asked->question, megatron_grid(), accepts_all);
    ASSERT_TRUE(answer) << answer.error().message;
    ASSERT_FALSE(answer->plans.empty());
    const auto degree = [&](const char* key, int64_t otherwise) {
      return fixed.contains(key) ? std::stoll(fixed.at(key)) : otherwise;
    };
    for (const GridPlan& plan : answer->plans) {
      int64_t tensor = 1, context = 1;
      for (size_t a = 1; a < plan.candidate.choice.axes.size(); ++a) {
        const ChoiceAxis& axis = plan.candidate.choice.axes[a];
        (has(axis.dims, "heads") ? tensor : context) *= axis.size;
      }
      EXPECT_EQ(tensor, degree("tp", tensor)) << plan.text;
      EXPECT_EQ(context, degree("cp", context)) << plan.text;
    }
  }
}

TEST(Grid, refuses_keys_that_no_framework_has) {
  const auto asked = small_question();
  asked->question.fixed["slices"] = "2";
  EXPECT_EQ(find_in_grid(asked->question, megatron_grid(), accepts_all).error().message,
            "plan: --fix slices=2: expected one of pp, dp, tp, cp, ep, micro_batches, chunks, "
            "zero, recompute, schedule beside --for, found 'slices'");
  asked->question.fixed = {{"devices", "4"}};
  EXPECT_EQ(find_in_grid(asked->question, megatron_grid(), accepts_all).error().message,
            "plan: --fix devices=4: expected all 8 devices beside --for; a smaller --cluster has "
            "fewer");
  asked->question.fixed = {{"dp", "3"}, {"tp", "2"}};
  EXPECT_EQ(find_in_grid(asked->question, megatron_grid(), accepts_all).error().message,
            "plan: no choice of the framework's degrees can be made for batch 32 on 8 devices with "
            "dp=3, tp=2");
}

// The best of megatron_grid is a candidate of every search by auto.
TEST(Grid, auto_is_never_slower_than_the_baseline) {
  for (const auto& [model, machine, batch] :
       {std::tuple{"gpt:layers=2,hidden=64,heads=2,seq=32,vocab=128", "local:2", 2},
        std::tuple{"mlp:layers=5", "dgx-a100:1", 4}}) {
    const auto asked = ask(model, machine, batch);
    const auto found = find_plan(asked->question, "auto", search_planners());
    const auto baseline = find_plan(asked->question, "megatron_grid", search_planners());
    ASSERT_TRUE(found && baseline) << model;
    EXPECT_LE(step_of(*found), step_of(*baseline)) << model;
  }
}

}  // namespace
}  // namespace tessera::grid_test
