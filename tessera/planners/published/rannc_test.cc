#include "tessera/planners/published/rannc.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "tessera/base/test_random.h"

namespace tessera::published::rannc_test {
namespace {

using test::Random;

double stages_by_trying_all(const RanncProblem& problem) {
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(size_t, size_t, int64_t, double, double)> extend =
      [&](size_t s, size_t first, int64_t left, double forward, double backward) {
        if (s == problem.stages) {
          if (first == problem.blocks && left == 0) best = std::min(best, forward + backward);
          return;
        }
        for (size_t last = first + 1; last <= problem.blocks; ++last) {
          for (int64_t r = 1; r <= std::min(left, problem.most_replicas); r *= 2) {
            const auto stage = problem.stage(first, last, r);
            if (!stage) continue;
            extend(s + 1, last, left - r, std::max(forward, stage->forward + stage->comm),
                   std::max(backward, stage->backward + stage->comm));
          }
        }
      };
  extend(0, 0, problem.devices, 0, 0);
  return best;
}

TEST(Rannc, ExactStagesAreTheBestOfAllAndThePublishedOnesNeverBetter) {
  Random random(1);
  int fitting = 0;
  int missed = 0;
  for (int i = 0; i < 400; ++i) {
    RanncProblem problem;
    problem.blocks = 1 + static_cast<size_t>(random.up_to(4));
    problem.devices = 1 + random.up_to(5);
    problem.stages = 1 + static_cast<size_t>(random.up_to(3));
    problem.most_replicas = 1 << random.up_to(2);
    std::vector<int> table;
    for (int k = 0; k < 512; ++k) table.push_back(random.up_to(30));
    problem.stage = [&](size_t first, size_t last, int64_t r) -> std::optional<RanncStage> {
      const size_t at = (first * 7 + last) * 5 + static_cast<size_t>(r) * 31;
      if (table[at] == 0) return std::nullopt;
      return RanncStage{static_cast<double>(table[at]), static_cast<double>(table[at + 1]),
                        static_cast<double>(table[at + 2]) / 4};
    };
    const double expected = stages_by_trying_all(problem);
    const auto exact = exact_stages(problem);
    const auto published = published_stages(problem);
    ASSERT_EQ(exact.has_value(), expected < std::numeric_limits<double>::infinity()) << i;
    ASSERT_EQ(exact.has_value(), published.has_value()) << i;
    if (!exact) continue;
    ++fitting;
    ASSERT_EQ(exact->value, expected) << i;
    ASSERT_GE(published->value, expected) << i;
    ASSERT_EQ(std::accumulate(exact->replicas.begin(), exact->replicas.end(), int64_t{0}),
              problem.devices);
    missed += published->value > expected ? 1 : 0;
  }
  EXPECT_GT(fitting, 100);
  // One value a state is not enough for max + max (section 9).
  EXPECT_GT(missed, 0);
}

// Makes a random graph of layers with skips; edges lead forwards.
RanncGraph random_graph(Random& random, size_t components) {
  RanncGraph graph;
  graph.components = components;
  for (size_t c = 1; c < components; ++c) {
    graph.edges.push_back({c - 1, c, 1e6 * random.up_to(9)});
    if (random.up_to(3) == 0) {
      graph.edges.push_back(
          {static_cast<size_t>(random.up_to(static_cast<int>(c) - 1)), c, 1e6 * random.up_to(9)});
    }
  }
  return graph;
}

// Blocks partition the graph, in topological order (so each is convex), fit, and are few.
TEST(Rannc, BlocksPartitionTheGraphAndFit) {
  Random random(2);
  for (int i = 0; i < 60; ++i) {
    const auto components = 2 + static_cast<size_t>(random.up_to(60));
    const RanncGraph graph = random_graph(random, components);
    std::vector<double> seconds;
    for (size_t c = 0; c < components; ++c) seconds.push_back(0.001 * (1 + random.up_to(20)));
    const auto sum = [&](const std::vector<size_t>& members) {
      double total = 1e-4;
      for (const size_t c : members) total += seconds[c];
      return total;
    };
    const size_t most_members = components / 2 + 1;
    const BlockOracle oracle{
        sum, [&](const std::vector<size_t>& members) { return members.size() <= most_members; }};
    BlockOptions options;
    options.most = 4 + static_cast<size_t>(random.up_to(8));
    const auto blocks = rannc_blocks(graph, oracle, options);
    std::vector<size_t> block(components, blocks.size());
    size_t count = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      EXPECT_LE(blocks[b].size(), most_members);
      for (const size_t c : blocks[b]) {
        EXPECT_EQ(block[c], blocks.size());
        block[c] = b;
        ++count;
      }
    }
    ASSERT_EQ(count, components);
    EXPECT_LE(blocks.size(), options.most);
    for (const RanncEdge& edge : graph.edges) ASSERT_LE(block[edge.from], block[edge.to]) << i;
  }
}

TEST(Rannc, ConstantTasksAreClonedIntoEveryComponentThatNeedsThem) {
  // Tasks 0 and 1 are constant, 1 reads 0; 2 and 3 are not and read 1, 3 also reads 2; 4 reads 3.
  const std::vector<RanncTask> tasks{
      {{}, true}, {{0}, true}, {{1}, false}, {{1, 2}, false}, {{3}, false}};
  EXPECT_EQ(atomic_components(tasks),
            (std::vector<std::vector<size_t>>{{0, 1, 2}, {0, 1, 3}, {4}}));
}

TEST(Rannc, SamplesAreSplitWithoutLossAndNoRankStarves) {
  for (int64_t batch = 1; batch <= 24; ++batch) {
    for (int64_t micro = 1; micro <= 4; ++micro) {
      for (int64_t replicas = 1; replicas <= 4; ++replicas) {
        std::vector<int64_t> of_rank(static_cast<size_t>(replicas), 0);
        int64_t sum = 0;
        for (const auto& ranks : split_batch(batch, micro, replicas)) {
          for (size_t r = 0; r < ranks.size(); ++r) {
            of_rank[r] += ranks[r];
            sum += ranks[r];
          }
        }
        EXPECT_EQ(sum, batch);
        if (batch >= micro * replicas) {
          for (const int64_t samples : of_rank) EXPECT_GT(samples, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::published::rannc_test
