#include "tessera/planners/published/one_hot.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/planners/published/test_one_hot.h"

namespace tessera::published::one_hot_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double by_trying_all(const OneHotProblem& problem) {
  std::vector<size_t> choices(problem.nodes.size(), 0);
  double best = kInfinity;
  while (true) {
    best = std::min(best, cost_of(problem, choices));
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == problem.nodes[v].size()) choices[v++] = 0;
    if (v == choices.size()) return best;
  }
}

TEST(OneHot, IsAsCheapAsTheBestOfAllChoices) {
  Random random(1);
  int allowed = 0;
  for (int i = 0; i < 4000; ++i) {
    const OneHotProblem problem = random_problem(random, i % 2 == 1);
    const double expected = by_trying_all(problem);
    const auto found = solve_one_hot(problem);
    ASSERT_EQ(found.has_value(), expected < kInfinity) << i;
    if (!found) continue;
    ++allowed;
    ASSERT_TRUE(found->proved);
    ASSERT_EQ(found->cost, expected) << i;
    ASSERT_EQ(cost_of(problem, found->choices), expected) << i;
  }
  EXPECT_GT(allowed, 1500);
}

TEST(OneHot, ChainsAndTreesNeedNoBranching) {
  OneHotProblem problem;
  Random random(2);
  for (size_t v = 0; v < 500; ++v) {
    auto& node = problem.nodes.emplace_back();
    for (int s = 0; s < 5; ++s) node.push_back(random.up_to(9));
    if (v == 0) continue;
    OneHotEdge edge{v / 2, v, std::vector<std::vector<double>>(5)};
    for (auto& row : edge.cost) {
      for (int s = 0; s < 5; ++s) row.push_back(random.up_to(9));
    }
    problem.edges.push_back(std::move(edge));
  }
  const auto found = solve_one_hot(problem);
  ASSERT_TRUE(found.has_value());
  EXPECT_LE(found->branches, 1);
  // Under a limit nothing is taken out, but the bound is exact on trees.
  problem.limits = {{{0}, {{1, 1, 1, 1, 1}}, 1}};
  const auto limited = solve_one_hot(problem);
  ASSERT_TRUE(limited.has_value());
  EXPECT_EQ(limited->cost, found->cost);
}

// Makes a problem in which all nodes are neighbours, so that none is taken out over small tables.
OneHotProblem dense_problem(Random& random, size_t nodes, int choices) {
  OneHotProblem problem;
  for (size_t v = 0; v < nodes; ++v) {
    auto& node = problem.nodes.emplace_back();
    for (int s = 0; s < choices; ++s) node.push_back(random.up_to(9));
    for (size_t u = 0; u < v; ++u) {
      OneHotEdge edge{u, v, std::vector<std::vector<double>>(static_cast<size_t>(choices))};
      for (auto& row : edge.cost) {
        for (int s = 0; s < choices; ++s) row.push_back(random.up_to(9));
      }
      problem.edges.push_back(std::move(edge));
    }
  }
  return problem;
}

// However many branches are allowed, the bound is never above the optimum nor the cost below it.
TEST(OneHot, AnswersThatAreNotProvedSaySoAndByHowMuch) {
  Random random(3);
  int unproved = 0;
  int without = 0;
  for (int i = 0; i < 200; ++i) {
    OneHotProblem problem = dense_problem(random, 6, 4);
    // A limit keeps the branches: nothing is taken out then.
    problem.limits = {{{0}, {std::vector<double>(4, 0)}, 1}};
    const double best = by_trying_all(problem);
    for (const int64_t most : {1, 5, 20, 100, 1'000'000}) {
      problem.most_branches = most;
      const auto found = solve_one_hot(problem);
      ASSERT_TRUE(found.has_value());
      ASSERT_LE(found->bound, best + 1e-9);
      ASSERT_GE(found->cost, best - 1e-9);
      ASSERT_LE(found->bound, found->cost);
      if (found->proved) {
        ASSERT_EQ(found->bound, best);
      } else {
        ++unproved;
      }
      if (found->choices.empty()) {
        ++without;
        ASSERT_EQ(found->cost, kInfinity);
        ASSERT_FALSE(found->proved);
      }
    }
    ASSERT_TRUE(solve_one_hot(problem)->proved);
  }
  EXPECT_GT(unproved, 100);
  EXPECT_GT(without, 50);
}

TEST(OneHot, WhatHangsTogetherIsTakenOutOverLargerTables) {
  Random random(5);
  for (int i = 0; i < 50; ++i) {
    const OneHotProblem problem = dense_problem(random, 6, 4);
    const auto found = solve_one_hot(problem);
    ASSERT_TRUE(found.has_value() && found->proved);
    EXPECT_EQ(found->branches, 0);
    ASSERT_EQ(found->cost, by_trying_all(problem));
  }
  // Tables over 29 nodes would be too large: the search branches, and says where it ends.
  OneHotProblem large = dense_problem(random, 30, 4);
  large.most_branches = 1000;
  const auto found = solve_one_hot(large);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->proved);
  EXPECT_LT(found->bound, found->cost);
}

}  // namespace
}  // namespace tessera::published::one_hot_test
