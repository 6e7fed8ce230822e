#include "tessera/planners/alpa.h"

#include <functional>
#include <numeric>

#include "tessera/planners/all_planners.h"
#include "tessera/search/test_questions.h"

namespace tessera::alpa_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024";

// Returns the least sum + (m - 1) slowest over all rows of ways that cover layers and devices,
// where a stage with s followers holds the activations of min(m, s + 1) micro-batches.
double brute_force(const AlpaSpace& space, const std::vector<AlpaWay>& ways, int64_t m,
                   double capacity) {
  double least = 1e300;
  std::vector<const AlpaWay*> row;
  const std::function<void(size_t, int64_t)> go = [&](size_t layer, int64_t devices) {
    if (layer == space.layers().size()) {
      if (devices != 0) return;
      double sum = 0, slowest = 0;
      for (size_t s = 0; s < row.size(); ++s) {
        const auto held = std::min<int64_t>(m, static_cast<int64_t>(row.size() - s));
        const double bytes = row[s]->resting_bytes + row[s]->peak_bytes +
                             static_cast<double>(held) * row[s]->activation_bytes;
        if (capacity > 0 && bytes > capacity) return;
        sum += row[s]->seconds;
        slowest = std::max(slowest, row[s]->seconds);
      }
      least = std::min(least, sum + static_cast<double>(m - 1) * slowest);
      return;
    }
    for (const AlpaWay& way : ways) {
      const int64_t own = way.shape.first * way.shape.second;
      if (way.first != layer || own > devices) continue;
      row.push_back(&way);
      go(way.last + 1, devices - own);
      row.pop_back();
    }
  };
  go(0, space.devices());
  return least;
}

TEST(AlpaPlanner, StagesEqualBruteForceOverItsSpace) {
  for (const char* model : {"gpt:layers=2,hidden=256,heads=4,seq=128,vocab=1024", "mlp:layers=2"}) {
    const auto asked = ask(model, "dgx-v100:1", 8);
    asked->question.fixed = {{"devices", "4"}};
    const auto search = PlanSearch::begin(asked->question).value();
    UnitCuts cuts(*search);
    cuts.set_lists({{"hidden"}, {"ffn"}, {"batch"}}, {});
    AlpaSpace space(*search, cuts);
    size_t bound = 0;
    for (const int64_t m : {1, 2, 8}) {
      const std::vector<AlpaWay> ways = space.ways(m, "none");
      ASSERT_FALSE(ways.empty());
      double most = 0;
      for (const AlpaWay& way : ways)
        most = std::max(most, way.resting_bytes + way.peak_bytes + way.activation_bytes);
      for (const double capacity : {0.0, 1.1 * most, .99 * most, .9 * most, .2 * most}) {
        const auto plan = space.stages(ways, m, capacity, 1e300);
        const double least = brute_force(space, ways, m, capacity);
        ASSERT_EQ(plan.has_value(), least < 1e300) << model << " " << m << " " << capacity;
        if (!plan) {
          ++bound;
          continue;
        }
        EXPECT_NEAR(plan->seconds, least, 1e-9 * least) << model << " " << m << " " << capacity;
      }
    }
    EXPECT_GT(bound, 0U);
  }
}

// No equal mesh without stages in the space is, simulated, much faster than the answer.
TEST(AlpaPlanner, LosesLittleToAGridOfPrograms) {
  const auto asked = ask(kGpt, "dgx-v100:1", 8);
  asked->question.fixed = {{"devices", "4"}};
  const PlanAnswer answer = find_plan(asked->question, "alpa", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  double least = 1e300;
  for (const char* tp : {"1", "2", "4"}) {
    asked->question.fixed = {{"devices", "4"}, {"pp", "1"}, {"tp", tp}};
    const auto one = find_plan(asked->question, "alpa", all_planners());
    if (one && one->best) least = std::min(least, step_of(*one));
  }
  EXPECT_LE(step_of(answer), 1.1 * least);
}

TEST(AlpaPlanner, PlansModelsOfAllFamilies) {
  for (const auto& [model, batch] : models_of_all_families(kGpt)) {
    if (model == kGpt || model.starts_with("mlp")) continue;  // other tests cover these
    const auto asked = ask(model, "dgx-v100:1", batch);
    asked->question.fixed = {{"devices", "4"}};
    asked->question.evaluations = 2;
    asked->question.fixed["pp"] = "3";
    const auto staged = find_plan(asked->question, "alpa", all_planners());
    ASSERT_TRUE(staged.has_value()) << model << staged.error().message;
    expect_sound(*staged, asked->question);
    EXPECT_EQ(staged->simulated[*staged->best].choice.stages, 3) << model;
    EXPECT_EQ(staged->simulated[*staged->best].choice.ranks(), 4) << model;
  }
}

// Three stages on four devices have sub-meshes of one and of two devices.
TEST(AlpaPlanner, StagesOfUnequalMeshes) {
  const auto asked = ask(kGpt, "dgx-v100:1", 16);
  asked->question.fixed = {{"devices", "4"}, {"pp", "3"}, {"micro_batches", "4"}};
  const PlanAnswer answer = find_plan(asked->question, "alpa", all_planners()).value();
  expect_sound(answer, asked->question);
  const Choice& choice = answer.simulated[*answer.best].choice;
  ASSERT_EQ(choice.stage_axes.size(), 3U);
  std::vector<int64_t> sizes;
  for (const auto& axes : choice.stage_axes) {
    int64_t size = 1;
    for (const ChoiceAxis& axis : axes) size *= axis.size;
    sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 1, 2}));
}

TEST(AlpaPlanner, TheAnswerFitsAndMoreMemoryIsNeverMuchSlower) {
  const auto asked = ask("gpt:layers=6,hidden=1024,heads=16,seq=512,vocab=8192", "dgx-a100:1", 32);
  asked->question.fixed = {{"devices", "4"}, {"tp", "1"}};
  asked->question.evaluations = 2;
  const PlanAnswer free = find_plan(asked->question, "alpa", all_planners()).value();
  const double need = free.simulated[*free.best].need_bytes;
  size_t answers = 0;
  double before = 0;
  for (const double share : {.6, 1.0}) {
    asked->question.memory_limit_bytes = static_cast<int64_t>(share * need) + 1;
    const PlanAnswer answer = find_plan(asked->question, "alpa", all_planners()).value();
    if (!answer.best) continue;
    ++answers;
    expect_sound(answer, asked->question);
    if (before > 0) {
      EXPECT_LE(step_of(answer), 1.05 * before) << share;
    }
    before = step_of(answer);
  }
  EXPECT_EQ(answers, 2U);
  asked->question.memory_limit_bytes = 1000000;
  const PlanAnswer none = find_plan(asked->question, "alpa", all_planners()).value();
  EXPECT_FALSE(none.best.has_value());
  EXPECT_TRUE(to_text(none, asked->question, false).starts_with("nothing fits: the smallest of "));
}

TEST(AlpaPlanner, EqualQuestionsHaveEqualAnswers) {
  const auto asked = ask(kGpt, "dgx-a100:1", 8);
  const PlanAnswer a = find_plan(asked->question, "alpa", all_planners()).value();
  const PlanAnswer b = find_plan(asked->question, "alpa", all_planners()).value();
  EXPECT_EQ(to_text(a, asked->question, true), to_text(b, asked->question, true));
  EXPECT_EQ(a.plan, b.plan);
}

TEST(AlpaPlanner, WhatIsFixedIsNotSearched) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  asked->question.fixed = {{"pp", "2"},           {"tp", "2"},   {"dp", "2"},
                           {"recompute", "full"}, {"zero", "1"}, {"micro_batches", "4"}};
  const PlanAnswer answer = find_plan(asked->question, "alpa", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  for (const PlanCandidate& candidate : answer.simulated) {
    EXPECT_EQ(candidate.choice.stages, 2);
    EXPECT_EQ(candidate.choice.axes[0].size, 2);
    EXPECT_EQ(candidate.choice.axes.back().size, 2);
    EXPECT_EQ(candidate.choice.recompute, "full");
    EXPECT_EQ(candidate.choice.sharded, 1);
    EXPECT_EQ(candidate.choice.micro_batches, 4);
  }
  asked->question.fixed = {{"chunks", "2"}};
  EXPECT_EQ(find_plan(asked->question, "alpa", all_planners()).error().message,
            "plan: --fix chunks=2: alpa has one stage at each place");
  asked->question.fixed = {{"schedule", "zb_h1"}};
  EXPECT_EQ(find_plan(asked->question, "alpa", all_planners()).error().message,
            "plan: --fix schedule=zb_h1: alpa has 1f1b and gpipe");
}

TEST(AlpaPlanner, StopsWhenAsked) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  int calls = 0;
  asked->question.stop = [&] { return ++calls > 2; };
  const auto answer = find_plan(asked->question, "alpa", all_planners());
  ASSERT_TRUE(answer.has_value());
  EXPECT_LE(answer->simulated.size(), 1U);
}

}  // namespace
}  // namespace tessera::alpa_test
