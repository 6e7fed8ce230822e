#include "tessera/search/unequal_meshes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tessera/search/infinity.h"
#include "tessera/search/planners/test_questions.h"
#include "tessera/search/spaces.h"

namespace tessera::unequal_meshes_test {
namespace {

// The stages that are found are those of brute force over all borders and numbers of replicas, by what the
// search minimises: the time of the slowest stage, of its passes of all micro-batches and of what it does once.
TEST(UnequalMeshes, TheSlowestStageIsThatOfBruteForce) {
  const auto asked = ask("mlp:layers=4,in=1024,hidden=4096,out=64", "dgx-v100:1", 12);
  asked->question.fixed = {{"devices", "3"}, {"tp", "1"}, {"meshes", "unequal"}};
  const PlanQuestion& question = asked->question;
  const auto search = PlanSearch::begin(question).value();
  Ranking ranking(question, search->fold(), search->pricer());
  Space space = whole_space(ranking).value();
  const std::vector<PlanCandidate> ranked = ranking.rank(space);
  const std::vector<PlanCandidate> found = unequal_meshes(*search, ranking, space, ranked);
  const std::vector<FoldUnit>& units = search->fold().units;
  Estimator& estimator = ranking.estimator();
  size_t compared = 0;
  for (const PlanCandidate& one : found) {
    const Choice& choice = one.choice;
    if (choice.sharded != 0 || choice.schedule != space.schedules.front().name) continue;
    ++compared;
    const auto stages = static_cast<size_t>(choice.stages);
    const auto m = static_cast<double>(choice.micro_batches);
    const int64_t micro_batch = question.batch / choice.micro_batches;
    const auto stage_s = [&](size_t begin, size_t end, int64_t replicas) {
      UnitQuestion of;
      of.sequences = micro_batch / replicas;
      of.recompute = choice.recompute;
      of.on = &estimator.kinds().cluster(0);
      const UnitPrices& prices = **search->pricer().price(of);
      double out = 0;
      for (size_t u = begin; u < end; ++u) {
        const UnitCost cost =
            estimator.unit_cost(prices.units[static_cast<size_t>(units[u].stand_in)],
                                question.compute, 0, {replicas, 1, 1, 0}, 3);
        out += m * cost.passes_s + cost.once_s;
      }
      return out;
    };
    double least_s = kInfinity;
    const std::function<void(size_t, size_t, int64_t, double)> go = [&](size_t stage, size_t begin,
                                                                        int64_t used,
                                                                        double slowest) {
      if (stage == stages) {
        if (begin == units.size()) least_s = std::min(least_s, slowest);
        return;
      }
      for (size_t end = begin + 1; end <= units.size(); ++end) {
        for (int64_t replicas = 1; used + replicas <= 3; ++replicas) {
          if (micro_batch % replicas == 0)
            go(stage + 1, end, used + replicas, std::max(slowest, stage_s(begin, end, replicas)));
        }
      }
    };
    go(0, 0, 0, 0);
    double own_s = 0;
    int64_t devices = 0;
    for (size_t s = 0; s < stages; ++s) {
      const int64_t replicas = choice.axes_of_stage(s).front().size;
      devices += replicas;
      own_s = std::max(
          own_s,
          stage_s(choice.cuts[s], s + 1 < stages ? choice.cuts[s + 1] : units.size(), replicas));
    }
    EXPECT_LE(devices, 3);
    EXPECT_NEAR(own_s, least_s, 1e-9 * least_s) << choice.str();
  }
  EXPECT_GT(compared, 0U);
}

TEST(UnequalMeshes, AreNotSoughtWhereTheQuestionLeavesNoRoom) {
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"devices", "2"}, {"meshes", "equal"}, {"pp", "1"}}) {
    const auto asked = ask("mlp:layers=4,in=1024,hidden=4096,out=64", "dgx-v100:1", 12);
    asked->question.fixed = {{"tp", "1"}, {key, value}};
    const auto search = PlanSearch::begin(asked->question).value();
    Ranking ranking(asked->question, search->fold(), search->pricer());
    Space space = whole_space(ranking).value();
    const std::vector<PlanCandidate> ranked = ranking.rank(space);
    EXPECT_TRUE(unequal_meshes(*search, ranking, space, ranked).empty()) << key;
  }
}

}  // namespace
}  // namespace tessera::unequal_meshes_test
