// Compares whole searches with wider ones of the same question.
#include "tessera/planners/all_planners.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/search/choices/spaces.h"
#include "tessera/search/edits/recipe_sweep.h"
#include "tessera/search/rank/ranking.h"
#include "tessera/search/test_questions.h"

namespace tessera::planner_test {
namespace {

constexpr size_t kAll = std::numeric_limits<size_t>::max();
constexpr double kRounding = 1e-9;  // of the time
const char* const kGpt = "gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024";

// Makes a space with all ordered lists of at most two dims, and of at most three that begin with
// "batch" or end with it.
Result<Space> every_list(Ranking& ranking) {
  TESSERA_TRY(Space space, whole_space(ranking));
  space.lists.clear();
  space.pairs.clear();
  auto dims = dims_to_cut(ranking.fold().graph);
  std::erase_if(dims, [](const std::string& dim) { return dim.find('/') != std::string::npos; });
  for (const std::string& a : dims) {
    space.lists.push_back({a});
    for (const std::string& b : dims) {
      if (a == b) continue;
      space.lists.push_back({a, b});
      for (const std::string& c : dims) {
        if (c != a && c != b && (a == "batch" || c == "batch")) space.lists.push_back({a, b, c});
      }
    }
  }
  return space;
}

// The whole space, every program simulated, is never much better than what the funnel finds.
TEST(Planner, TheFunnelLosesLittleToBruteForce) {
  for (const char* model : {"gpt:layers=2,hidden=256,heads=4,seq=128,vocab=1024", "mlp:layers=3"}) {
    for (const char* machine : {"dgx-a100:1", "local:2"}) {
      const auto asked = ask(model, machine, 4);
      asked->question.fixed["devices"] = "2";
      const PlanAnswer found = find_plan(asked->question, "auto", all_planners()).value();
      ASSERT_TRUE(found.best.has_value());
      asked->question.evaluations = kAll;
      asked->question.margin = 1e9;
      const PlanAnswer brute = find_in_space(asked->question, every_list).value();
      EXPECT_LE(step_of(found), 1.02 * step_of(brute))
          << model << " on " << machine << ": " << found.simulated[*found.best].choice.str()
          << " against " << brute.simulated[*brute.best].choice.str();
    }
  }
}

TEST(Planner, AutoIsNeverSlowerThanTheGrid) {
  for (const char* machine : {"dgx-a100:1", "local:2"}) {
    const auto asked = ask(kGpt, machine, 16);
    asked->question.fixed["devices"] = std::string(machine) == "local:2" ? "2" : "8";
    const PlanAnswer found = find_plan(asked->question, "auto", all_planners()).value();
    const PlanAnswer grid = find_plan(asked->question, "megatron_grid", all_planners()).value();
    EXPECT_LE(step_of(found), 1.001 * step_of(grid)) << machine;
  }
}

TEST(Planner, TheAnswerFitsAndMoreMemoryIsNeverSlower) {
  const auto asked = ask("gpt:layers=4,hidden=1024,heads=16,seq=1024,vocab=8192", "dgx-a100:1", 32);
  asked->question.fixed = {{"devices", "4"}};
  const PlanAnswer free = find_plan(asked->question, "auto", all_planners()).value();
  const double need = free.simulated[*free.best].need_bytes;
  double before = 0;
  size_t answers = 0;
  for (const double share : {.6, .75, .9, 1.0}) {
    asked->question.memory_limit_bytes = static_cast<int64_t>(share * need) + 1;
    const PlanAnswer answer = find_plan(asked->question, "auto", all_planners()).value();
    if (!answer.best) continue;
    ++answers;
    EXPECT_LE(answer.simulated[*answer.best].need_bytes, share * need + 1);
    if (before > 0) {
      EXPECT_LE(step_of(answer), 1.001 * before) << share;
    }
    before = step_of(answer);
  }
  EXPECT_GE(answers, 3U);
}

// A plan that is faster with something fixed is found without the fix, too: by the recipe's starts,
// which have the values that the search found, and by the schedules of the search.
TEST(RecipeRace, FindsWithoutAFixWhatItFindsWithOne) {
  const auto asked = ask("mlp:in=4096,hidden=16384,out=1024,layers=12", "dgx-a100:2", 4096);
  asked->question.compute = DType::kBFloat16;
  const PlanAnswer free = find_plan(asked->question, "auto", all_planners()).value();
  expect_sound(free, asked->question);
  for (const auto& [key, value] : CallValues{{"zero", "1"}, {"schedule", "zb_h2"}, {"pp", "2"}}) {
    PlanQuestion fixed = asked->question;
    fixed.fixed = {{key, value}};
    const PlanAnswer answer = find_plan(fixed, "auto", all_planners()).value();
    EXPECT_LE(step_of(free), step_of(answer) * (1 + kRounding))
        << key << "=" << value << ": " << best_of(free).name() << " against "
        << best_of(answer).name();
  }
}

}  // namespace
}  // namespace tessera::planner_test
