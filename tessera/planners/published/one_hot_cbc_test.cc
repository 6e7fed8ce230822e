#include "tessera/planners/published/one_hot_cbc.h"

#include <gtest/gtest.h>

#include "tessera/planners/published/alpa.h"
#include "tessera/planners/published/test_one_hot.h"

namespace tessera::published {
namespace {

// Returns whether CBC is absent. Such builds check the message instead: no test is skipped.
bool is_without_cbc() {
  if (cbc_available()) return false;
  const auto answer = solve_one_hot_by_cbc({{{1.0}}, {}, {}});
  EXPECT_FALSE(answer.has_value());
  if (!answer) {
    EXPECT_NE(answer.error().message.find("CBC"), std::string::npos) << answer.error().message;
  }
  return true;
}

TEST(OneHotByCbc, AgreesWithOurOwnSearch) {
  if (is_without_cbc()) return;
  Random random(11);
  int allowed = 0;
  for (int i = 0; i < 300; ++i) {
    const OneHotProblem problem = random_problem(random, i % 2 == 1);
    const auto own = solve_one_hot(problem);
    const auto found = solve_one_hot_by_cbc(problem);
    ASSERT_TRUE(found.has_value()) << i << ": " << found.error().message;
    ASSERT_EQ(found->has_value(), own.has_value()) << i;
    if (!own) continue;
    ++allowed;
    ASSERT_EQ((*found)->cost, own->cost) << i;
  }
  EXPECT_GT(allowed, 100);
}

// Costs are seconds, many of them tiny, but CBC's tolerances are absolute.
TEST(OneHotByCbc, SmallCostsAreNotTakenForNone) {
  if (is_without_cbc()) return;
  Random random(12);
  for (int i = 0; i < 50; ++i) {
    OneHotProblem problem = random_problem(random, false);
    for (auto& node : problem.nodes) {
      for (double& cost : node) cost *= 1e-7;
    }
    for (OneHotEdge& edge : problem.edges) {
      for (auto& row : edge.cost) {
        for (double& cost : row) cost *= 1e-7;
      }
    }
    const auto own = solve_one_hot(problem);
    const auto found = solve_one_hot_by_cbc(problem);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->has_value(), own.has_value()) << i;
    if (own) {
      ASSERT_NEAR((*found)->cost, own->cost, 1e-9 * own->cost) << i;
    }
  }
}

// CBC's answer stands in for an answer that the own search gave up on.
TEST(OneHotByCbc, AnswersWhereOurOwnSearchGivesUp) {
  Random random(14);
  int taken = 0;
  for (int i = 0; i < 60; ++i) {
    OneHotProblem problem = random_problem(random, true);
    const auto best = solve_one_hot(problem);
    problem.most_branches = 2;
    const auto own = solve_one_hot(problem);
    const auto either = solve_one_hot_by_either(problem);
    if (!own || own->proved || !cbc_available()) {
      ASSERT_EQ(either.has_value(), own.has_value());
      if (own) {
        EXPECT_EQ(either->cost, own->cost);
      }
      continue;
    }
    ASSERT_EQ(either.has_value(), best.has_value()) << i;
    if (!best) continue;
    ++taken;
    EXPECT_TRUE(either->proved);
    EXPECT_EQ(either->solver, "cbc");
    EXPECT_EQ(either->cost, best->cost) << i;
    EXPECT_EQ(either->bound, best->cost);
  }
  if (cbc_available()) {
    EXPECT_GT(taken, 10);
  }
}

// Compares splits of the ops of random graphs: products, and ops element by element on two earlier
// ones.
TEST(OneHotByCbc, AgreesOnTheSplitsOfRandomGraphs) {
  if (is_without_cbc()) return;
  Random random(13);
  for (int i = 0; i < 40; ++i) {
    ShardingGraph graph;
    graph.sizes = {{"b", 8 << random.up_to(3)}, {"x", 8 << random.up_to(3)}};
    graph.ops.push_back({"in", {"b", "x"}, {}, {}});
    for (int layer = random.up_to(2); layer >= 0; --layer) {
      const size_t before = graph.ops.size() - 1;
      const std::string name = "h" + std::to_string(layer);
      const std::string inner = graph.ops[before].dims[1];
      graph.sizes.emplace_back(name, 8 << random.up_to(4));
      graph.ops.push_back({"w" + name, {inner, name}, {}, {}});
      graph.ops.push_back({"y" + name, {"b", name}, {before, before + 1}, {}});
      if (random.up_to(1) == 1)
        graph.ops.push_back({"r" + name, {"b", name}, {graph.ops.size() - 1}, {}});
    }
    ShardingMesh mesh;
    mesh.devices = {2, random.up_to(1) == 1 ? 4 : 2};
    const OneHotProblem problem = sharding_problem(graph, mesh, sharding_choices(graph, mesh));
    const auto own = solve_one_hot(problem);
    const auto found = solve_one_hot_by_cbc(problem);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    ASSERT_TRUE(own.has_value() && found->has_value()) << i;
    ASSERT_NEAR((*found)->cost, own->cost, 1e-9 * own->cost) << i;
  }
}

}  // namespace
}  // namespace tessera::published
