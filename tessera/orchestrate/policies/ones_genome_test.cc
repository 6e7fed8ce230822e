#include "tessera/orchestrate/policies/ones_genome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/orchestrate/share/elastic_batch.h"

namespace tessera::share::ones {
namespace {

constexpr int A = 0, B = 1, C = 2, kNone = kFree;

Facts without_limits(std::initializer_list<int> jobs) {
  Facts out;
  for (const int job : jobs) {
    out[job].allowed = 100;
    out[job].limit = 100;
    out[job].is_executed = true;
    out[job].throughput = [](int gpus) { return static_cast<double>(gpus); };
  }
  return out;
}

// Returns how many GPUs of the deployed schedule get another job.
int changed_slots(const Genome& to, const Genome& deployed) {
  int out = 0;
  for (size_t i = 0; i < to.size(); ++i)
    out += deployed[i] != kFree && to[i] != kFree && to[i] != deployed[i] ? 1 : 0;
  return out;
}

std::function<double()> draws(std::vector<double> values) {
  return
      [values = std::move(values), i = size_t{0}]() mutable { return values[i++ % values.size()]; };
}

TEST(OnesBatch, BatchAndRateFollowTheGpusUpToTheCap) {
  const ElasticBatch at_16 = elastic_batch(32, 5e-4, 8e-3, 16);
  EXPECT_DOUBLE_EQ(at_16.rate, 8e-3);
  EXPECT_EQ(at_16.local, 32);
  EXPECT_EQ(at_16.global, 512);
  const ElasticBatch at_20 = elastic_batch(32, 5e-4, 8e-3, 20);
  EXPECT_DOUBLE_EQ(at_20.rate, 8e-3);
  EXPECT_EQ(at_20.local, 25);
  EXPECT_EQ(at_20.global, 500);
  EXPECT_EQ(elastic_batch(16, 1e-3, 0, 64).global, 1024);
}

TEST(OnesScore, IsTheGpuTimeThatIsLeft) {
  Facts facts = without_limits({A, B});
  facts[A].has_prediction = facts[B].has_prediction = true;
  facts[A].left = 40000 * (1 / 0.5 - 1);
  facts[A].throughput = [](int) { return 4000.0; };
  facts[B].left = 10000 * (1 / 0.25 - 1);
  facts[B].throughput = [](int) { return 1000.0; };
  EXPECT_DOUBLE_EQ(score({A, A, A, A}, facts), 40);
  EXPECT_DOUBLE_EQ(score({B, kNone, kNone, kNone}, facts), 30);
  EXPECT_DOUBLE_EQ(score({A, A, A, A, B}, facts), 70);
}

TEST(OnesCrossover, SwapsTheGenesWhoseDrawIsBelowTheChance) {
  const auto [one, two] = crossover({A, A, B, kNone}, {C, B, B, A}, without_limits({A, B, C}), 0.5,
                                    draws({.2, .7, .9, .1}));
  EXPECT_EQ(one, (Genome{C, A, B, A}));
  EXPECT_EQ(two, (Genome{A, B, B, kNone}));
}

TEST(OnesReorder, MovesAsFewGpusAsTheSheetSays) {
  const Genome deployed{A, A, B, B};
  const Genome placed = reorder({{A, 1}, {B, 2}, {C, 1}}, deployed);
  EXPECT_EQ(placed, (Genome{A, C, B, B}));
  EXPECT_EQ(changed_slots(placed, deployed), 1);
}

TEST(OnesScaling, SizesOfTheSheet) {
  EXPECT_EQ(scaled_down(16, 3, 1), 8);
  EXPECT_EQ(scaled_down(16, 5, 1), 6);
  EXPECT_EQ(scaled_down(1, 10, 1), 2);
}

TEST(OnesThroughput, IsLinearBetweenSeenPointsAndTheOrigin) {
  EXPECT_DOUBLE_EQ(interpolated({{4, 400}}, 2), 200);
  EXPECT_DOUBLE_EQ(interpolated({{2, 300}, {4, 400}}, 3), 350);
  EXPECT_DOUBLE_EQ(interpolated({{2, 300}, {4, 400}}, 8), 600);
  EXPECT_DOUBLE_EQ(interpolated({}, 8), 0);
}

TEST(OnesPad, NewJobsComeFirstThenTheShortestUpToWhatIsAllowedAndThenToTheLimit) {
  Facts facts = without_limits({A, B, C});
  facts[C].is_new = true;
  facts[C].is_executed = false;
  facts[A].allowed = 2;
  facts[A].limit = 4;
  facts[A].left = 10;
  facts[B].allowed = 2;
  facts[B].limit = 2;
  facts[B].left = 5;
  EXPECT_EQ(pad(Genome(4, kNone), facts), (Counts{{A, 1}, {B, 2}, {C, 1}}));
  EXPECT_EQ(pad(Genome(8, kNone), facts), (Counts{{A, 4}, {B, 2}, {C, 1}}));
}

// Refresh, crossover, mutate, pad and reorder keep what must hold, whatever they are given.
TEST(OnesOperators, KeepTheInvariants) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const size_t slots = 1 + random.below(16);
    Facts facts;
    for (int job = 0; job < 6; ++job) {
      JobFacts& fact = facts[job];
      fact.allowed = static_cast<int>(random.below(5));
      fact.limit = std::max(fact.allowed, static_cast<int>(random.below(9)));
      fact.is_executed = random.uniform() < 0.7;
      fact.is_new = !fact.is_executed;
      fact.left = random.uniform();
      fact.throughput = [](int gpus) { return static_cast<double>(gpus); };
    }
    const auto any = [&] {
      Genome out(slots);
      for (int& gene : out)
        gene = static_cast<int>(random.below(8)) - 1;  // 6: a job that has ended
      return out;
    };
    const Genome deployed = refresh(any(), facts), other = refresh(any(), facts);
    for (const auto& [job, count] : counts_of(deployed)) {
      ASSERT_TRUE(facts.contains(job));
      ASSERT_LE(count, facts[job].allowed);
    }
    const auto [one, two] =
        crossover(deployed, other, facts, 0.5, [&] { return random.uniform(); });
    Counts parents = counts_of(deployed), children = counts_of(one);
    for (const auto& [job, count] : counts_of(other)) parents[job] += count;
    for (const auto& [job, count] : counts_of(two)) children[job] += count;
    for (const auto& [job, count] : children) ASSERT_LE(count, parents[job]);
    const Counts counts = pad(mutate(one, facts, 0.3, [&] { return random.uniform(); }), facts);
    int sum = 0;
    for (const auto& [job, count] : counts) sum += count;
    ASSERT_LE(sum, static_cast<int>(slots));
    const Genome placed = reorder(counts, deployed);
    std::set<int> ended;
    int last = kFree;
    for (const int job : placed) {
      if (job != last && last != kFree) {
        ASSERT_TRUE(ended.insert(last).second) << "a job in two blocks";
      }
      last = job;
    }
  }
}

}  // namespace
}  // namespace tessera::share::ones
