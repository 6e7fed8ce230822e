#include "tessera/search/question/effort.h"

#include <gtest/gtest.h>

#include <memory>

#include "tessera/cluster/profile.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/recipes.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/test_questions.h"

namespace tessera::effort_test {
namespace {

const char* const kModel = "gpt:layers=2,hidden=32,heads=2,seq=16,vocab=64";

PlanEffort effort_under(const std::string& plan) {
  const Compiled compiled = compile({kModel, plan, 8, "float32"}).value();
  return effort_of(*compiled.lowering);
}

double work_under(const std::string& plan) {
  const Compiled compiled = compile({kModel, plan, 8, "float32"}).value();
  return work_of_programs(*compiled.lowering);
}

PlanCandidate candidate(double step_s, int64_t transfers, int64_t instructions, int64_t entries) {
  PlanCandidate out;
  out.step_s = step_s;
  out.fits = true;
  out.effort = {transfers, instructions, entries};
  return out;
}

TEST(Effort, MoreMicroBatchesAndShardsAreMoreEffort) {
  EXPECT_EQ(effort_under("serial").transfers, 0);
  const PlanEffort whole = effort_under("data_parallel(2)"),
                   twice = effort_under("data_parallel(2,micro_batches=2)");
  EXPECT_GT(whole.transfers, 0);
  EXPECT_LT(whole, twice);
  EXPECT_LT(whole.instructions, twice.instructions);
  // Gradients move in shards as they do without them: only the text says more.
  const PlanEffort one = effort_under("zero(1,2)"), two = effort_under("zero(2,2)");
  EXPECT_LT(whole, one);
  EXPECT_EQ(one.transfers, two.transfers);
  EXPECT_LT(one, two);
}

// Replicas have one role, whatever their number, and all micro-batches run the same instructions. A
// loop over a dim has the instructions of each step.
TEST(Effort, WorkCountsTheInstructionsOfEachRole) {
  const double replicas = work_under("data_parallel(2)");
  EXPECT_GT(replicas, work_under("serial"));
  EXPECT_EQ(replicas, work_under("data_parallel(4)"));
  EXPECT_LT(work_under("data_parallel(2,micro_batches=4)"), 1.5 * replicas);
  EXPECT_GT(work_under("cannon(q=2)"), 2 * replicas);
}

TEST(Effort, LargerProgramsThanAllowedAreNotSimulated) {
  const auto asked = ask(kModel, "local:2", 8);
  const auto search = PlanSearch::begin(asked->question).value();
  const auto text = emit_recipe("data_parallel(2)", search->forward());
  const Plan plan = parse_plan(text.value()).value();
  PlanCandidate small, large;
  search->judge_plan(plan, small);
  ASSERT_TRUE(small.step_s.has_value());
  search->judge_plan(plan, large, small.work - 1);
  EXPECT_FALSE(large.step_s.has_value());
  EXPECT_NE(large.refused.find("ops and instructions, more than"), std::string::npos);
  PlanCandidate equal;
  search->judge_plan(plan, equal, small.work);
  EXPECT_EQ(equal.step_s, small.step_s);
}

TEST(Effort, TheSimplestOfTiesIsTheAnswer) {
  const std::vector<PlanCandidate> all = {candidate(1.0, 5, 100, 3), candidate(1.0015, 4, 200, 3),
                                          candidate(1.001, 4, 100, 4), candidate(1.01, 1, 10, 1)};
  EXPECT_EQ(simplest_of_ties({}, all, 0, .002), 2U);   // fewer transfers, then fewer instructions
  EXPECT_EQ(simplest_of_ties({}, all, 0, .0012), 2U);  // the second one is no tie any more
  EXPECT_EQ(simplest_of_ties({}, all, 0, 1e-9), 0U);
  EXPECT_EQ(simplest_of_ties({}, all, 0, .1), 3U);
  std::vector<PlanCandidate> too_large = all;
  too_large[2].fits = false;
  EXPECT_EQ(simplest_of_ties({}, too_large, 0, .002), 1U);
}

TEST(Effort, WinsByTimeElseByEffort) {
  const PlanCandidate fast = candidate(1, 9, 9, 9), near = candidate(1.001, 1, 1, 1),
                      far = candidate(1.1, 1, 1, 1);
  EXPECT_TRUE(wins({}, fast, far, .002));
  EXPECT_FALSE(wins({}, far, fast, .002));
  EXPECT_TRUE(wins({}, near, fast, .002));
  EXPECT_FALSE(wins({}, near, near, .002));
}

// Prices that are not measured have no error of measuring: only rounding makes ties.
TEST(Effort, OnlyMeasuredMachinesHaveTies) {
  Cluster cluster = load_cluster("dgx-a100:1").value();
  EXPECT_LT(tie_share(cluster), 1e-6);
  cluster.profile = std::make_shared<Profile>();
  EXPECT_GT(tie_share(cluster), 1e-4);
}

// Gradients in shards save nothing with one micro-batch, so the answer does not name them.
TEST(Effort, AnAnswerNamesNoShardsThatSaveNothing) {
  const auto asked =
      ask("mixtral:layers=2,hidden=64,heads=2,seq=32,vocab=64,ffn=64,experts=4", "dgx-a100:1", 8);
  asked->question.fixed = {{"devices", "2"}, {"micro_batches", "1"}, {"pp", "1"}};
  const PlanAnswer found = find_plan(asked->question, "recipes", search_planners()).value();
  ASSERT_TRUE(found.best.has_value());
  for (const PlanCandidate& one : found.simulated) {
    if (!one.step_s || !one.fits) continue;
    EXPECT_FALSE(wins({}, one, found.simulated[*found.best], 1e-9)) << one.name();
  }
}

}  // namespace
}  // namespace tessera::effort_test
