#include "tessera/planners/published/alpa.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tessera/base/test_random.h"
#include "tessera/planners/published/one_hot_cbc.h"

namespace tessera::published::alpa_test {
namespace {

using test::Random;

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

// Section 6: shapes whose devices sum to those of the cluster lie in it without overlap.
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

// Makes the product of x [m, k] and w [k, n], and the gradient of w.
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

// Returns the least cost of all combinations of choices.
double sharding_by_trying_all(const ShardingGraph& graph, const ShardingMesh& mesh) {
  const OneHotProblem problem = sharding_problem(graph, mesh, sharding_choices(graph, mesh));
  std::vector<size_t> choices(problem.nodes.size(), 0);
  double best = kInfinity;
  while (true) {
    best = std::min(best, cost_of(problem, choices));
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == problem.nodes[v].size()) choices[v++] = 0;
    if (v == choices.size()) return best;
  }
}

TEST(AlpaSharding, DimsThatAnAxisDoesNotDivideStayWhole) {
  const ShardingMesh line{{4, 1}, {1, 1}, {1, 1}};
  ShardingGraph graph = product(6, 5, 7);
  for (const auto& own : sharding_choices(graph, line)) {
    for (const auto& choice : own) EXPECT_EQ(to_string(choice.output, 2), "RR");
  }
  const auto whole = best_sharding(graph, line);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->communication, 0);
  EXPECT_EQ(whole->objective, 4);  // both inputs are whole

  // Only k is divided: y is summed over it, and the gradient of w is cut by it. The second axis has
  // one device, so any dim may lie on it.
  graph = product(6, 8, 7);
  const auto choices = sharding_choices(graph, line);
  ASSERT_FALSE(choices[2].empty());
  for (const ShardingChoice& choice : choices[2]) {
    EXPECT_EQ(choice.output.at(0), std::nullopt);
    EXPECT_EQ(choice.operands[0].at(0), size_t{1});  // k of x
    EXPECT_EQ(choice.operands[1].at(0), size_t{0});  // k of w
    EXPECT_DOUBLE_EQ(choice.communication, all_reduce_cost(line, 0, 6 * 7 * 4));
  }
  ASSERT_FALSE(choices[4].empty());
  for (const ShardingChoice& choice : choices[4]) EXPECT_EQ(choice.output.at(0), size_t{0});
  const auto plan = best_sharding(graph, line);
  ASSERT_TRUE(plan.has_value());
  EXPECT_DOUBLE_EQ(plan->objective, sharding_by_trying_all(graph, line));
  EXPECT_DOUBLE_EQ(plan->communication, all_reduce_cost(line, 0, 6 * 7 * 4));
}

// On a mesh of 4 x 3, m = 6 is divided by 3 only and n = 8 by 4 only: one way cuts both.
TEST(AlpaSharding, EachAxisCutsADimThatItDivides) {
  const ShardingGraph graph = product(6, 5, 8);
  const ShardingMesh mesh{{4, 3}, {1, 1}, {1, 1}};
  const auto choices = sharding_choices(graph, mesh);
  ASSERT_EQ(choices[2].size(), 1u);
  EXPECT_EQ(to_string(choices[2][0].output, 2), "S1S0");
  EXPECT_TRUE(best_sharding(graph, mesh).has_value());
  // Where neither axis divides two dims, as many devices as possible share the work.
  const auto part = sharding_choices(product(6, 5, 7), mesh);
  ASSERT_EQ(part[2].size(), 1u);
  EXPECT_EQ(to_string(part[2][0].output, 2), "S1R");
}

// A bias is added element by element: the sum is cut as the product is, and the bias as the sum.
TEST(AlpaSharding, ABiasIsNoFactor) {
  ShardingGraph graph;
  graph.sizes = {{"m", 8}, {"k", 16}, {"n", 32}};
  graph.ops = {{"x", {"m", "k"}, {}, {}},     {"w", {"k", "n"}, {}, {}},
               {"y", {"m", "n"}, {0, 1}, {}}, {"bias", {"n"}, {}, {}},
               {"z", {"m", "n"}, {2, 3}, {}}, {"z2", {"m", "n"}, {3, 2}, {}},
               {"dbias", {"n"}, {4}, {}},     {"new bias", {"n"}, {3, 6}, 3}};
  EXPECT_TRUE(is_product(graph, graph.ops[2]));
  for (const size_t op : {4, 5, 6, 7}) EXPECT_FALSE(is_product(graph, graph.ops[op])) << op;
  for (const ShardingOp& op : graph.ops) EXPECT_EQ(why_not_an_op(graph, op), "") << op.name;
  for (const std::array<int64_t, 2> devices : {std::array<int64_t, 2>{4, 1}, {2, 2}}) {
    const ShardingMesh mesh{devices, {1, 1}, {1, 0.1}};
    const auto choices = sharding_choices(graph, mesh);
    for (const size_t op : {4, 5}) {
      ASSERT_EQ(choices[op].size(), choices[2].size());
      for (size_t c = 0; c < choices[op].size(); ++c) {
        const ShardingChoice& sum = choices[op][c];
        EXPECT_EQ(sum.output, choices[2][c].output);
        EXPECT_EQ(sum.communication, 0);
        EXPECT_EQ(to_string(sum.operands[op == 4 ? 1 : 0], 1),
                  to_string(sum.output, 2).substr(to_string(sum.output, 2).find_last_of("SR")));
      }
    }
    // The gradient of the bias is summed over m: where an axis cuts m, by an all-reduce.
    for (const ShardingChoice& choice : choices[6]) {
      double expected = 0;
      for (size_t axis = 0; axis < 2; ++axis) {
        if (choice.operands[0].at(axis) != size_t{0}) continue;
        const bool is_cut = choice.output.at(1 - axis).has_value();
        const auto tiles = static_cast<double>(is_cut ? devices.at(1 - axis) : 1);
        expected += all_reduce_cost(mesh, axis, 32.0 * 4 / tiles);
      }
      EXPECT_EQ(choice.communication, expected);
    }
    const auto plan = best_sharding(graph, mesh);
    ASSERT_TRUE(plan.has_value());
    EXPECT_DOUBLE_EQ(plan->objective, sharding_by_trying_all(graph, mesh));
    EXPECT_EQ(plan->ops[3].output, plan->ops[7].output);
  }
}

TEST(AlpaSharding, OperandsThatFitNoRuleAreNamed) {
  ShardingGraph graph = product(8, 8, 8);
  const auto why = [&](std::vector<std::string> dims, std::vector<size_t> reads) {
    return why_not_an_op(graph, {"op", std::move(dims), std::move(reads), {}});
  };
  EXPECT_EQ(why({"m", "n"}, {2, 0}),
            "expected two operands of a product, or operands whose dims the op has; 'x' has 'k' "
            "too");
  EXPECT_EQ(why({"m"}, {0, 2}), "expected the dim 'k' in the product or in its other operand too");
  EXPECT_EQ(why({"n", "k", "h"}, {0, 3}), "expected the product's dim 'h' in one of its operands");
  EXPECT_EQ(why({"n", "k"}, {0, 3}), "");
}

// Makes layers with their gradients and updates: own answers are proved however many there are.
ShardingGraph perceptron(int layers, int64_t batch, int64_t width) {
  ShardingGraph graph;
  graph.sizes = {{"b", batch}};
  const auto dim = [](int layer) { return "h" + std::to_string(layer); };
  for (int i = 0; i <= layers; ++i) graph.sizes.emplace_back(dim(i), width);
  const auto add = [&](std::string name, std::vector<std::string> dims, std::vector<size_t> reads,
                       std::optional<size_t> updates = {}) {
    graph.ops.push_back({std::move(name), std::move(dims), std::move(reads), updates});
    return graph.ops.size() - 1;
  };
  std::vector<size_t> made{add("x", {"b", dim(0)}, {})};
  std::vector<size_t> weights;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(add("w" + std::to_string(i), {dim(i), dim(i + 1)}, {}));
    made.push_back(add("y" + std::to_string(i), {"b", dim(i + 1)}, {made.back(), weights.back()}));
  }
  size_t gradient = add("loss", {"b", dim(layers)}, {made.back()});
  for (int i = layers; i-- > 0;) {
    const auto at = static_cast<size_t>(i);
    const size_t dw = add("dw" + std::to_string(i), {dim(i), dim(i + 1)}, {made[at], gradient});
    if (i > 0) gradient = add("dy" + std::to_string(i), {"b", dim(i)}, {gradient, weights[at]});
    add("new w" + std::to_string(i), {dim(i), dim(i + 1)}, {weights[at], dw}, weights[at]);
  }
  return graph;
}

TEST(AlpaSharding, DeepNetworksAreProved) {
  const ShardingMesh line{{4, 1}, {1, 1}, {1, 1}};
  for (const int layers : {2, 8, 12, 24, 48}) {
    // With many samples and narrow layers, the plan has an all-reduce of each weight's gradient and
    // nothing else.
    const auto plan = best_sharding(perceptron(layers, 4096, 128), line);
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(plan->proved) << layers;
    EXPECT_EQ(plan->solver, "own");
    EXPECT_EQ(plan->bound, plan->objective);
    EXPECT_NEAR(plan->communication, layers * all_reduce_cost(line, 0, 128 * 128 * 4), 1e-6);
  }
}

TEST(AlpaSharding, DeepNetworksAgreeWithCbc) {
  if (!cbc_available()) return;  // one_hot_cbc_test.cc checks what a build without it says
  for (const int layers : {8, 12}) {
    for (const int64_t batch : {128, 1024}) {
      const ShardingGraph graph = perceptron(layers, batch, 512);
      const ShardingMesh mesh{{2, 4}, {1, 1}, {1, 0.1}};
      const auto own = best_sharding(graph, mesh, OneHotSolver(solve_one_hot)).value();
      const auto other = best_sharding(graph, mesh, OneHotSolver(solve_one_hot_by_cbc));
      ASSERT_TRUE(other.has_value()) << other.error().message;
      ASSERT_TRUE(own.has_value() && own->proved && other->has_value());
      EXPECT_NEAR(own->objective, (*other)->objective, 1e-6 * own->objective) << layers;
    }
  }
}

// The costs of collectives are the published prototype's: the part with bytes is cut to a whole
// number.
TEST(AlpaSharding, CollectivesCostWhatThePrototypeSays) {
  const ShardingMesh mesh{{4, 1}, {1, 1}, {1, 1}};
  EXPECT_DOUBLE_EQ(all_reduce_cost(mesh, 0, 128 * 128 * 4), 98305.01);
  EXPECT_DOUBLE_EQ(all_gather_cost(mesh, 0, 100), 76.1);
  EXPECT_EQ(all_reduce_cost(mesh, 1, 100), 0);
}

}  // namespace
}  // namespace tessera::published::alpa_test
