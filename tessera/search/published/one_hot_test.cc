#include "tessera/search/published/one_hot.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/search/published/test_one_hot.h"

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

TEST(OneHot, AnswersThatAreNotProvedSaySo) {
  Random random(3);
  OneHotProblem problem = random_problem(random, false);
  while (problem.nodes.size() < 7 || problem.edges.size() < 12)
    problem = random_problem(random, false);
  problem.limits = {{{0}, {std::vector<double>(problem.nodes[0].size(), 0)}, 1}};
  problem.most_branches = 3;
  const auto found = solve_one_hot(problem);
  EXPECT_TRUE(!found || !found->proved);
}

// docs/theory/alpa.md section 4: the merged graph has the same optimum.
TEST(OneHot, MergingAFollowerKeepsTheOptimum) {
  Random random(4);
  for (int i = 0; i < 500; ++i) {
    OneHotProblem problem = random_problem(random, i % 3 == 0);
    if (problem.nodes.size() < 2) continue;
    std::vector<size_t> follow;
    OneHotEdge equal{0, 1, {}};
    for (size_t s = 0; s < problem.nodes[0].size(); ++s) {
      follow.push_back(
          static_cast<size_t>(random.up_to(static_cast<int>(problem.nodes[1].size()) - 1)));
      equal.cost.emplace_back(problem.nodes[1].size(), kInfinity)[follow[s]] = 0;
    }
    const OneHotProblem merged = merge_follower(problem, 0, 1, follow);
    problem.edges.push_back(equal);
    const auto whole = solve_one_hot(problem);
    const auto less = solve_one_hot(merged);
    ASSERT_EQ(whole.has_value(), less.has_value()) << i;
    if (whole) {
      ASSERT_EQ(whole->cost, less->cost) << i;
    }
  }
}

}  // namespace
}  // namespace tessera::published::one_hot_test
