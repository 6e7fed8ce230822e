#include "tessera/search/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tessera/compile/compile.h"

namespace tessera {
namespace {

double largest_piece(const std::vector<double>& times, const std::vector<size_t>& cuts) {
  double most = 0;
  for (size_t s = 0; s < cuts.size(); ++s) {
    const size_t end = s + 1 < cuts.size() ? cuts[s + 1] : times.size();
    double sum = 0;
    for (size_t i = cuts[s]; i < end; ++i) sum += times[i];
    most = std::max(most, sum);
  }
  return most;
}

// All ways to cut the row, one after the other.
double least_by_brute_force(const std::vector<double>& times, size_t stages) {
  double least = 1e300;
  std::vector<size_t> cuts = {0};
  const std::function<void()> go = [&] {
    if (cuts.size() == stages) {
      least = std::min(least, largest_piece(times, cuts));
      return;
    }
    for (size_t next = cuts.back() + 1; next < times.size(); ++next) {
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
    EXPECT_NEAR(largest_piece(times, cuts), least_by_brute_force(times, stages), 1e-6);
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

}  // namespace
}  // namespace tessera
