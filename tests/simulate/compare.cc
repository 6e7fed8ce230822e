#include "compare.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {

namespace {

// Where reductions have a root, as in SUMMA, each rank adds the sums that it gets at its own steps.
// Folded, the ranks of a class add them at the steps of the class's first rank.
bool has_roots(const Simulation& simulation) {
  for (const RankResult& role : simulation.roles) {
    for (const TrafficRow& row : role.traffic) {
      if (row.kind == "reduce") return true;
    }
  }
  return false;
}

}  // namespace

void expect_equal(const Simulation& folded, const Simulation& unfolded) {
  const double step = unfolded.step_time_s;
  const double close = has_roots(unfolded) ? kRooted : 1e-9;
  EXPECT_NEAR(folded.step_time_s, step, (has_roots(unfolded) ? kRooted : kExact) * step);
  EXPECT_NEAR(folded.hardware_flops, unfolded.hardware_flops, 1e-9 * unfolded.hardware_flops);
  std::map<int, const RankResult*> by_rank;
  for (const RankResult& role : unfolded.roles) by_rank[role.representative] = &role;
  int64_t ranks = 0;
  for (const RankResult& role : folded.roles) {
    ranks += role.ranks;
    const RankResult& own = *by_rank.at(role.representative);
    for (size_t s = 0; s < kSpent; ++s) {
      EXPECT_NEAR(role.spent_s[s], own.spent_s[s], close * step)
          << role.representative << " " << spent_name(static_cast<Spent>(s));
    }
    ASSERT_EQ(role.traffic.size(), own.traffic.size());
    for (size_t i = 0; i < role.traffic.size(); ++i) {
      EXPECT_EQ(role.traffic[i].bytes, own.traffic[i].bytes);
      EXPECT_NEAR(role.traffic[i].seconds, own.traffic[i].seconds, close * step)
          << role.traffic[i].kind;
    }
  }
  EXPECT_EQ(ranks, unfolded.ranks);
}

}  // namespace tessera
