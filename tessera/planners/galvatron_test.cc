#include "tessera/planners/galvatron.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tessera/planners/all_planners.h"
#include "tessera/planners/published/galvatron.h"
#include "tessera/search/test_questions.h"

namespace tessera::galvatron_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024";

// With Megatron's dims alone the leaves are those that the publication counts.
TEST(LayerStrategies, AreThePublishedLeaves) {
  for (const bool again : {false, true}) {
    const std::vector<std::string> recompute =
        again ? std::vector<std::string>{"none", "full"} : std::vector<std::string>{"none"};
    for (const int64_t devices : {1, 2, 4, 8, 16}) {
      int64_t count = 0;
      for (int64_t stages = 1; stages <= devices; stages *= 2) {
        for (const LayerStrategy& leaf : layer_strategies(devices / stages, {0, 3}, recompute)) {
          EXPECT_EQ(leaf.data * leaf.tensor, devices / stages);
          count += leaf.list == 0;
        }
      }
      EXPECT_EQ(count, published::count_strategies(devices, false, again)) << devices;
    }
  }
}

// Returns the least over all assignments of leaves to units, by the same formula.
double least_by_brute_force(LayerSearch& layers, int64_t stages, int64_t micro_batches,
                            const std::vector<size_t>& cuts, size_t units, double limit) {
  const size_t count = layers.strategies(stages, micro_batches).size();
  double least = std::numeric_limits<double>::infinity();
  std::vector<size_t> leaves(units);
  const std::function<void(size_t)> go = [&](size_t unit) {
    if (unit == units) {
      const auto estimate = layers.evaluate(stages, micro_batches, cuts, leaves).estimate;
      if (limit <= 0 || estimate.memory_bytes <= limit) least = std::min(least, estimate.step_s);
      return;
    }
    for (size_t leaf = 0; leaf < count; ++leaf) {
      leaves[unit] = leaf;
      go(unit + 1);
    }
  };
  go(0);
  return least;
}

TEST(LayerSearch, IsNearBruteForceUnderEveryLimit) {
  const auto asked = ask("mlp:layers=1,in=512,hidden=2048,out=64", "dgx-a100:1", 64);
  asked->question.fixed = {{"recompute", "none"}, {"devices", "2"}};
  size_t compared = 0;
  for (const double share : {0.0, .95, .85, .75}) {
    double need = 0;
    {
      const auto search = PlanSearch::begin(asked->question).value();
      LayerSearch free(*search, 2);
      need = free.best_for(1, 1, {}, true)->estimate.memory_bytes;
    }
    asked->question.memory_limit_bytes = static_cast<int64_t>(share * need);
    const auto search = PlanSearch::begin(asked->question).value();
    const size_t units = search->fold().units.size();
    ASSERT_LE(units, 6U);
    LayerSearch layers(*search, 2);
    for (const int64_t stages : {1, 2}) {
      for (const int64_t micro_batches : {4, 8}) {
        if (layers.strategies(stages, micro_batches).empty()) continue;
        for (const auto& cuts : layers.divisions(stages, micro_batches)) {
          const double least = least_by_brute_force(layers, stages, micro_batches, cuts, units,
                                                    search->limit_bytes());
          const auto found = layers.best_for(stages, micro_batches, cuts);
          if (!found) continue;
          ++compared;
          EXPECT_GE(found->estimate.step_s, least * (1 - 1e-9));
          EXPECT_LE(found->estimate.step_s, least * 1.03)
              << share << " " << stages << " stages: " << found->choice.str();
        }
      }
    }
    asked->question.memory_limit_bytes = 0;
  }
  EXPECT_GE(compared, 6U);
}

// No plan of these models may be refused, and the answer lowers, fits and is the same again.
TEST(GalvatronPlanner, PlansOfAllFamiliesLower) {
  for (const char* model :
       {"mlp:layers=3", "t5:layers=2,hidden=64,heads=4,source=32,seq=16,vocab=128",
        "resnet:layers=18,width=8,image=32,classes=4"}) {
    const auto asked = ask(model, "dgx-a100:1", 64);
    asked->question.fixed["devices"] = "4";
    const auto answer = find_plan(asked->question, "galvatron", all_planners());
    ASSERT_TRUE(answer.has_value()) << model << ": " << answer.error().message;
    for (const PlanCandidate& candidate : answer->simulated)
      EXPECT_EQ(candidate.refused, "") << model << ": " << candidate.choice.str();
    ASSERT_TRUE(answer->best.has_value()) << model;
    EXPECT_EQ(find_plan(asked->question, "galvatron", all_planners())->plan, answer->plan) << model;
  }
}

TEST(GalvatronPlanner, TheAnswerFitsAndMoreMemoryIsNotMuchSlower) {
  const auto asked = ask("gpt:layers=6,hidden=1024,heads=16,seq=1024,vocab=8192", "dgx-a100:1", 32);
  asked->question.fixed = {{"devices", "4"}};
  const PlanAnswer free = find_plan(asked->question, "galvatron", all_planners()).value();
  const double need = best_of(free).need_bytes;
  double before = 0;
  size_t answers = 0;
  for (const double share : {.5, .75, 1.0}) {
    asked->question.memory_limit_bytes = static_cast<int64_t>(share * need) + 1;
    const PlanAnswer answer = find_plan(asked->question, "galvatron", all_planners()).value();
    if (!answer.best) continue;
    ++answers;
    EXPECT_LE(best_of(answer).need_bytes, share * need + 1);
    if (before > 0) {
      EXPECT_LE(*best_of(answer).step_s, 1.03 * before) << share;
    }
    before = *best_of(answer).step_s;
  }
  EXPECT_GE(answers, 2U);
}

TEST(GalvatronPlanner, WhatIsFixedIsNotSearched) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  asked->question.fixed = {
      {"pp", "2"}, {"tp", "2"}, {"dp", "2"}, {"recompute", "full"}, {"zero", "1"}};
  const PlanAnswer answer = find_plan(asked->question, "galvatron", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  for (const PlanCandidate& candidate : answer.simulated) {
    EXPECT_EQ(candidate.choice.stages, 2);
    EXPECT_EQ(candidate.choice.ranks(), 8);
    EXPECT_EQ(candidate.choice.recompute, "full");
    EXPECT_EQ(candidate.choice.sharded, 1);
  }
}

TEST(GalvatronPlanner, WrongQuestions) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  const auto message = [&] {
    const auto answer = find_plan(asked->question, "galvatron", all_planners());
    return answer ? std::string("no error") : answer.error().message;
  };
  asked->question.fixed = {{"devices", "6"}};
  EXPECT_EQ(message(), "planner galvatron: expected a power of two of at most 8 devices, found 6");
  asked->question.fixed = {{"schedule", "zb_h1"}};
  EXPECT_EQ(message(), "planner galvatron: expected the schedule 1f1b or gpipe, found 'zb_h1'");
  asked->question.fixed = {{"tp", "3"}};
  EXPECT_TRUE(message().starts_with("plan: no choice can be made")) << message();
}

}  // namespace
}  // namespace tessera::galvatron_test
