#include "tessera/search/candidate_pool.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/base/infinity.h"

namespace tessera {
namespace {

constexpr double kMargin = 1.1;

// Makes a candidate that is unlike all others with another number of stages.
// Returns a question for the least time.
const PlanQuestion& question() {
  static const Cluster cluster = load_cluster("dgx-a100:1").value();
  static const PlanQuestion out = [] {
    PlanQuestion one;
    one.cluster = &cluster;
    return one;
  }();
  return out;
}

PlanCandidate candidate(int64_t stages, double estimated_s) {
  PlanCandidate out;
  out.choice.stages = stages;
  out.choice.axes = {{"dp", 64 / stages, {"batch"}}, {"tp", stages, {"heads"}}};
  out.choice.micro_batches = 2 * stages;
  out.choice.schedule = stages % 2 == 0 ? "1f1b" : "gpipe";
  out.choice.chunks = stages;
  out.estimate.step_s = estimated_s;
  out.estimate.memory_bytes = 1e9;
  out.estimate.capacity_bytes = 80e9;
  return out;
}

// Simulates what the pool offers, each for `ratio` times its estimate. Returns how many it
// simulated.
template <class Ratio>
size_t simulate_all(CandidatePool& pool, const Ratio& ratio) {
  size_t simulated = 0;
  std::optional<PlanCandidate> best;
  while (auto next = pool.take(best ? &*best : nullptr, Care::kNarrow, kInfinity)) {
    next->step_s = next->estimate.step_s * ratio(next->choice);
    next->need_bytes = next->estimate.memory_bytes;
    next->fits = true;
    if (!best || *next->step_s < *best->step_s) best = next;
    pool.learn(*next);
    ++simulated;
  }
  return simulated;
}

// Makes a pool of eight candidates, each one percent slower by formula than the one before.
CandidatePool eight() {
  CandidatePool pool(question(), kMargin, 1, false);
  for (int64_t i = 0; i < 8; ++i) pool.add(candidate(i + 1, 1 + .01 * static_cast<double>(i)));
  return pool;
}

TEST(CandidatePool, WhereTheFormulaErrsAlikeFewProgramsAreEnough) {
  CandidatePool pool = eight();
  EXPECT_EQ(simulate_all(pool, [](const Choice&) { return 1.04; }), 3U);
}

TEST(CandidatePool, WhereTheFormulaErrsUnlikeMoreProgramsAreSimulated) {
  CandidatePool pool = eight();
  EXPECT_GT(
      simulate_all(pool, [](const Choice& choice) { return choice.stages % 2 == 0 ? 1 : 1.08; }),
      4U);
}

// The formula may know nothing of a slow link that one kind of choice uses, and all about the
// others.
TEST(CandidatePool, WhatOneKindOfChoiceTakesIsNotBelievedOfAnother) {
  CandidatePool pool(question(), kMargin, 1, false);
  for (int64_t i = 0; i < 6; ++i) pool.add(candidate(2 * i + 2, 1 + .01 * static_cast<double>(i)));
  pool.add(candidate(1, 4));
  bool saw_other = false;
  simulate_all(pool, [&](const Choice& choice) {
    saw_other = saw_other || choice.stages == 1;
    return choice.stages == 1 ? 1. : 5.;
  });
  EXPECT_TRUE(saw_other);
}

// Every program takes half of its estimate, so choices of which a few were simulated would else all
// come before one of another kind.
TEST(CandidatePool, OfSmallModelsTheMeanErrorIsBelievedOfAnotherKind) {
  CandidatePool pool(question(), kMargin, 1, true);
  for (int64_t i = 0; i < 20; ++i) {
    PlanCandidate one = candidate(2, 1 + .1 * static_cast<double>(i));
    one.choice.micro_batches = 100 + i;
    pool.add(std::move(one));
  }
  pool.add(candidate(1, 1.5));
  size_t before = 0;
  std::optional<PlanCandidate> best;
  while (auto next = pool.take(best ? &*best : nullptr, Care::kAll, kInfinity)) {
    if (next->choice.stages == 1) break;
    next->step_s = .45 * next->estimate.step_s;
    next->need_bytes = next->estimate.memory_bytes;
    next->fits = true;
    if (!best) best = next;
    pool.learn(*next);
    ++before;
  }
  EXPECT_LE(before, 12U);
}

TEST(CandidatePool, TheOrderOnTheNodesIsTriedWhereTheFormulaSeesADifference) {
  for (const double less : {1e-2, 1e-5}) {
    CandidatePool pool(question(), kMargin, 1, false);
    PlanCandidate first = candidate(4, 1), turned = first;
    turned.choice.replicas_apart = true;
    turned.estimate.step_s = 1 + less;
    pool.add(first);
    pool.add(turned);
    EXPECT_EQ(simulate_all(pool, [](const Choice&) { return 1.04; }), less > 1e-3 ? 2U : 1U)
        << less;
  }
}

// Other choices much like it took far longer than by formula, so it is expected to be slower than
// the best.
TEST(CandidatePool, OtherShardsOfTheBestAreTriedIfTheyAreFasterByFormula) {
  for (const double share : {.999, 1.001}) {
    CandidatePool pool(question(), kMargin, 1, false);
    const PlanCandidate best = candidate(1, 1);
    PlanCandidate sibling = best;
    sibling.choice.sharded = 1;
    sibling.estimate.step_s = share;
    pool.add(best);
    for (int64_t i = 1; i <= 5; ++i) {
      PlanCandidate other = sibling;
      other.choice.micro_batches = other.choice.chunks = 10 * i;
      other.estimate.step_s = .9 + .001 * static_cast<double>(i);
      pool.add(std::move(other));
    }
    pool.add(sibling);
    size_t siblings = 0;
    simulate_all(pool, [&](const Choice& choice) {
      siblings += choice == sibling.choice ? 1 : 0;
      return choice.chunks >= 10 ? 1.3 : 1.;
    });
    EXPECT_EQ(siblings, share < 1 ? 1U : 0U) << share;
  }
}

TEST(CandidatePool, OneOfEqualEditsWaits) {
  CandidatePool pool(question(), 1, 1, false);
  for (const size_t unit : {0, 2}) {
    PlanCandidate edit = candidate(4, 1 + 1e-9 * static_cast<double>(unit));
    edit.choice.units.own().resize(4);
    edit.choice.units.own()[unit].recompute = "none";
    pool.add_if_unlike(std::move(edit));
  }
  EXPECT_EQ(pool.size(), 1U);
  pool.add_if_unlike(candidate(4, .99));
  EXPECT_EQ(pool.size(), 2U);
}

TEST(CandidatePool, WhatDoesNotFitIsTakenAFewTimesOnly) {
  CandidatePool pool(question(), kMargin, 2, false);
  for (int64_t i = 0; i < 4; ++i) {
    PlanCandidate one = candidate(i + 1, 1);
    one.estimate.memory_bytes = 200e9 + 1e9 * static_cast<double>(i);
    pool.add(std::move(one));
  }
  std::vector<int64_t> taken;
  while (auto next = pool.take(nullptr, Care::kNarrow, kInfinity))
    taken.push_back(next->choice.stages);
  EXPECT_EQ(taken, (std::vector<int64_t>{1, 2})) << "the smallest first";
}

}  // namespace
}  // namespace tessera
