#include "tessera/search/question/objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tessera/cluster/presets.h"

namespace tessera::objective_test {
namespace {

PlanFacts facts(double step_s, double bytes, int64_t devices, bool fits = true) {
  return {step_s, bytes, {devices, 3.6 * static_cast<double>(devices)}, fits};
}

// Returns the index of the best of the plans, with the first of equal ones.
size_t best_of(const Objective& objective, const std::vector<PlanFacts>& plans) {
  size_t out = 0;
  for (size_t i = 1; i < plans.size(); ++i) {
    if (objective.merit(plans[i]) < objective.merit(plans[out])) out = i;
  }
  return out;
}

const std::vector<PlanFacts> kPlans = {facts(1, 9, 8), facts(1.4, 5, 8), facts(1.8, 8, 4),
                                       facts(9, 7, 1), facts(.5, 99, 8, false)};

TEST(Objective, EachGoalHasItsOwnBestPlan) {
  EXPECT_EQ(best_of({Goal::kTime}, kPlans), 0U);
  EXPECT_EQ(best_of({Goal::kMoney}, kPlans), 2U) << "1.8 s on four devices is less than 1 s on 8";
  EXPECT_EQ(best_of({Goal::kDevices}, kPlans), 3U);
  EXPECT_EQ(best_of({Goal::kMemory}, kPlans), 1U);
  EXPECT_DOUBLE_EQ(Objective{Goal::kMoney}.merit(kPlans[2]).cost, 1.8 * 4 * 3.6 / 3600);
}

TEST(Objective, ADeadlineComesBeforeTheGoal) {
  Objective devices{Goal::kDevices};
  devices.deadline_s = 2;
  EXPECT_EQ(best_of(devices, kPlans), 2U);
  devices.deadline_s = 1.5;
  EXPECT_EQ(best_of(devices, kPlans), 0U) << "of eight devices the faster plan";
  devices.deadline_s = .1;
  EXPECT_EQ(best_of(devices, kPlans), 0U) << "none meets it, so the fastest";
}

TEST(Objective, APlanThatDoesNotFitIsTheWorst) {
  for (const Goal goal : {Goal::kTime, Goal::kMoney, Goal::kDevices, Goal::kMemory}) {
    Objective objective{goal};
    objective.deadline_s = .1;
    EXPECT_LT(objective.merit(kPlans[3]), objective.merit(kPlans[4]));
    EXPECT_LT(objective.merit(facts(9, 50, 8, false)), objective.merit(kPlans[4]))
        << "of two that do not fit the smaller one";
  }
}

// A plan that is no slower, no larger and on no more devices is never worse, whatever is asked for.
TEST(Objective, NoGoalPrefersAPlanThatIsWorseInAllRespects) {
  std::mt19937_64 random(7);
  const auto draw = [&] { return static_cast<double>(random() % 5 + 1); };
  for (int i = 0; i < 2000; ++i) {
    const PlanFacts a = facts(draw(), draw(), static_cast<int64_t>(draw()), random() % 4 > 0);
    PlanFacts b = facts(a.step_s + draw() - 1, a.memory_bytes + draw() - 1,
                        a.used.count + static_cast<int64_t>(draw()) - 1);
    b.fits = a.fits && random() % 4 > 0;
    Objective objective{static_cast<Goal>(random() % 4)};
    objective.deadline_s = static_cast<double>(random() % 4);
    EXPECT_LE(objective.merit(a), objective.merit(b)) << i;
  }
}

TEST(Objective, DevicesCostWhatTheirPartCosts) {
  Cluster cluster = load_cluster("dgx-a100:2").value();
  cluster.parts.push_back(cluster.parts.front());
  Objective objective{Goal::kMoney, {1, 10}};
  EXPECT_DOUBLE_EQ(objective.used(cluster, 16).usd_an_hour, 16);
  EXPECT_DOUBLE_EQ(objective.used(cluster, 20).usd_an_hour, 16 + 40);
  EXPECT_DOUBLE_EQ(objective.used(cluster, 2, RankDevices({0, 31})).usd_an_hour, 11);
  EXPECT_DOUBLE_EQ(Objective{}.used(cluster, 20).usd_an_hour, 0) << "no prices are known";
  EXPECT_EQ(Objective{}.used(cluster, 20).count, 20);
}

TEST(Objective, TiesAreEqualInCostAndTime) {
  const Objective devices{Goal::kDevices};
  const auto merit = [&](double step_s, int64_t count) {
    return devices.merit(facts(step_s, 1, count));
  };
  EXPECT_TRUE(ties(merit(1, 4), merit(1.001, 4), .002));
  EXPECT_FALSE(ties(merit(1, 4), merit(1.01, 4), .002));
  EXPECT_FALSE(ties(merit(1, 4), merit(1, 5), .002));
}

}  // namespace
}  // namespace tessera::objective_test
