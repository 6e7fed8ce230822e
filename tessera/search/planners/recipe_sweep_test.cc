#include "tessera/search/planners/recipe_sweep.h"

#include <gtest/gtest.h>

#include "tessera/search/planners/test_questions.h"

namespace tessera {
namespace {

constexpr double kRounding = 1e-9;  // of the time

// What is faster with something fixed is found without it, too: by the recipe's starts, which have what
// the search found, and by the schedules of the search.
TEST(RecipeRace, FindsWithoutAFixWhatItFindsWithOne) {
  const auto asked = ask("mlp:in=4096,hidden=16384,out=1024,layers=12", "dgx-a100:2", 4096);
  asked->question.compute = DType::kBFloat16;
  const PlanAnswer free = find_plan(asked->question, "auto").value();
  expect_sound(free, asked->question);
  for (const auto& [key, value] : CallValues{{"zero", "1"}, {"schedule", "zb_h2"}, {"pp", "2"}}) {
    PlanQuestion fixed = asked->question;
    fixed.fixed = {{key, value}};
    const PlanAnswer answer = find_plan(fixed, "auto").value();
    EXPECT_LE(step_of(free), step_of(answer) * (1 + kRounding))
        << key << "=" << value << ": " << best_of(free).name() << " against "
        << best_of(answer).name();
  }
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
