#include "tessera/search/planners/recipe_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/search/planners/test_questions.h"

namespace tessera {
namespace {

// With a program for each recipe: the first start has what the search found, and no recipe's default.
TEST(RecipeRace, StartsWithWhatTheSearchFound) {
  const auto asked = ask("gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024", "dgx-a100:1", 16);
  const auto search = PlanSearch::begin(asked->question).value();
  PlanCandidate found;
  found.choice.stages = 2;
  found.choice.axes = {{"dp", 1, {"batch"}}, {"tp", 2, {"heads", "ffn", "vocab"}}};
  found.choice.micro_batches = 4;
  found.choice.recompute = "full";
  search->judge_plan(search->plan_of(found.choice).value(), found);
  const RecipeRace race = race_recipes(*search, 4, all_recipes().size(), {found});
  const auto has_it = [](const TriedCall& one) {
    const std::string call = to_string(one.call);
    return call.starts_with("megatron(") && call.find("micro_batches=4") != std::string::npos &&
           call.find("recompute=full") != std::string::npos;
  };
  EXPECT_TRUE(std::any_of(race.found.begin(), race.found.end(), has_it));
}

TEST(RecipeRace, EndsWhenHalfOfItsProgramsGainNothing) {
  JudgedPlans judged;
  judged.may_tire = true;
  PlanCandidate one;
  one.fits = true;
  const auto note = [&](double step_s) {
    one.step_s = step_s;
    judged.note(one);
  };
  for (size_t i = 0; i < 40; ++i) note(1 - .01 * static_cast<double>(i));
  for (size_t i = 0; i < 40; ++i) {
    note(1);
    EXPECT_FALSE(judged.is_over()) << i;
  }
  note(1);
  EXPECT_EQ(judged.programs, 81U);
  EXPECT_TRUE(judged.is_over());
  note(.5);
  EXPECT_FALSE(judged.is_over());
}

}  // namespace
}  // namespace tessera
