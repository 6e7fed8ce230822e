#include "tessera/planners/published/dtfm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace tessera::published::dtfm_test {
namespace {

RegionProblem random_problem(unsigned seed, size_t devices, size_t stages) {
  std::mt19937 random(seed);
  RegionProblem problem;
  problem.stages = stages;
  problem.gradient_gb = 0.5;
  problem.activation_gb = 0.25;
  problem.delay_seconds.assign(devices, std::vector<double>(devices, 0));
  problem.gbit_per_second.assign(devices, std::vector<double>(devices, 1));
  for (size_t p = 0; p < devices; ++p) {
    for (size_t q = 0; q < p; ++q) {
      problem.delay_seconds[p][q] = problem.delay_seconds[q][p] =
          static_cast<double>(random() % 60) / 1000;
      problem.gbit_per_second[p][q] = problem.gbit_per_second[q][p] =
          1 + static_cast<double>(random() % 10);
    }
  }
  return problem;
}

// Prices the bottleneck of the best matching and the path, by trying all permutations.
double price_by_trying_all(const RegionProblem& problem,
                           const std::vector<std::vector<size_t>>& groups) {
  double data = 0;
  for (const auto& group : groups) {
    for (const size_t i : group) {
      double sum = 0;
      for (const size_t j : group) {
        if (i != j) {
          sum += 2 * (problem.delay_seconds[i][j] +
                      8 * problem.gradient_gb /
                          (problem.gbit_per_second[i][j] * static_cast<double>(group.size())));
        }
      }
      data = std::max(data, sum);
    }
  }
  const auto link = [&](const std::vector<size_t>& from, std::vector<size_t> to) {
    double best = std::numeric_limits<double>::infinity();
    std::sort(to.begin(), to.end());
    do {
      double worst = 0;
      for (size_t k = 0; k < from.size(); ++k) {
        worst = std::max(worst,
                         problem.delay_seconds[from[k]][to[k]] +
                             8 * problem.activation_gb / problem.gbit_per_second[from[k]][to[k]]);
      }
      best = std::min(best, worst);
    } while (std::next_permutation(to.begin(), to.end()));
    return best;
  };
  std::vector<size_t> order(groups.size());
  for (size_t g = 0; g < order.size(); ++g) order[g] = g;
  double pipeline = std::numeric_limits<double>::infinity();
  do {
    double sum = 0;
    for (size_t k = 1; k < order.size(); ++k) sum += link(groups[order[k - 1]], groups[order[k]]);
    pipeline = std::min(pipeline, sum);
  } while (std::next_permutation(order.begin(), order.end()));
  return data + 2 * pipeline;
}

// Tries all partitions, from all permutations of the devices.
double best_by_trying_all(const RegionProblem& problem) {
  const size_t devices = problem.delay_seconds.size();
  const size_t size = devices / problem.stages;
  std::vector<size_t> order(devices);
  for (size_t p = 0; p < devices; ++p) order[p] = p;
  std::set<std::vector<std::vector<size_t>>> seen;
  double best = std::numeric_limits<double>::infinity();
  do {
    std::vector<std::vector<size_t>> groups(problem.stages);
    for (size_t k = 0; k < devices; ++k) groups[k / size].push_back(order[k]);
    for (auto& group : groups) std::sort(group.begin(), group.end());
    std::sort(groups.begin(), groups.end());
    if (seen.insert(groups).second) best = std::min(best, price_by_trying_all(problem, groups));
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(static_cast<double>(seen.size()), count_partitions(devices, problem.stages));
  return best;
}

TEST(DtFm, TheOptimumIsThatOfAllPartitions) {
  for (const auto& [devices, stages] :
       {std::pair<size_t, size_t>{4, 2}, {6, 3}, {6, 2}, {4, 1}, {4, 4}}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      const RegionProblem problem = random_problem(seed, devices, stages);
      const double expected = best_by_trying_all(problem);
      const RegionPlan exact = exact_regions(problem).plan;
      ASSERT_NEAR(exact.seconds, expected, 1e-9 * expected);
      ASSERT_NEAR(price_regions(problem, exact.groups).seconds, expected, 1e-9 * expected);
    }
  }
}

TEST(DtFm, TheGeneticSearchFindsSmallOptimaAndRepeatsItself) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const RegionProblem problem = random_problem(seed, 8, 4);
    const double best = exact_regions(problem).plan.seconds;
    const GeneticOptions options{seed, 60, 600};
    const RegionPlan found = genetic_regions(problem, options, [](std::string_view) {});
    EXPECT_GE(found.seconds, best * (1 - 1e-12));
    EXPECT_LE(found.seconds, best * (1 + 1e-12));
    EXPECT_EQ(genetic_regions(problem, options, [](std::string_view) {}).groups, found.groups);
  }
}

// The regions have slow links between them; the genetic search alone often ends beside the best.
TEST(DtFm, LocalMovesFindTheBestPartition) {
  int missed = 0;
  for (const auto& [devices, stages] : {std::pair<size_t, size_t>{8, 2}, {9, 3}, {12, 4}}) {
    for (unsigned seed = 0; seed < (devices < 12 ? 6U : 2U); ++seed) {
      RegionProblem problem = random_problem(100 + seed, devices, stages);
      for (size_t p = 0; p < devices; ++p) {
        for (size_t q = 0; q < devices; ++q) {
          if (p % 3 == q % 3) continue;
          problem.delay_seconds[p][q] += 0.04;
          problem.gbit_per_second[p][q] /= 5;
        }
      }
      const double best = exact_regions(problem).plan.seconds;
      GeneticOptions options{seed, 30, 300};
      const RegionPlan found = genetic_regions(problem, options, [](std::string_view) {});
      EXPECT_NEAR(found.seconds, best, 1e-9 * best) << devices << " " << seed;
      EXPECT_NEAR(price_regions(problem, found.groups).seconds, found.seconds, 1e-9 * best);
      options.local_moves = 0;
      const RegionPlan alone = genetic_regions(problem, options, [](std::string_view) {});
      EXPECT_GE(alone.seconds, found.seconds * (1 - 1e-12));
      missed += alone.seconds > best * (1 + 1e-9) ? 1 : 0;
    }
  }
  EXPECT_GT(missed, 3);
}

TEST(DtFm, MoreBandwidthIsNeverSlower) {
  RegionProblem problem = random_problem(7, 6, 3);
  const double before = exact_regions(problem).plan.seconds;
  for (auto& row : problem.gbit_per_second) {
    for (double& rate : row) rate *= 2;
  }
  EXPECT_LT(exact_regions(problem).plan.seconds, before);
}

// Members of neighbouring groups are matched so that the slowest message is the fastest possible.
TEST(DtFm, MatchedGroupsSendByTheBestMatching) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    const RegionProblem problem = random_problem(seed, 8, 2);
    const RegionPlan plan = exact_regions(problem).plan;
    const auto matched = matched_groups(problem, plan.groups);
    double slowest = 0;
    for (size_t i = 0; i < matched[0].size(); ++i) {
      slowest = std::max(slowest, problem.delay_seconds[matched[0][i]][matched[1][i]] +
                                      8 * problem.activation_gb /
                                          problem.gbit_per_second[matched[0][i]][matched[1][i]]);
    }
    EXPECT_NEAR(slowest, plan.pipeline_seconds, 1e-12) << seed;
    auto sorted = matched;
    for (auto& group : sorted) std::sort(group.begin(), group.end());
    EXPECT_EQ(sorted, plan.groups) << seed;
  }
}

}  // namespace
}  // namespace tessera::published::dtfm_test
