#include "tessera/search/rank/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <set>

#include "tessera/compile/compile.h"
#include "tessera/simulate/memory.h"

namespace tessera {
namespace {

using Times = std::vector<double>;

double largest_piece(const std::vector<Times>& times, const std::vector<size_t>& cuts) {
  double most = 0;
  for (size_t s = 0; s < cuts.size(); ++s) {
    const size_t end = s + 1 < cuts.size() ? cuts[s + 1] : times[s].size();
    double sum = 0;
    for (size_t i = cuts[s]; i < end; ++i) sum += times[s][i];
    most = std::max(most, sum);
  }
  return most;
}
double largest_piece(const Times& times, const std::vector<size_t>& cuts) {
  return largest_piece(std::vector<Times>(cuts.size(), times), cuts);
}

// Returns the least over all ways to cut the row.
double least_by_brute_force(const std::vector<Times>& times) {
  const size_t stages = times.size(), units = times.front().size();
  double least = 1e300;
  std::vector<size_t> cuts = {0};
  const std::function<void()> go = [&] {
    if (cuts.size() == stages) {
      least = std::min(least, largest_piece(times, cuts));
      return;
    }
    for (size_t next = cuts.back() + 1; next < units; ++next) {
      cuts.push_back(next);
      go();
      cuts.pop_back();
    }
  };
  go();
  return least;
}

TEST(BalanceStages, EqualsBruteForce) {
  std::mt19937 random(11);  // NOLINT: the same rows in every run
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + random() % 9;
    const size_t stages = 1 + random() % n;
    std::vector<double> times;
    for (size_t i = 0; i < n; ++i) times.push_back(static_cast<double>(random() % 10));
    const auto cuts = balance_stages(times, stages);
    ASSERT_EQ(cuts.size(), stages);
    EXPECT_EQ(cuts.front(), 0U);
    EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<>())) << round;
    const std::vector<Times> same(stages, times);
    EXPECT_NEAR(largest_piece(times, cuts), least_by_brute_force(same), 1e-6);
  }
}

TEST(BalanceStages, OnUnequalDevicesEqualsBruteForce) {
  std::mt19937 random(12);  // NOLINT: the same rows in every run
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + random() % 9;
    const size_t stages = 1 + random() % n;
    std::vector<Times> times(stages, Times(n));
    std::vector<const Times*> rows;
    for (Times& of_stage : times) {
      for (double& time : of_stage) time = static_cast<double>(random() % 10);
      rows.push_back(&of_stage);
    }
    const auto cuts = balance_stages(rows);
    ASSERT_EQ(cuts.size(), stages);
    EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<>())) << round;
    EXPECT_NEAR(largest_piece(times, cuts), least_by_brute_force(times), 1e-6) << round;
  }
}

TEST(BalanceStages, OfEqualsTheMostEven) {
  // The last stage could hold one unit without a larger largest piece; two and two are more even.
  const auto cuts = balance_stages({1, 1, 1, 1, 1, 1, 1}, 3);
  std::vector<size_t> sizes = {cuts[1], cuts[2] - cuts[1], 7 - cuts[2]};
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 2, 3}));
  EXPECT_EQ(balance_stages({1, 1, 1, 1}, 4), (std::vector<size_t>{0, 1, 2, 3}));
}

// There are as many cuts as ways to choose the borders, each once.
TEST(AllCuts, AreAllOfThem) {
  for (const auto& [units, stages, count] : std::vector<std::array<size_t, 3>>{
           {5, 2, 4}, {5, 3, 6}, {5, 5, 1}, {9, 4, 56}, {2, 3, 0}, {4, 1, 0}}) {
    const auto all = all_cuts(units, stages, 100);
    EXPECT_EQ(all.size(), count);
    EXPECT_EQ(std::set<std::vector<size_t>>(all.begin(), all.end()).size(), count);
    for (const auto& cuts : all) {
      EXPECT_EQ(cuts.front(), 0U);
      EXPECT_LT(cuts.back(), units);
      EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<>()));
    }
  }
  EXPECT_TRUE(all_cuts(9, 4, 55).empty());
}

// The estimate of a choice beside the simulation of its program.
struct Both {
  double estimated_s, estimated_bytes, step_s, bytes;
};
Both both_of(Choice choice, const std::string& machine, int64_t batch) {
  const std::string model = "gpt:layers=16,hidden=2048,heads=16,seq=1024,vocab=51200";
  const Cluster cluster = load_cluster(machine).value();
  SimulateOptions options;
  options.style = parse_style("tessera").value();
  Compiler compiler;
  const auto built = compiler.model(model, batch, DType::kFloat32).value();
  const Fold fold = fold_layers(built->graph).value();
  UnitPricer pricer({model, choice.compute, &cluster, options, 0});
  const int64_t sequences = batch / choice.micro_batches / choice.axes.front().size;
  UnitQuestion question{{}, sequences, choice.recompute};
  if (choice.axes.size() > 1) question.axes = {choice.axes[1]};
  const UnitPrices* prices = pricer.price(question).value();
  Estimator estimator(cluster, options.style, fold.units);
  const Estimate estimate = estimator.estimate(choice, *prices, sequences);
  const std::string text = write_plan(choice, built->graph, fold.units, "x").value();
  const auto lowering = compiler.lower(forward_of(built), parse_plan(text).value()).value();
  const Simulation simulation = simulate(*lowering, cluster, options).value();
  double most = 0;
  for (const RankResult& role : simulation.roles) most = std::max(most, role.memory.high);
  return {estimate.step_s, estimate.memory_bytes, simulation.step_time_s, most};
}

void expect_near(const Both& both, double time, double memory) {
  EXPECT_NEAR(both.estimated_s / both.step_s, 1, time);
  EXPECT_NEAR(both.estimated_bytes / both.bytes, 1, memory);
}

const ChoiceAxis kTensor = {"tp", 4, {"heads", "ffn", "vocab"}};

TEST(Estimate, OneStageOfAWholeModel) {
  Choice choice;
  choice.axes = {{"dp", 1, {"batch"}}, kTensor};
  choice.micro_batches = 4;
  choice.compute = DType::kBFloat16;
  expect_near(both_of(choice, "dgx-a100:1", 4), .02, .03);
}

TEST(Estimate, Replicas) {
  Choice choice;
  choice.axes = {{"dp", 8, {"batch"}}, kTensor};
  choice.micro_batches = 2;
  choice.compute = DType::kBFloat16;
  for (const int64_t sharded : {0, 1, 2}) {
    choice.sharded = sharded;
    expect_near(both_of(choice, "dgx-a100:4", 32), .2, .25);
  }
}

// Most of the memory that a small model needs is what the library keeps for replicas and
// neighbours.
TEST(Estimate, MemoryHasTheBuffersOfCommunication) {
  const Cluster cluster = load_cluster("dgx-a100:1").value();
  const NodeType& type = cluster.type_of(0);
  const auto model = std::make_shared<Model>(
      build_model("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=64", 4).value());
  const Fold fold = fold_layers(model->graph).value();
  Estimator estimator(cluster, parse_style("tessera").value(), fold.units);
  Choice choice;
  choice.axes = {{"dp", 1, {"batch"}}};
  EXPECT_EQ(estimator.connections_bytes(choice), 0);
  choice.axes.own()[0].size = 2;
  const auto group = static_cast<double>(group_communication_bytes(type, true));
  EXPECT_EQ(estimator.connections_bytes(choice), kCommunicationAtMost * group);
  choice.stages = 4;
  const auto peer = static_cast<double>(peer_communication_bytes(type));
  EXPECT_EQ(estimator.connections_bytes(choice), kCommunicationAtMost * (group + 2 * peer));
  EXPECT_GT(peer, 0);
}

TEST(Estimate, Pipelines) {
  Choice choice;
  choice.axes = {{"dp", 2, {"batch"}}, kTensor};
  choice.stages = 4;
  choice.micro_batches = 8;
  choice.compute = DType::kBFloat16;
  for (const char* schedule : {"1f1b", "zb_h1", "interleaved"}) {
    choice.schedule = schedule;
    choice.chunks = choice.schedule == "interleaved" ? 2 : 1;
    expect_near(both_of(choice, "dgx-a100:4", 32), .1, .2);
  }
}

// The general formula with the same prices for all units equals the plain one.
TEST(Estimate, UnitsOfEqualPricesAreOneChoice) {
  const std::string model = "gpt:layers=6,hidden=256,heads=4,seq=128,vocab=1024";
  const Cluster cluster = load_cluster("dgx-a100:2").value();
  SimulateOptions options;
  Compiler compiler;
  const auto built = compiler.model(model, 16, DType::kFloat32).value();
  const Fold fold = fold_layers(built->graph).value();
  UnitPricer pricer({model, DType::kFloat32, &cluster, options, 0});
  const UnitPrices* prices = pricer.price({{}, 2, "none"}).value();
  Estimator estimator(cluster, options.style, fold.units);
  Choice choice;
  choice.axes = {{"dp", 4, {"batch"}}};
  choice.stages = 2;
  choice.micro_batches = 2;
  for (const int64_t sharded : {0, 1, 3}) {
    choice.sharded = sharded;
    choice.units = {};
    choice.stage_axes = {};
    const Estimate plain = estimator.estimate(choice, *prices, 2);
    choice.units.own().resize(fold.units.size());
    choice.stage_axes = {choice.axes, choice.axes};
    const std::vector<const UnitPrices*> same(fold.units.size(), prices);
    const Estimate general = estimator.estimate_units(choice, same, 8);
    EXPECT_DOUBLE_EQ(plain.memory_bytes, general.memory_bytes);
    EXPECT_NEAR(plain.step_s / general.step_s, 1, 1e-3);
  }
}

// Compares unequal stages with the program: two replicas of one half, four of the other.
TEST(Estimate, StagesOfDifferentSizes) {
  const std::string model = "gpt:layers=16,hidden=1024,heads=16,seq=512,vocab=51200";
  const Cluster cluster = load_cluster("dgx-a100:1").value();
  SimulateOptions options;
  Compiler compiler;
  const auto built = compiler.model(model, 32, DType::kFloat32).value();
  const Fold fold = fold_layers(built->graph).value();
  UnitPricer pricer({model, DType::kBFloat16, &cluster, options, 0});
  Choice choice;
  choice.compute = DType::kBFloat16;
  choice.axes = {{"dp", 4, {"batch"}}};
  choice.stage_axes = {{{"dp", 2, {"batch"}}}, {{"dp", 4, {"batch"}}}};
  choice.stages = 2;
  choice.micro_batches = 4;
  choice.cuts = {0, fold.units.size() / 3};
  std::vector<const UnitPrices*> prices;
  for (size_t u = 0; u < fold.units.size(); ++u)
    prices.push_back(pricer.price({{}, u < choice.cuts[1] ? 4 : 2, "none"}).value());
  Estimator estimator(cluster, options.style, fold.units);
  const Estimate estimate = estimator.estimate_units(choice, prices, 8);
  const std::string text = write_plan(choice, built->graph, fold.units, "x").value();
  const auto lowering = compiler.lower(forward_of(built), parse_plan(text).value());
  ASSERT_TRUE(lowering.has_value()) << text << lowering.error().message;
  const Simulation simulation = simulate(**lowering, cluster, options).value();
  double most = 0;
  for (const RankResult& role : simulation.roles) most = std::max(most, role.memory.high);
  EXPECT_NEAR(estimate.step_s / simulation.step_time_s, 1, .15);
  EXPECT_NEAR(estimate.memory_bytes / most, 1, .2);
}

// Compares formula and program on two kinds of nodes, and with replicas that lie apart.
TEST(Estimate, KindsOfNodesAndOrdersOfDevices) {
  const std::string model = "gpt:layers=16,hidden=1024,heads=16,seq=512,vocab=51200";
  const Cluster cluster = parse_cluster(R"(
name = "two-kinds"
[[part]]
like = "dgx-a100"
nodes = 1
[[part]]
like = "dgx-h100"
nodes = 1
)",
                                        "test")
                              .value();
  SimulateOptions options;
  Compiler compiler;
  const auto built = compiler.model(model, 32, DType::kFloat32).value();
  const Fold fold = fold_layers(built->graph).value();
  UnitPricer pricer({model, DType::kBFloat16, &cluster, options, 0});
  Estimator estimator(cluster, options.style, fold.units);
  ASSERT_EQ(estimator.kinds().count(), 2U);
  std::vector<const UnitPrices*> by_kind;
  for (size_t kind = 0; kind < 2; ++kind) {
    UnitQuestion question;
    question.axes = {{"tp", 4, {"heads", "ffn", "vocab"}}};
    question.sequences = 4;
    question.on = &estimator.kinds().cluster(kind);
    by_kind.push_back(pricer.price(question).value());
  }
  Choice choice;
  choice.compute = DType::kBFloat16;
  choice.axes = {{"dp", 2, {"batch"}}, {"tp", 4, {"heads", "ffn", "vocab"}}};
  choice.stages = 2;
  choice.micro_batches = 4;
  std::array<double, 2> steps{};
  for (const bool apart : {false, true}) {
    choice.replicas_apart = apart;
    const Estimate estimate = estimator.estimate(choice, by_kind, 4);
    const size_t middle = fold.units.size() / 2;
    if (apart) {
      // Each stage has devices of both kinds, and is as slow as the older ones.
      EXPECT_NEAR(static_cast<double>(choice.cuts[1]), static_cast<double>(middle), 2);
    } else {
      EXPECT_LT(choice.cuts[1], middle);  // the faster nodes have the second stage
    }
    const std::string text = write_plan(choice, built->graph, fold.units, "x").value();
    const auto lowering = compiler.lower(forward_of(built), parse_plan(text).value());
    ASSERT_TRUE(lowering.has_value()) << text << lowering.error().message;
    const double step = simulate(**lowering, cluster, options).value().step_time_s;
    EXPECT_NEAR(estimate.step_s / step, 1, .15) << choice.str();
    steps.at(apart ? 1 : 0) = step;
  }
  EXPECT_LT(steps[0], steps[1]);
}

}  // namespace
}  // namespace tessera
