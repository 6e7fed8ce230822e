#include "tessera/search/published/alpa.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tessera/search/published/test_random.h"

namespace tessera::published::alpa_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double stages_by_trying_all(const StagesProblem& problem) {
  double best = kInfinity;
  std::vector<size_t> chosen;
  const std::function<void(size_t, int64_t)> extend = [&](size_t layer, int64_t devices) {
    if (layer == problem.layers) {
      if (devices != 0) return;
      double sum = 0;
      double slowest = 0;
      for (size_t i = 0; i < chosen.size(); ++i) {
        const StageChoice& choice = problem.choices[chosen[i]];
        if (static_cast<int64_t>(chosen.size() - i) - 1 > choice.most_later) return;
        sum += choice.seconds;
        slowest = std::max(slowest, choice.seconds);
      }
      best = std::min(best, sum + static_cast<double>(problem.micro_batches - 1) * slowest);
      return;
    }
    for (size_t c = 0; c < problem.choices.size(); ++c) {
      const StageChoice& choice = problem.choices[c];
      if (choice.first != layer || choice.hosts * choice.devices > devices) continue;
      chosen.push_back(c);
      extend(choice.last + 1, devices - choice.hosts * choice.devices);
      chosen.pop_back();
    }
  };
  extend(0, problem.devices);
  return best;
}

TEST(AlpaStages, AreAsFastAsTheBestOfAllMemoryIncluded) {
  Random random(1);
  int fitting = 0;
  for (int i = 0; i < 300; ++i) {
    StagesProblem problem;
    problem.layers = 1 + static_cast<size_t>(random.up_to(5));
    const int64_t hosts = 1 + random.up_to(1);
    const int64_t devices = 1 << random.up_to(2);
    problem.devices = hosts * devices;
    problem.micro_batches = 1 + random.up_to(8);
    for (const auto& [h, d] : submesh_shapes(hosts, devices)) {
      for (size_t first = 0; first < problem.layers; ++first) {
        for (size_t last = first; last < problem.layers; ++last) {
          if (random.up_to(4) == 0) continue;
          problem.choices.push_back(
              {first, last, h, d, 1.0 + random.up_to(20), random.up_to(4) - 1});
        }
      }
    }
    const double expected = stages_by_trying_all(problem);
    const auto found = best_stages(problem);
    ASSERT_EQ(found.has_value(), expected < kInfinity) << i;
    if (!found) continue;
    ++fitting;
    ASSERT_EQ(found->seconds, expected) << i;
  }
  EXPECT_GT(fitting, 100);
}

// Section 9: shapes whose devices sum to those of the cluster lie in it without overlap.
TEST(AlpaStages, AnySubMeshesThatFillTheClusterFindTheirPlaces) {
  for (const int64_t hosts : {1, 2, 3, 4}) {
    for (const int64_t devices : {1, 2, 4, 8}) {
      const auto shapes = submesh_shapes(hosts, devices);
      int sets = 0;
      std::vector<std::pair<int64_t, int64_t>> chosen;
      const std::function<void(size_t, int64_t)> extend = [&](size_t next, int64_t left) {
        if (left == 0) {
          ++sets;
          const auto places = place_submeshes(chosen, hosts, devices);
          ASSERT_TRUE(places.has_value()) << places.error().message;
          std::vector<int> taken(static_cast<size_t>(hosts * devices), 0);
          for (size_t i = 0; i < chosen.size(); ++i) {
            for (int64_t h = 0; h < chosen[i].first; ++h) {
              for (int64_t d = 0; d < chosen[i].second; ++d) {
                const int64_t at = ((*places)[i].host + h) * devices + (*places)[i].device + d;
                ++taken[static_cast<size_t>(at)];
              }
            }
          }
          for (const int count : taken) ASSERT_EQ(count, 1);
          return;
        }
        for (size_t s = next; s < shapes.size(); ++s) {
          const int64_t own = shapes[s].first * shapes[s].second;
          if (own > left) continue;
          chosen.push_back(shapes[s]);
          extend(s, left - own);
          chosen.pop_back();
        }
      };
      extend(0, hosts * devices);
      EXPECT_GT(sets, 0);
    }
  }
  EXPECT_FALSE(place_submeshes({{1, 2}, {1, 3}}, 1, 4).has_value());
}

TEST(AlpaStages, LaterStagesAreLimitedByWhatAMicroBatchKeeps) {
  EXPECT_EQ(most_later_stages(6, 0, 2, 1), 3);
  EXPECT_EQ(most_later_stages(6, 1, 2, 1), 2);
  EXPECT_EQ(most_later_stages(2.5, 0, 2, 1), -1);
  EXPECT_GT(most_later_stages(2, 0, 2, 0), 1000);
}

double layers_by_trying_all(const ClusterProblem& problem) {
  const size_t count = problem.ops.size();
  double flops = 0;
  for (const ClusterOp& op : problem.ops) flops += op.flops;
  const double most = (1 + problem.imbalance) * flops / static_cast<double>(problem.layers);
  double best = kInfinity;
  std::vector<size_t> ends;
  const std::function<void(size_t)> extend = [&](size_t first) {
    if (ends.size() == problem.layers) {
      if (first != count) return;
      double largest = 0;
      size_t start = 0;
      for (const size_t end : ends) {
        double own = 0;
        double bytes = 0;
        size_t heavy = 0;
        for (size_t i = start; i < end; ++i) {
          own += problem.ops[i].flops;
          heavy += problem.ops[i].heavy ? 1 : 0;
        }
        for (size_t maker = 0; maker < start; ++maker) {
          for (const auto& output : problem.ops[maker].outputs) {
            const bool read = std::any_of(output.readers.begin(), output.readers.end(),
                                          [&](size_t r) { return r >= start && r < end; });
            if (read) bytes += output.bytes;
          }
        }
        if (own > most + 1e-9 || heavy < problem.least_heavy) return;
        largest = std::max(largest, bytes);
        start = end;
      }
      best = std::min(best, largest);
      return;
    }
    for (size_t end = first + 1; end <= count; ++end) {
      ends.push_back(end);
      extend(end);
      ends.pop_back();
    }
  };
  extend(0);
  return best;
}

TEST(AlpaLayers, ReceiveAsFewBytesAsTheBestOfAllCuts) {
  Random random(2);
  int fitting = 0;
  for (int i = 0; i < 500; ++i) {
    ClusterProblem problem;
    const int count = 1 + random.up_to(8);
    for (int op = 0; op < count; ++op) {
      ClusterOp& made = problem.ops.emplace_back();
      made.flops = 1 + random.up_to(4);
      made.heavy = random.up_to(2) > 0;
      for (int k = random.up_to(2); k > 0; --k) {
        auto& output = made.outputs.emplace_back();
        output.bytes = 1 + random.up_to(9);
        for (int reader = op + 1; reader < count; ++reader) {
          if (random.up_to(2) == 0) output.readers.push_back(static_cast<size_t>(reader));
        }
      }
    }
    problem.layers = 1 + static_cast<size_t>(random.up_to(count - 1));
    problem.imbalance = 0.5 * random.up_to(3);
    problem.least_heavy = static_cast<size_t>(random.up_to(1));
    const double expected = layers_by_trying_all(problem);
    const auto found = cluster_ops(problem);
    ASSERT_EQ(found.has_value(), expected < kInfinity) << i;
    if (!found) continue;
    ++fitting;
    ASSERT_EQ(found->largest_bytes, expected) << i;
    ASSERT_EQ(found->ends.size(), problem.layers);
    ASSERT_EQ(found->ends.back(), problem.ops.size());
  }
  EXPECT_GT(fitting, 150);
}

// x [m, k] times w [k, n], and the gradient of w.
ShardingGraph product(int64_t m, int64_t k, int64_t n) {
  ShardingGraph graph;
  graph.sizes = {{"m", m}, {"k", k}, {"n", n}};
  graph.ops = {{"x", {"m", "k"}, {}, {}},      {"w", {"k", "n"}, {}, {}},
               {"y", {"m", "n"}, {0, 1}, {}},  {"z", {"m", "n"}, {2}, {}},
               {"dw", {"k", "n"}, {0, 3}, {}}, {"new w", {"k", "n"}, {1, 4}, 1}};
  return graph;
}

double communication(const ShardingGraph& graph, const ShardingMesh& mesh) {
  const auto plan = best_sharding(graph, mesh);
  EXPECT_TRUE(plan.has_value());
  return plan ? plan->communication : kInfinity;
}

TEST(AlpaSharding, LineMeshesOfEitherDirectionAreEqual) {
  for (const int64_t m : {8, 64, 512}) {
    const ShardingGraph graph = product(m, 32, 64);
    EXPECT_EQ(communication(graph, {{4, 1}, {1, 1}, {1, 1}}),
              communication(graph, {{1, 4}, {1, 1}, {1, 1}}));
  }
}

TEST(AlpaSharding, SlowerLinksAreNeverCheaper) {
  const ShardingGraph graph = product(64, 32, 64);
  double before = 0;
  for (const double beta : {0.1, 0.5, 1.0, 4.0}) {
    const auto plan = best_sharding(graph, {{2, 2}, {1, 1}, {1, beta}});
    ASSERT_TRUE(plan.has_value());
    EXPECT_GE(plan->objective, before);
    before = plan->objective;
  }
}

TEST(AlpaSharding, ANewParameterIsCutAsTheOldOne) {
  const auto plan = best_sharding(product(64, 32, 64), {{2, 2}, {1, 1}, {1, 1}});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->ops[1].output, plan->ops[5].output);
  EXPECT_TRUE(plan->proved);
}

TEST(AlpaSharding, DimsThatAnAxisDoesNotDivideStayWhole) {
  ShardingGraph graph = product(6, 5, 7);
  const auto choices = sharding_choices(graph, {{4, 1}, {1, 1}, {1, 1}});
  for (const auto& choice : choices[0]) {
    EXPECT_EQ(to_string(choice.output, 2), "RR");
  }
  EXPECT_FALSE(best_sharding(graph, {{4, 1}, {1, 1}, {1, 1}}).has_value());
}

// What a collective costs by the published prototype: the part with bytes is cut to a whole number.
TEST(AlpaSharding, CollectivesCostWhatThePrototypeSays) {
  const ShardingMesh mesh{{4, 1}, {1, 1}, {1, 1}};
  EXPECT_DOUBLE_EQ(all_reduce_cost(mesh, 0, 128 * 128 * 4), 98305.01);
  EXPECT_DOUBLE_EQ(all_gather_cost(mesh, 0, 100), 76.1);
  EXPECT_EQ(all_reduce_cost(mesh, 1, 100), 0);
}

}  // namespace
}  // namespace tessera::published::alpa_test
