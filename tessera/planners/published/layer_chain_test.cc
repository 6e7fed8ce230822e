#include "tessera/planners/published/layer_chain.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tessera::published::layer_chain_test {
namespace {

// Solves the published recurrence, over every unit of memory.
std::optional<ChainPlan> by_table(const ChainProblem& problem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t count = problem.layers.size();
  const size_t strategies = problem.layers[0].seconds.size();
  const auto limit = static_cast<size_t>(problem.limit);
  std::vector<std::vector<std::vector<double>>> f(
      count,
      std::vector<std::vector<double>>(limit + 1, std::vector<double>(strategies, kInfinity)));
  const auto from_best = [&](size_t l, size_t left, size_t s) {
    size_t best = 0;
    for (size_t from = 1; from < strategies; ++from) {
      if (f[l - 1][left][from] + problem.change(l, from, s) <
          f[l - 1][left][best] + problem.change(l, best, s)) {
        best = from;
      }
    }
    return best;
  };
  for (size_t l = 0; l < count; ++l) {
    for (size_t e = 0; e <= limit; ++e) {
      for (size_t s = 0; s < strategies; ++s) {
        const auto own = static_cast<size_t>(problem.layers[l].memory[s]);
        if (own > e) continue;
        double before = 0;
        if (l > 0) {
          const size_t from = from_best(l, e - own, s);
          before = f[l - 1][e - own][from] + problem.change(l, from, s);
        }
        f[l][e][s] = before + problem.layers[l].seconds[s];
      }
    }
  }
  size_t s = 0;
  for (size_t last = 1; last < strategies; ++last) {
    if (f[count - 1][limit][last] < f[count - 1][limit][s]) s = last;
  }
  ChainPlan plan;
  plan.seconds = f[count - 1][limit][s];
  if (plan.seconds == kInfinity) return std::nullopt;
  plan.strategies.assign(count, 0);
  size_t left = limit;
  for (size_t l = count; l-- > 0;) {
    plan.strategies[l] = s;
    left -= static_cast<size_t>(problem.layers[l].memory[s]);
    if (l > 0) s = from_best(l, left, s);
  }
  plan.memory = problem.limit - static_cast<int64_t>(left);
  return plan;
}

ChainProblem random_problem(std::mt19937& random) {
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most + 1));
  };
  ChainProblem problem;
  const int strategies = 1 + draw(3);
  const int layers = 1 + draw(5);
  for (int l = 0; l < layers; ++l) {
    ChainLayer layer;
    for (int s = 0; s < strategies; ++s) {
      layer.seconds.push_back(draw(8));  // whole, so that ties are frequent
      layer.memory.push_back(draw(6));
    }
    problem.layers.push_back(layer);
  }
  std::vector<double> between;
  for (int i = 0; i < strategies * strategies; ++i) between.push_back(draw(2));
  const auto width = static_cast<size_t>(strategies);
  problem.change = [between, width](size_t l, size_t from, size_t to) {
    return between[(from * width + to + l) % between.size()];
  };
  problem.limit = draw(4 * layers);
  return problem;
}

TEST(LayerChain, EqualsTheTableOverEveryUnitOfMemoryTiesIncluded) {
  std::mt19937 random(1);
  int fitting = 0;
  for (int i = 0; i < 3000; ++i) {
    const ChainProblem problem = random_problem(random);
    const auto expected = by_table(problem);
    const auto found = best_chain(problem);
    ASSERT_EQ(found.has_value(), expected.has_value()) << i;
    if (!found) continue;
    ++fitting;
    ASSERT_EQ(found->seconds, expected->seconds) << i;
    ASSERT_EQ(found->strategies, expected->strategies) << i;
    ASSERT_EQ(found->memory, expected->memory) << i;
  }
  EXPECT_GT(fitting, 1000);
}

TEST(LayerChain, StrategiesThatAreForbiddenAreNotTaken) {
  ChainProblem problem;
  const double infinity = std::numeric_limits<double>::infinity();
  problem.layers = {{{infinity, 5}, {0, 7}}, {{1, infinity}, {3, 0}}};
  problem.change = [](size_t, size_t, size_t) { return 0.0; };
  problem.limit = 10;
  const auto plan = best_chain(problem);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->strategies, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(plan->memory, 10);
  problem.limit = 9;
  EXPECT_FALSE(best_chain(problem).has_value());
}

TEST(LayerChain, MemoryInBytesIsAsExactAsInMegabytes) {
  ChainProblem problem;
  problem.layers.assign(
      48, {{3.0, 2.0, 1.5, 1.0}, {1'000'000'007, 1'400'000'009, 2'000'000'011, 3'000'000'019}});
  problem.change = [](size_t, size_t from, size_t to) { return to > from ? 0.25 : 0.0; };
  problem.limit = 80'000'000'000;
  const auto plan = best_chain(problem);
  ASSERT_TRUE(plan.has_value());
  EXPECT_LE(plan->memory, problem.limit);
  problem.limit *= 2;
  EXPECT_LT(best_chain(problem)->seconds, plan->seconds);
}

}  // namespace
}  // namespace tessera::published::layer_chain_test
