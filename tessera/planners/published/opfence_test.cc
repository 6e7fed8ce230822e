#include "tessera/planners/published/opfence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tessera/base/test_random.h"
#include "tessera/planners/published/open_path.h"

namespace tessera::published::opfence_test {
namespace {

using test::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

FenceProblem random_problem(Random& random) {
  FenceProblem problem;
  const size_t ops = 2 + random.up_to(4);
  const size_t devices = 1 + random.up_to(3);
  for (size_t i = 0; i < ops; ++i) {
    problem.work.push_back(random.from(1, 5));
    problem.bytes.push_back(random.from(1, 9));
    problem.memory.push_back(1);
  }
  problem.latency_seconds.assign(devices, std::vector<double>(devices, 0));
  problem.bytes_per_second = problem.latency_seconds;
  for (size_t p = 0; p < devices; ++p) {
    problem.speed.push_back(random.from(1, 3));
    problem.capacity.push_back(static_cast<double>(1 + random.up_to(ops)));
    for (size_t q = 0; q < p; ++q) {
      problem.latency_seconds[p][q] = problem.latency_seconds[q][p] = random.from(0, 0.1);
      problem.bytes_per_second[p][q] = problem.bytes_per_second[q][p] =
          random.up_to(1) == 0 ? 1 : 40;
    }
  }
  problem.micro_batches = static_cast<int64_t>(1 + random.up_to(15));
  problem.ratio = random.up_to(1) == 0 ? 0 : random.from(1, 50);
  return problem;
}

double by_trying_all(const FenceProblem& problem) {
  double best = kInfinity;
  std::vector<size_t> devices;
  std::vector<size_t> ends;
  const std::function<void(size_t)> extend = [&](size_t first) {
    if (first == problem.work.size()) {
      best = std::min(best, fence_plan(problem, devices, ends).seconds);
      return;
    }
    for (size_t p = 0; p < problem.speed.size(); ++p) {
      if (std::find(devices.begin(), devices.end(), p) != devices.end()) continue;
      for (size_t end = first + 1; end <= problem.work.size(); ++end) {
        devices.push_back(p);
        ends.push_back(end);
        extend(end);
        devices.pop_back();
        ends.pop_back();
      }
    }
  };
  extend(0);
  return best;
}

TEST(OpFence, TheOptimumIsThatOfAllSubsetsOrdersAndCuts) {
  Random random(1);
  int fitting = 0;
  int heuristic = 0;
  double ratio = 0;
  for (int i = 0; i < 300; ++i) {
    const FenceProblem problem = random_problem(random);
    const double expected = by_trying_all(problem);
    const auto best = exact_fence(problem);
    ASSERT_EQ(best.has_value(), expected < kInfinity) << i;
    const auto fence = op_fence(problem);
    if (!best) {
      ASSERT_FALSE(fence.has_value()) << i;
      continue;
    }
    ++fitting;
    ASSERT_NEAR(best->seconds, expected, 1e-9 * expected) << i;
    if (!fence) continue;  // the order of devices that the heuristic fixes first may not fit
    ++heuristic;
    ASSERT_GE(fence->seconds, expected * (1 - 1e-12)) << i;
    ratio += fence->seconds / expected;
  }
  EXPECT_GT(fitting, 150);
  EXPECT_GT(heuristic, fitting * 9 / 10);
  EXPECT_LT(ratio / heuristic, 1.1);  // ratio to the optimum, on average
}

// A chain of a model over devices of some kinds in sites, as they are joined over wide areas.
FenceProblem sites_problem(Random& random, size_t sites, size_t kinds, size_t of_kind) {
  FenceProblem problem;
  const size_t ops = 8 + random.up_to(size_t{8});
  for (size_t i = 0; i < ops; ++i) {
    problem.work.push_back(random.from(0.5, 4));
    problem.bytes.push_back(random.from(1, 9));
    problem.memory.push_back(1);
  }
  std::vector<size_t> site_of;
  for (size_t s = 0; s < sites; ++s) {
    for (size_t k = 0; k < kinds; ++k) {
      const double speed = random.from(1, 4);
      for (size_t i = 0; i < of_kind; ++i) {
        problem.speed.push_back(speed);
        problem.capacity.push_back(static_cast<double>(ops));
        site_of.push_back(s);
      }
    }
  }
  const size_t devices = problem.speed.size();
  Matrix latency(sites, std::vector<double>(sites)), rate = latency;
  for (size_t a = 0; a < sites; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      latency[a][b] = latency[b][a] = a == b ? 0.001 : random.from(0.01, 0.1);
      rate[a][b] = rate[b][a] = a == b ? random.from(20, 100) : random.from(0.5, 10);
    }
  }
  problem.latency_seconds.assign(devices, std::vector<double>(devices, 0));
  problem.bytes_per_second = problem.latency_seconds;
  for (size_t p = 0; p < devices; ++p) {
    for (size_t q = 0; q < devices; ++q) {
      problem.latency_seconds[p][q] = latency[site_of[p]][site_of[q]];
      problem.bytes_per_second[p][q] = rate[site_of[p]][site_of[q]];
    }
  }
  problem.micro_batches = static_cast<int64_t>(1 + random.up_to(31));
  problem.ratio = random.up_to(2) == 0 ? random.from(2, 50) : 0;
  return problem;
}

TEST(OpFence, TheHeuristicIsNearTheOptimumAndNeverSlowerThanEqualSplits) {
  Random random(11);
  double worst = 0, sum = 0;
  for (int i = 0; i < 200; ++i) {
    const FenceProblem problem =
        i % 2 == 0
            ? sites_problem(random, 2 + random.up_to(size_t{1}), 1, 2 + random.up_to(size_t{1}))
            : sites_problem(random, 2, 2, 1 + random.up_to(size_t{1}));
    const auto best = exact_fence(problem);
    const auto fence = op_fence(problem);
    ASSERT_TRUE(best && fence) << i;
    const double ratio = fence->seconds / best->seconds;
    ASSERT_GE(ratio, 1 - 1e-9) << i;
    EXPECT_LE(ratio, 1.05) << i;
    worst = std::max(worst, ratio);
    sum += ratio;
    // Equal numbers of ops, and equal work, over all devices in the order of their numbers.
    const size_t ops = problem.work.size(), count = std::min(ops, problem.speed.size());
    std::vector<size_t> devices, numbers, works;
    double all = 0, done = 0;
    for (const double work : problem.work) all += work;
    for (size_t d = 0; d < count; ++d) {
      devices.push_back(d);
      numbers.push_back(ops * (d + 1) / count);
    }
    for (size_t op = 0; op < ops; ++op) {
      done += problem.work[op];
      const bool is_due = done >= all * static_cast<double>(works.size() + 1) /
                                      static_cast<double>(count) * (1 - 1e-12);
      if (is_due || ops - op - 1 < count - works.size()) works.push_back(op + 1);
    }
    ASSERT_EQ(works.size(), count);
    EXPECT_LE(fence->seconds, fence_plan(problem, devices, numbers).seconds * (1 + 1e-12)) << i;
    EXPECT_LE(fence->seconds, fence_plan(problem, devices, works).seconds * (1 + 1e-12)) << i;
  }
  RecordProperty("worst", std::to_string(worst));
  RecordProperty("mean", std::to_string(sum / 200));
}

// Equal devices stand for one another: the search over classes finds what all orders give.
TEST(OpFence, EqualDevicesAreSearchedOnce) {
  Random random(12);
  for (int i = 0; i < 30; ++i) {
    FenceProblem problem = sites_problem(random, 2, 1, 2);
    problem.work.resize(5);
    problem.bytes.resize(5);
    problem.memory.resize(5);
    if (i % 3 == 0) problem.capacity.assign(4, 2);
    const auto best = exact_fence(problem);
    ASSERT_TRUE(best.has_value());
    EXPECT_NEAR(best->seconds, by_trying_all(problem), 1e-9 * best->seconds) << i;
  }
  const FenceProblem sixteen = sites_problem(random, 2, 1, 8);
  EXPECT_LE(exact_fence_steps(sixteen), kMostFenceSteps);
  ASSERT_TRUE(exact_fence(sixteen).has_value());
}

TEST(OpFence, AGivenNumberOfDevicesIsKept) {
  Random random(13);
  for (int i = 0; i < 60; ++i) {
    FenceProblem problem = random_problem(random);
    problem.capacity.assign(problem.capacity.size(), static_cast<double>(problem.work.size()));
    problem.stages = 1 + random.up_to(std::min(problem.work.size(), problem.speed.size()) - 1);
    const auto best = exact_fence(problem), fence = op_fence(problem);
    ASSERT_TRUE(best && fence) << i;
    EXPECT_EQ(best->devices.size(), problem.stages);
    EXPECT_EQ(fence->devices.size(), problem.stages);
    EXPECT_NEAR(best->seconds, by_trying_all(problem), 1e-9 * best->seconds) << i;
    EXPECT_GE(fence->seconds, best->seconds * (1 - 1e-12)) << i;
  }
}

// A bit for each element is smaller than an index for each kept one where many are kept.
TEST(OpFence, ABitmapIsSentWhereItIsSmaller) {
  FenceProblem problem;
  problem.phi = 2;  // float32 values with int32 indices
  problem.value_share = 1;
  problem.bitmap_share = 1.0 / 32;
  EXPECT_DOUBLE_EQ(dense_up_to(problem), 32.0 / 31);
  EXPECT_DOUBLE_EQ(compressed_share(problem, 1.03), 1);
  EXPECT_DOUBLE_EQ(compressed_share(problem, 1.5), 1 / 1.5 + 1.0 / 32);
  EXPECT_DOUBLE_EQ(compressed_share(problem, 10), 0.1 + 1.0 / 32);
  EXPECT_DOUBLE_EQ(compressed_share(problem, 32), 2.0 / 32);  // both are equal
  EXPECT_DOUBLE_EQ(compressed_share(problem, 100), 0.02);
}

// Messages that hide behind the slowest device are compressed no further than that.
TEST(OpFence, RatiosAreNoGreaterThanWhatHides) {
  FenceProblem problem;
  problem.work = {4, 4, 4};
  problem.bytes = {10, 40, 0};
  problem.memory = {0, 0, 0};
  problem.speed = {1, 1, 1};
  problem.capacity = {1, 1, 1};
  problem.latency_seconds.assign(3, std::vector<double>(3, 0.5));
  problem.bytes_per_second.assign(3, std::vector<double>(3, 8));
  problem.micro_batches = 8;
  problem.ratio = 100;
  problem.phi = 2;
  // Dense the messages take 2 (0.5 + 10/8) = 3.5 and 2 (0.5 + 40/8) = 11 s, the devices 4 s.
  const FencePlan plan = fence_plan(problem, {0, 1, 2}, {1, 2, 3});
  const FencePlan hidden = with_hidden_ratios(problem, plan);
  EXPECT_GT(plan.ratios[0], 60);
  EXPECT_DOUBLE_EQ(hidden.ratios[0], 1);
  EXPECT_DOUBLE_EQ(hidden.ratios[1],
                   2 / ((4 - 1.0) / (11 - 1)));  // in 3 s of 10 beside the latency
  EXPECT_DOUBLE_EQ(hidden.seconds, 12 + 3.5 + 4 + 7 * 4);
}

// Identical jobs go through compute and links by turns (section 3), all forwards and then all
// backwards.
TEST(OpFence, TheEquationIsExactForAChainUnderGPipe) {
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    FenceProblem problem;
    const size_t stages = 1 + random.up_to(4);
    problem.latency_seconds.assign(stages, std::vector<double>(stages, 0));
    problem.bytes_per_second.assign(stages, std::vector<double>(stages, 1));
    problem.micro_batches = static_cast<int64_t>(1 + random.up_to(7));
    std::vector<size_t> devices;
    std::vector<size_t> ends;
    std::vector<double> times;  // of computes and messages, in the order of the chain
    for (size_t s = 0; s < stages; ++s) {
      problem.work.push_back(random.from(0.1, 3));
      problem.bytes.push_back(random.from(0.1, 3));
      problem.memory.push_back(1);
      problem.speed.push_back(1);
      problem.capacity.push_back(1);
      devices.push_back(s);
      ends.push_back(s + 1);
      times.push_back(problem.work[s]);
      if (s + 1 < stages) times.push_back(problem.messages * problem.bytes[s]);
    }
    // A third of each time is of the forward pass, the rest of the backward pass.
    double end = 0;
    for (const double share : {1.0 / 3, 2.0 / 3}) {
      std::vector<double> free(times.size(), end);
      for (int64_t m = 0; m < problem.micro_batches; ++m) {
        double ready = 0;
        for (size_t k = 0; k < times.size(); ++k) {
          ready = std::max(ready, free[k]) + times[k] * share;
          free[k] = ready;
        }
        end = ready;
      }
      std::reverse(times.begin(), times.end());
    }
    EXPECT_NEAR(fence_plan(problem, devices, ends).seconds, end, 1e-9 * end) << i;
  }
}

TEST(OpFence, CompressionEvensOutWhatItCompresses) {
  Random random(2);
  for (int i = 0; i < 100; ++i) {
    std::vector<double> times;
    for (size_t k = random.up_to(5) + 1; k > 0; --k) times.push_back(random.from(0.001, 10));
    const double slowest = *std::max_element(times.begin(), times.end());
    const auto ratios = top_k_ratios(times, 20, 3);
    for (size_t k = 0; k < times.size(); ++k) {
      const double share = compressed_share(ratios[k], 3);
      EXPECT_LE(share, 1);
      if (ratios[k] > 3) {
        EXPECT_NEAR(times[k] * share, slowest / 20, 1e-12);
      }
    }
  }
}

TEST(OpFence, LouvainFindsGroupsOfFastLinks) {
  Matrix weights(9, std::vector<double>(9, 0.1));
  for (size_t p = 0; p < 9; ++p) {
    for (size_t q = 0; q < 9; ++q) {
      if (p % 3 == q % 3) weights[p][q] = 10;
    }
  }
  EXPECT_EQ(louvain(weights), (std::vector<size_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(louvain({{0}}), (std::vector<size_t>{0}));
}

TEST(OpenPath, IsAsShortAsTheBestPermutation) {
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const size_t count = 1 + random.up_to(5);
    std::vector<std::vector<double>> edges(count, std::vector<double>(count, 0));
    for (size_t p = 0; p < count; ++p) {
      for (size_t q = 0; q < p; ++q) edges[p][q] = edges[q][p] = random.from(-5, 5);
    }
    for (const bool worst : {false, true}) {
      std::vector<size_t> order(count);
      for (size_t p = 0; p < count; ++p) order[p] = p;
      double best = kInfinity;
      do {
        double cost = worst ? -kInfinity : 0;
        for (size_t k = 1; k < count; ++k) {
          const double edge = edges[order[k - 1]][order[k]];
          cost = worst ? std::max(cost, edge) : cost + edge;
        }
        best = std::min(best, cost);
      } while (std::next_permutation(order.begin(), order.end()));
      const OpenPath path = best_open_path(edges, worst);
      ASSERT_EQ(path.nodes.size(), count);
      if (count > 1) {
        ASSERT_NEAR(path.cost, best, 1e-12) << i;
        ASSERT_GE(best_open_path(edges, worst, 1).cost, best - 1e-12);  // greedy
      }
    }
  }
}

}  // namespace
}  // namespace tessera::published::opfence_test
