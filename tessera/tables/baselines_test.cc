#include "tessera/tables/baselines.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/tables/closed_form.h"
#include "tessera/tables/test_problems.h"

namespace tessera::tables {
namespace {

std::vector<double> sums(const std::vector<double>& values, const std::vector<int>& at,
                         int devices) {
  std::vector<double> out(static_cast<size_t>(devices), 0.0);
  for (size_t i = 0; i < values.size(); ++i) out[static_cast<size_t>(at[i])] += values[i];
  std::sort(out.rbegin(), out.rend());
  return out;
}

// docs/theory/zionex-dlrm.md section 6.
TEST(Baselines, TheSheetsExampleOfBothHeuristics) {
  const std::vector<double> values = {8, 7, 6, 5, 4};
  EXPECT_EQ(sums(values, longest_first(values, 2), 2), (std::vector<double>{17, 13}));
  EXPECT_EQ(sums(values, karmarkar_karp(values, 2), 2), (std::vector<double>{16, 14}));
}

// Longest first is at most 4/3 - 1/(3 m) of the optimum (Graham), which brute force gives.
TEST(Baselines, HeuristicsStayWithinTheirGuarantee) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const int devices = 2 + random.up_to(2);
    std::vector<double> values;
    const int count = 3 + random.up_to(5);
    for (int i = 0; i < count; ++i) values.push_back(1 + random.up_to(20));
    double best = 1e9;
    std::vector<int> at(values.size(), 0);
    while (true) {
      best = std::min(best, sums(values, at, devices).front());
      size_t digit = 0;
      while (digit < at.size() && ++at[digit] == devices) at[digit++] = 0;
      if (digit == at.size()) break;
    }
    const double guarantee = (4.0 / 3 - 1.0 / (3 * devices)) * best * (1 + 1e-12);
    EXPECT_LE(sums(values, longest_first(values, devices), devices).front(), guarantee);
    EXPECT_LE(sums(values, karmarkar_karp(values, devices), devices).front(), guarantee);
    EXPECT_GE(sums(values, karmarkar_karp(values, devices), devices).front(), best);
  }
}

TEST(Baselines, PackingIsExactOnSmallInstances) {
  Random random(2);
  int packed = 0, not_packed = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> bytes;
    int64_t sum = 0;
    for (int i = 0; i < 7; ++i) {
      bytes.push_back(1 + random.up_to(20));
      sum += bytes.back();
    }
    const int64_t memory = sum / 3 + random.up_to(3);
    bool possible = false;
    for (int code = 0; code < 2187 && !possible; ++code) {
      std::vector<int64_t> used(3, 0);
      for (int i = 0, rest = code; i < 7; ++i, rest /= 3) {
        used[static_cast<size_t>(rest % 3)] += bytes[static_cast<size_t>(i)];
      }
      possible = *std::max_element(used.begin(), used.end()) <= memory;
    }
    bool exact = false;
    const std::vector<int> at = pack(bytes, 3, memory, 1000000, exact);
    EXPECT_TRUE(exact);
    EXPECT_EQ(!at.empty(), possible);
    (possible ? packed : not_packed)++;
    std::vector<int64_t> used(3, 0);
    for (size_t i = 0; i < at.size(); ++i) used[static_cast<size_t>(at[i])] += bytes[i];
    EXPECT_LE(*std::max_element(used.begin(), used.end()), memory);
  }
  EXPECT_GT(packed, 20);
  EXPECT_GT(not_packed, 20);
  bool exact = true;
  EXPECT_TRUE(pack({5, 5, 5, 4, 4, 4, 3}, 2, 15, 1, exact).empty());
  EXPECT_FALSE(exact);  // given up
}

TEST(Baselines, KeysOfTheRules) {
  Table table;
  table.rows = 1000;
  table.dim = 8;
  table.pooling_factor = 5;
  EXPECT_EQ(greedy_key(table, GreedyKey::kDim), 8);
  EXPECT_EQ(greedy_key(table, GreedyKey::kSize), 32000);
  EXPECT_EQ(greedy_key(table, GreedyKey::kLookup), 40);
  EXPECT_DOUBLE_EQ(greedy_key(table, GreedyKey::kSizeLookup), 120);
}

// On the cost of the rule alone, greedy equals longest first.
TEST(Baselines, GreedyBalancesItsKeyAndKeepsToMemory) {
  Random random(4);
  const ClosedForm cost;
  for (int round = 0; round < 50; ++round) {
    const Problem problem = random_problem(random, 12, 3, random.from(1.0, 2), cost);
    for (const GreedyKey key :
         {GreedyKey::kDim, GreedyKey::kSize, GreedyKey::kLookup, GreedyKey::kSizeLookup}) {
      const Answer answer = greedy(problem, key);
      if (answer.found) {
        EXPECT_TRUE(answer.evaluation.fits());
      }
    }
    const Answer random_answer = random_placement(problem, static_cast<uint64_t>(round));
    if (random_answer.found) {
      EXPECT_TRUE(random_answer.evaluation.fits());
    }
  }
  Problem roomy = random_problem(random, 12, 3, 100, cost);
  std::vector<double> keys;
  for (const Table& table : roomy.tables) keys.push_back(greedy_key(table, GreedyKey::kLookup));
  std::vector<int> at;
  for (const PlacedPiece& placed : greedy(roomy, GreedyKey::kLookup).placement) {
    at.push_back(placed.device);
  }
  EXPECT_EQ(sums(keys, at, 3), sums(keys, longest_first(keys, 3), 3));
}

TEST(Baselines, BruteForceIsTheLeastOfAllEvaluations) {
  Random random(6);
  const ClosedForm cost;
  const Problem problem = random_problem(random, 4, 3, 2.5, cost);
  double best = 1e9;
  for (int code = 0; code < 81; ++code) {
    std::vector<int> at;
    for (int i = 0, rest = code; i < 4; ++i, rest /= 3) at.push_back(rest % 3);
    const Evaluation found = evaluate(problem, whole_tables(problem, at));
    if (found.fits()) best = std::min(best, found.ms);
  }
  const Answer answer = brute_force(problem);
  ASSERT_TRUE(answer.found);
  EXPECT_DOUBLE_EQ(answer.evaluation.ms, best);
}

TEST(Baselines, WhatDoesNotFitIsSaidInOneLine) {
  Random random(6);
  const ClosedForm cost;
  Problem problem = random_problem(random, 4, 2, 0.5, cost);
  for (const Answer& answer :
       {brute_force(problem), greedy(problem, GreedyKey::kDim), random_placement(problem, 1)}) {
    EXPECT_FALSE(answer.found);
    EXPECT_NE(answer.reason.find("4 tables need "), std::string::npos) << answer.reason;
    EXPECT_EQ(answer.reason.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::tables
