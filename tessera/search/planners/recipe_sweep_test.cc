#include "tessera/search/planners/recipe_sweep.h"

#include <gtest/gtest.h>

#include "tessera/search/planners/test_questions.h"

namespace tessera {
namespace {

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
