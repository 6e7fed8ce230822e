#include "tessera/search/question/with_part.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/search/test_questions.h"

namespace tessera::with_part_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024";

std::unique_ptr<Asked> ask_with(const std::string& part, int64_t batch = 16) {
  auto out = ask(kGpt, "dgx-a100:1", batch);
  out->question.part = parse_part(part, "part.toml", planned_axes()).value();
  out->question.evaluations = 6;
  return out;
}

PlanAnswer answer_with(const std::string& part, const std::string& devices = "8",
                       size_t programs = 6, const std::map<std::string, std::string>& fixed = {}) {
  const auto asked = ask_with(part);
  asked->question.fixed = fixed;
  asked->question.fixed["devices"] = devices;
  asked->question.evaluations = programs;
  PlanAnswer answer = find_plan(asked->question, "auto", search_planners()).value();
  expect_sound(answer, asked->question);
  return answer;
}

std::string refusal_of(const std::string& part,
                       const std::map<std::string, std::string>& fixed = {}) {
  const auto asked = ask_with(part);
  asked->question.fixed = fixed;
  asked->question.evaluations = 1;
  const auto answer = find_plan(asked->question, "auto", search_planners());
  return answer ? "no error" : answer.error().message;
}

TEST(WithPart, WhatThePartSaysOfDegreesIsNotSearched) {
  const PlanAnswer answer = answer_with(
      "mesh = { tp = 2, pp = 2 }\n"
      "micro_batches = 4\n"
      "schedule = \"gpipe\"\n");
  for (const PlanCandidate& candidate : answer.simulated) {
    EXPECT_EQ(candidate.choice.stages, 2) << candidate.choice.str();
    EXPECT_EQ(candidate.choice.axes.list().at(1).size, 2) << candidate.choice.str();
    EXPECT_EQ(candidate.choice.micro_batches, 4) << candidate.choice.str();
    EXPECT_EQ(candidate.choice.schedule, "gpipe") << candidate.choice.str();
  }
}

// The answer's text contains the part: with the part added once more it is the same.
TEST(WithPart, EveryPlanContainsThePart) {
  for (const char* part :
       {"store = [ { tensors = \"optimizer.*\", tier = \"host\" } ]\n",
        "store = [ { tensors = \"blocks.1\", recompute = true } ]\n",
        "split = [ { ops = \"{head,loss}\", dim = \"vocab\", over = \"tp\" } ]\n",
        "mesh = { pp = 2 }\nstage = [ { ops = \"blocks.3\", at = 1 } ]\n",
        "bucket_bytes = 1000000\nprecision = { state = \"float32\" }\n"}) {
    const PlanAnswer answer = answer_with(part, "4", 1, {{"tp", "2"}});
    const Plan plan = parse_plan(answer.plan).value();
    const auto again = add_part(plan, parse_part(part, "part.toml", planned_axes()).value());
    EXPECT_EQ(again.value(), plan) << part << answer.plan;
  }
}

// Recipes are raced, too, where the part leaves all cuts open, and not where it says what is cut.
TEST(WithPart, RecipesAreRacedIfItLeavesAllCutsOpen) {
  const auto ended = [](const std::string& part) {
    const auto asked = ask_with(part);
    asked->question.fixed = {{"devices", "4"}, {"pp", "1"}};
    asked->question.evaluations = 48;
    return find_plan(asked->question, "auto", search_planners()).value().ended;
  };
  EXPECT_NE(ended("bucket_bytes = 1000000\n").find(" recipes"), std::string::npos);
  EXPECT_EQ(ended("mesh = { tp = 2 }\nbucket_bytes = 1000000\n").find(" recipes"),
            std::string::npos);
}

TEST(WithPart, RecipesContainWhatHasNoCuts) {
  const auto asked = ask_with("bucket_bytes = 1000000\n", 8);
  asked->question.evaluations = 32;
  const PlanAnswer answer = find_plan(asked->question, "recipes", search_planners()).value();
  EXPECT_EQ(parse_plan(answer.plan).value().bucket_bytes, 1000000);
  asked->question.part = parse_part("\nmesh = { tp = 2 }\n", "part.toml", planned_axes()).value();
  const auto refused = find_plan(asked->question, "recipes", search_planners());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(
      refused.error().message,
      "part.toml:2: planner recipes: expected a part without axes and entries, as recipes take "
      "arguments (--fix KEY=VALUE), found one with 'mesh'");
}

// With state on the host the devices need less, and the formula knows it as the folded model has it
// too.
TEST(WithPart, PricesHaveThePart) {
  const auto free = ask(kGpt, "dgx-a100:1", 16);
  free->question.fixed = {{"devices", "1"}};
  const auto with = ask_with("store = [ { tensors = \"optimizer.*\", tier = \"host\" } ]\n");
  with->question.fixed = free->question.fixed;
  const PlanAnswer plain = find_plan(free->question, "auto", search_planners()).value();
  const PlanAnswer hosted = find_plan(with->question, "auto", search_planners()).value();
  EXPECT_LT(best_of(hosted).estimate.memory_bytes, best_of(plain).estimate.memory_bytes);
  EXPECT_LT(best_of(hosted).need_bytes, best_of(plain).need_bytes);
  EXPECT_GT(step_of(hosted), step_of(plain));
}

// An axis that planners do not write takes devices of the machine.
TEST(WithPart, AnAxisOfItsOwn) {
  const PlanAnswer answer = answer_with(
      "mesh = { cp = 2 }\n"
      "split = [ { ops = \"blocks.*.mlp\", dim = \"seq\", over = \"cp\" } ]\n");
  const Plan plan = parse_plan(answer.plan).value();
  EXPECT_EQ(plan.ranks(), 8);
  EXPECT_EQ(best_of(answer).choice.ranks(), 4);
  EXPECT_EQ(answer.simulation->ranks, 8);
}

// Plans that differ only in settings that the part decides are equal: they are simulated once.
TEST(WithPart, EqualPlansAreSimulatedOnce) {
  const auto asked = ask_with(
      "mesh = { dp = 2, tp = 1, pp = 1 }\n"
      "micro_batches = 1\n"
      "store = [ { tensors = \"optimizer.*\", over = \"dp\" } ]\n");
  asked->question.evaluations = 100;
  asked->question.margin = 1e9;  // everything is simulated
  const PlanAnswer answer = find_plan(asked->question, "auto", search_planners()).value();
  const auto has = [&](int64_t sharded) {
    return std::count_if(answer.simulated.begin(), answer.simulated.end(), [&](const auto& one) {
      return one.choice.sharded == sharded && one.choice.units.empty() &&
             one.choice.recompute == "none" && one.choice.transfers == TransferChoice{};
    });
  };
  EXPECT_EQ(has(0) + has(1), 1);
  EXPECT_EQ(has(2), 1);
  EXPECT_EQ(has(3), 1);
  EXPECT_GE(answer.left_out_for_part, 1);
}

TEST(WithPart, WhatCannotBeIsOneLineWithItsPlace) {
  EXPECT_TRUE(
      refusal_of("\nsplit = [\n  { ops = \"blocks.*.mpl\", dim = \"ffn\", over = \"tp\" },\n]\n")
          .starts_with("part.toml:3: "));
  EXPECT_EQ(refusal_of("mesh = { tp = 2 }\n", {{"tp", "4"}}),
            "part.toml:1: the part says tp = 2, but --fix says tp=4");
  EXPECT_EQ(refusal_of("mesh = { cp = 16 }\n"),
            "part.toml:1: the part's axes have 16 devices, found 8");
  EXPECT_TRUE(
      refusal_of("\nmesh = { tp = 16 }\n").starts_with("part.toml:2: no choice can be made"))
      << refusal_of("\nmesh = { tp = 16 }\n");
  // Every plan is refused, because the planner's plans do not have such a stage.
  const std::string message = refusal_of(
      "mesh = { pp = 1 }\nstage = [\n  { ops = \"blocks.3\", at = 7 },\n]\n", {{"tp", "1"}});
  EXPECT_TRUE(message.starts_with("part.toml:3: expected plans with a stage 7, found ")) << message;
  for (const char* part : {"mesh = { pp = 2 }\nschedule = \"chimera\"\n",
                           "mesh = { dp = 8 }\nstore = [\n  { tensors = \"blocks.0.ln_1.weight\", "
                           "over = \"dp\", dim = \"nothing\" },\n]\n"}) {
    const std::string refused = refusal_of(part, {{"tp", "1"}});
    EXPECT_TRUE(refused.starts_with("part.toml:")) << refused;
    EXPECT_EQ(refused.find('\n'), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace tessera::with_part_test
