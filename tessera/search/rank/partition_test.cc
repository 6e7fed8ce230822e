#include "tessera/search/rank/partition.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

namespace tessera {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double last_unit(const PartitionProblem& problem, const Partition& found, size_t place) {
  return static_cast<double>(place + 1 < found.cuts.size() ? found.cuts[place + 1]
                                                           : problem.resting_bytes.size());
}

// Returns the header's formula for given cuts and levels; infinite if a place does not fit.
double cost_of(const PartitionProblem& problem, const Partition& found) {
  double slowest = 0, sum = 0;
  const auto p = static_cast<double>(found.cuts.size());
  for (size_t q = 0; q < found.cuts.size(); ++q) {
    double time = 0, held = 0, alive = 0;
    for (size_t u = found.cuts[q]; u < static_cast<size_t>(last_unit(problem, found, q)); ++u) {
      const PartitionLevel& level = problem.levels[found.level[u]];
      time += level.time_s[u];
      held += problem.resting_bytes[u] + problem.in_flight[q] * level.activation_bytes[u];
      alive = std::max(alive, level.alive_bytes);
    }
    if (problem.capacity_bytes > 0 && held + alive > problem.capacity_bytes) return kNever;
    slowest = std::max(slowest, time);
    sum += time;
  }
  return problem.micro_batches * slowest + problem.bubble * sum / p * (p - 1);
}

// Returns the least cost of all cuts with all levels of all units.
double brute_force(const PartitionProblem& problem) {
  const size_t units = problem.resting_bytes.size(), places = problem.in_flight.size();
  double best = kNever;
  Partition now;
  now.cuts = {0};
  now.level.assign(units, 0);
  const std::function<void(size_t)> levels = [&](size_t unit) {
    if (unit == units) {
      best = std::min(best, cost_of(problem, now));
      return;
    }
    for (size_t k = 0; k < problem.levels.size(); ++k) {
      now.level[unit] = k;
      levels(unit + 1);
    }
  };
  const std::function<void()> cuts = [&] {
    if (now.cuts.size() == places) return levels(0);
    for (size_t next = now.cuts.back() + 1; next < units; ++next) {
      now.cuts.push_back(next);
      cuts();
      now.cuts.pop_back();
    }
  };
  cuts();
  return best;
}

PartitionProblem random_problem(std::mt19937& random, bool equal_units) {
  PartitionProblem problem;
  const size_t units = 2 + random() % 5, places = 1 + random() % std::min<size_t>(units, 3);
  const auto draw = [&](unsigned most) { return 1.0 + static_cast<double>(random() % most); };
  const double time = draw(9), resting = draw(5), activations = 4 + draw(9);
  PartitionLevel none, full;
  for (size_t u = 0; u < units; ++u) {
    none.time_s.push_back(equal_units ? time : draw(9));
    none.activation_bytes.push_back(equal_units ? activations : 4 + draw(9));
    full.time_s.push_back(none.time_s.back() * 4 / 3);
    full.activation_bytes.push_back(none.activation_bytes.back() / 4);
    problem.resting_bytes.push_back(equal_units ? resting : draw(5));
  }
  full.alive_bytes = 3;
  problem.levels = {none, full};
  for (size_t q = 0; q < places; ++q) problem.in_flight.push_back(static_cast<double>(places - q));
  problem.micro_batches = static_cast<double>(places) * draw(4);
  problem.capacity_bytes = 10 + draw(60);
  return problem;
}

TEST(Partition, OfEqualUnitsEqualsBruteForce) {
  std::mt19937 random(3);  // NOLINT: the same problems in every run
  int found_some = 0;
  for (int round = 0; round < 400; ++round) {
    const PartitionProblem problem = random_problem(random, true);
    const double best = brute_force(problem);
    const auto found = partition(problem);
    ASSERT_EQ(found.has_value(), best < kNever) << round;
    if (!found) continue;
    ++found_some;
    EXPECT_NEAR(cost_of(problem, *found), found->cost_s, 1e-9 * found->cost_s);
    EXPECT_NEAR(found->cost_s, best, 1e-9 * best) << round;
  }
  EXPECT_GT(found_some, 200);
}

// Units that differ make a knapsack of each place; the answer fits and is close.
TEST(Partition, OfUnequalUnitsFitsAndIsClose) {
  std::mt19937 random(5);  // NOLINT: the same problems in every run
  double worst = 1, sum = 0;
  int found_some = 0;
  for (int round = 0; round < 400; ++round) {
    const PartitionProblem problem = random_problem(random, false);
    const double best = brute_force(problem);
    const auto found = partition(problem);
    ASSERT_EQ(found.has_value(), best < kNever) << round;
    if (!found) continue;
    ++found_some;
    const double cost = cost_of(problem, *found);
    EXPECT_NEAR(cost, found->cost_s, 1e-9 * cost);
    worst = std::max(worst, cost / best);
    sum += cost / best;
  }
  ASSERT_GT(found_some, 200);
  EXPECT_LT(sum / found_some, 1.01);
  EXPECT_LT(worst, 1.25);
}

TEST(Partition, WithoutALimitIsEven) {
  PartitionProblem problem;
  problem.levels = {{{1, 1, 1, 1}, {9, 9, 9, 9}, 0}};
  problem.resting_bytes = {5, 5, 5, 5};
  problem.in_flight = {2, 1};
  const auto found = partition(problem);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cuts, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(found->level, (std::vector<size_t>{0, 0, 0, 0}));
}

// The first place holds two micro-batches: it takes fewer units rather than compute them again.
TEST(Partition, TheFirstPlaceHoldsMore) {
  PartitionProblem problem;
  problem.levels = {{{2, 2, 2, 2, 2}, {10, 10, 10, 10, 10}, 0}};
  problem.resting_bytes = {1, 1, 1, 1, 1};
  problem.in_flight = {2, 1};
  problem.capacity_bytes = 45;
  const auto found = partition(problem);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cuts, (std::vector<size_t>{0, 2}));
  problem.capacity_bytes = 20;
  EXPECT_FALSE(partition(problem).has_value());
}

}  // namespace
}  // namespace tessera
