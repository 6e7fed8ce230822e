#include "tessera/search/edits/recipes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "tessera/plan/recipes.h"
#include "tessera/search/edits/recipe_sweep.h"
#include "tessera/search/test_questions.h"

namespace tessera::recipes_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024";

// Returns the seconds of a step of the call's plan; infinite if it is refused.
double simulated_step(const PlanQuestion& question, const std::string& call) {
  Compiler compiler;
  const auto model = compiler.model(question.model, question.batch, DType::kFloat32).value();
  const auto text = emit_recipe(call, model->graph);
  if (!text) return std::numeric_limits<double>::infinity();
  const auto lowering = compiler.lower(forward_of(model), parse_plan(*text).value());
  if (!lowering) return std::numeric_limits<double>::infinity();
  return simulate(**lowering, *question.cluster, question.options)->step_time_s;
}

// No plan of megatron on four devices is faster than the answer: all degrees, micro-batches and
// shards are tried by brute force.
TEST(RecipesPlanner, FindsTheFastestArgumentsOfARecipe) {
  const auto asked = ask(kGpt, "dgx-a100:1", 8);
  const auto search = PlanSearch::begin(asked->question).value();
  JudgedPlans judged;
  RecipeSweep sweep(*search, *find_recipe("megatron"), 4, judged);
  ASSERT_TRUE(sweep.begin());
  sweep.run(40);
  ASSERT_TRUE(sweep.best() != nullptr);
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [tp, pp, dp] : std::vector<std::array<int, 3>>{
           {1, 1, 4}, {4, 1, 1}, {1, 4, 1}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int pieces : {1, 2, 4}) {
        const double step = simulated_step(
            asked->question, fmt::format("megatron(tp={},pp={},dp={},zero={},micro_batches={})", tp,
                                         pp, dp, zero, pieces));
        best = std::min(best, step);
      }
    }
  }
  EXPECT_LE(*sweep.best()->candidate.step_s, best * (1 + 1e-9));
}

// The best call of each recipe is listed, the fastest first, under the name with which it can be
// asked for.
TEST(RecipesPlanner, ListsTheBestCallOfEachRecipe) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  asked->question.fixed["devices"] = "4";
  asked->question.evaluations = 3 * all_recipes().size();
  const PlanAnswer answer = find_plan(asked->question, "recipes", search_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  EXPECT_GT(answer.simulated.size(), 12U);
  std::set<std::string> names;
  double before = 0;
  for (const PlanCandidate& one : answer.simulated) {
    EXPECT_GE(*one.step_s, before * (1 - 1e-9));
    before = *one.step_s;
    EXPECT_TRUE(names.insert(one.call.substr(0, one.call.find('('))).second) << one.call;
    EXPECT_NEAR(simulated_step(asked->question, one.call), *one.step_s, *one.step_s * .02);
  }
  EXPECT_TRUE(names.contains("megatron"));
  EXPECT_FALSE(names.contains("compressed")) << "a lossy plan is no answer";
  EXPECT_NE(to_text(answer, asked->question, true).find(best_of(answer).call), std::string::npos);
}

TEST(RecipesPlanner, AnswersQuestionsOfAllFamilies) {
  for (const auto& [model, batch] : models_of_all_families(kGpt)) {
    const auto asked = ask(model, "dgx-a100:1", batch);
    asked->question.fixed["devices"] = "4";
    asked->question.evaluations = all_recipes().size();
    expect_sound(find_plan(asked->question, "recipes", search_planners()).value(), asked->question);
  }
}

TEST(RecipesPlanner, KeepsToWhatIsFixedAndToTheLimit) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  asked->question.evaluations = 3 * all_recipes().size();
  asked->question.fixed = {{"tp", "2"}};
  const PlanAnswer answer = find_plan(asked->question, "recipes", search_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  for (const PlanCandidate& one : answer.simulated)
    EXPECT_NE(one.call.find("tp=2"), std::string::npos) << one.call;
  asked->question.fixed = {};
  asked->question.memory_limit_bytes = 1;
  const PlanAnswer none = find_plan(asked->question, "recipes", search_planners()).value();
  EXPECT_FALSE(none.best.has_value());
  EXPECT_EQ(to_text(none, asked->question, false).rfind("nothing fits", 0), 0U);
}

TEST(RecipesPlanner, RefusesWhatNoRecipeHas) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  asked->question.fixed = {{"replicas_apart", "1"}};
  const auto answer = find_plan(asked->question, "recipes", search_planners());
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().message,
            "plan: planner recipes: expected a recipe that makes a plan of the model for 8 devices "
            "--fix replicas_apart=1, found none");
}

}  // namespace
}  // namespace tessera::recipes_test
