#include "tessera/search/edits/recipe_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/search/plan_search.h"
#include "tessera/search/test_questions.h"

namespace tessera {
namespace {

// The first program of a recipe has the values that the search found, also where its defaults
// differ.
TEST(RecipeRace, StartsWithWhatTheSearchFound) {
  const auto asked = ask("gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024", "dgx-a100:1", 16);
  std::vector<std::string> said;
  asked->question.progress = [&](const std::string& what) { said.push_back(what); };
  const auto search = PlanSearch::begin(asked->question).value();
  PlanCandidate found;
  found.choice.axes = {{"dp", 4, {"batch"}}};
  found.choice.micro_batches = 4;
  search->judge_plan(search->plan_of(found.choice).value(), found);
  ASSERT_TRUE(found.step_s.has_value()) << found.refused;
  race_recipes(*search, 4, 40, {found});
  const auto has_it = [](const std::string& what) {
    return what.starts_with("1 of at most 1: fsdp(dp=4") &&
           what.find("micro_batches=4") != std::string::npos;
  };
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), has_it)) << testing::PrintToString(said);
}

TEST(RecipeRace, EndsWhenHalfOfItsProgramsGainNothing) {
  JudgedPlans judged;
  judged.may_tire = true;
  PlanCandidate one;
  one.fits = true;
  const auto note = [&](double step_s) {
    one.step_s = step_s;
    judged.note({}, one);
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
