#include "tessera/planners/rannc.h"

#include <algorithm>
#include <functional>

#include "tessera/planners/all_planners.h"
#include "tessera/search/test_questions.h"

namespace tessera::rannc_test {
namespace {

const char* const kGpt = "gpt:layers=4,hidden=256,heads=4,seq=128,vocab=1024";

// Returns the least max(forward + comm) + max(backward + comm) over all cuts and replicas.
double brute_force(RanncSpace& space, const RanncSetting& setting, size_t stages, int64_t most) {
  double least = 1e300;
  const std::function<void(size_t, size_t, int64_t, double, double)> go =
      [&](size_t at, size_t left, int64_t devices, double forward, double backward) {
        if (left == 0) {
          if (at == space.blocks().size() && devices == 0)
            least = std::min(least, forward + backward);
          return;
        }
        for (size_t end = at + 1; end <= space.blocks().size(); ++end) {
          for (int64_t r = 1; r <= std::min(devices, most); r *= 2) {
            const auto stage = space.stage(setting, at, end, r);
            if (!stage) continue;
            go(end, left - 1, devices - r, std::max(forward, stage->forward + stage->comm),
               std::max(backward, stage->backward + stage->comm));
          }
        }
      };
  go(0, stages, setting.devices, 0, 0);
  return least;
}

TEST(RanncPlanner, StagesEqualBruteForceOverItsSpace) {
  for (const char* model : {kGpt, "mlp:layers=3"}) {
    const auto asked = ask(model, "dgx-v100:1", 8);
    asked->question.fixed = {{"devices", "4"}};
    const auto search = PlanSearch::begin(asked->question).value();
    RanncSpace space(*search);
    for (const double capacity : {0.0, 1.2e9, 1.0e9}) {
      for (size_t stages = 1; stages <= 4; ++stages) {
        for (const int64_t m : {1, 2, 4}) {
          const RanncSetting setting{4, 1, m, 0, capacity};
          const auto plan = space.best(setting, stages);
          const double least = brute_force(space, setting, stages, 8 / m);
          ASSERT_EQ(plan.has_value(), least < 1e300) << model << " " << stages << " " << m;
          if (plan) {
            EXPECT_NEAR(plan->value, least, 1e-9 * least);
          }
        }
      }
    }
  }
}

// Every unit is in one block, no tensor goes backwards, and no block is left and entered again.
TEST(RanncPlanner, BlocksAreConvexAndInOrder) {
  for (const char* model : {"t5:layers=6,hidden=64,heads=4,source=32,seq=32,vocab=128,ffn=128",
                            "resnet:layers=50,image=32,width=8,ghost=2"}) {
    const auto asked = ask(model, "dgx-v100:1", 64);
    const auto search = PlanSearch::begin(asked->question).value();
    RanncSpace space(*search);
    const Fold& fold = search->fold();
    EXPECT_LE(space.blocks().size(), 32U);
    std::vector<size_t> block_of(fold.units.size(), 99);
    for (size_t b = 0; b < space.blocks().size(); ++b) {
      for (const size_t u : space.blocks()[b]) {
        EXPECT_EQ(block_of[u], 99U);
        block_of[u] = b;
      }
    }
    EXPECT_EQ(std::count(block_of.begin(), block_of.end(), 99), 0);
    const Graph& forward = search->forward();
    std::vector<size_t> of_op(forward.ops().size());
    for (size_t u = 0; u < fold.units.size(); ++u) {
      for (const OpId op : fold.units[u].ops) of_op[op.index()] = block_of[u];
    }
    for (const Op& op : forward.ops()) {
      for (const TensorId input : op.inputs) {
        const OpId maker = forward.tensor(input).producer;
        // An order without edges backwards makes every block convex.
        if (maker.valid()) {
          EXPECT_LE(of_op[maker.index()], of_op[op.id.index()]) << op.path;
        }
      }
    }
  }
}

TEST(RanncPlanner, PlansModelsOfAllFamilies) {
  for (const auto& [model, batch] : models_of_all_families(kGpt)) {
    const auto asked = ask(model, "dgx-v100:1", batch);
    asked->question.fixed = {{"devices", "4"}};
    for (const char* stages : {"", "3"}) {
      if (*stages != 0) asked->question.fixed["pp"] = stages;
      const auto answer = find_plan(asked->question, "rannc", all_planners());
      ASSERT_TRUE(answer.has_value()) << model << answer.error().message;
      expect_sound(*answer, asked->question);
      const Choice& choice = answer->simulated[*answer->best].choice;
      EXPECT_EQ(choice.ranks(), 4) << model;
      EXPECT_EQ(choice.recompute, choice.micro_batches > 1 ? "full" : "none") << model;
      if (*stages != 0) {
        EXPECT_EQ(choice.stages, *stages - '0') << model;
      }
    }
  }
}

// The answer has the smallest number of stages that fits, and copies of the pipeline side by side.
TEST(RanncPlanner, TakesTheFewestStagesThatFit) {
  const auto asked = ask("gpt:layers=8,hidden=1024,heads=16,seq=256,vocab=8192", "dgx-a100:1", 32);
  asked->question.fixed = {{"devices", "4"}, {"zero", "0"}};
  int64_t before = 1;
  size_t several = 0;
  for (const int64_t megabytes : {20000, 3600, 3200, 2900, 2700}) {
    asked->question.memory_limit_bytes = megabytes * 1000000;
    const PlanAnswer answer = find_plan(asked->question, "rannc", all_planners()).value();
    if (!answer.best) continue;
    expect_sound(answer, asked->question);
    const Choice& choice = answer.simulated[*answer.best].choice;
    EXPECT_GE(choice.stages, before) << megabytes;
    before = choice.stages;
    several += choice.stages > 1;
    if (choice.stages == 2 && choice.stage_axes.empty()) {
      EXPECT_EQ(choice.device_order, (std::vector<int64_t>{0, 2, 1, 3}));
    }
  }
  EXPECT_GT(several, 0U);
  asked->question.memory_limit_bytes = 1000000;
  const PlanAnswer none = find_plan(asked->question, "rannc", all_planners()).value();
  EXPECT_FALSE(none.best.has_value());
}

TEST(RanncPlanner, EqualQuestionsHaveEqualAnswers) {
  const auto asked = ask(kGpt, "dgx-a100:1", 8);
  asked->question.fixed = {{"pp", "3"}};
  const PlanAnswer a = find_plan(asked->question, "rannc", all_planners()).value();
  const PlanAnswer b = find_plan(asked->question, "rannc", all_planners()).value();
  EXPECT_EQ(to_text(a, asked->question, true), to_text(b, asked->question, true));
  EXPECT_EQ(a.plan, b.plan);
}

TEST(RanncPlanner, WhatIsFixedIsNotSearched) {
  const auto asked = ask(kGpt, "dgx-a100:1", 16);
  asked->question.fixed = {
      {"pp", "4"}, {"dp", "2"}, {"zero", "1"}, {"micro_batches", "4"}, {"recompute", "none"}};
  const PlanAnswer answer = find_plan(asked->question, "rannc", all_planners()).value();
  ASSERT_TRUE(answer.best.has_value());
  const Choice& choice = answer.simulated[*answer.best].choice;
  EXPECT_EQ(choice.stages, 4);
  EXPECT_EQ(choice.axes[0].size, 2);
  EXPECT_TRUE(choice.stage_axes.empty());
  EXPECT_EQ(choice.sharded, 1);
  EXPECT_EQ(choice.micro_batches, 4);
  EXPECT_EQ(choice.recompute, "none");
  asked->question.fixed = {{"tp", "2"}};
  EXPECT_EQ(find_plan(asked->question, "rannc", all_planners()).error().message,
            "plan: --fix tp=2: rannc does not cut layers");
}

}  // namespace
}  // namespace tessera::rannc_test
