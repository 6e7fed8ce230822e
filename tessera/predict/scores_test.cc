#include "tessera/predict/scores.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Scores, TauOfKnownOrders) {
  EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(kendall_tau({1, 2, 3, 4}, {1, 2, 4, 3}), 4.0 / 6);
}

TEST(Scores, MacroIsTheMeanOverSources) {
  std::vector<ScoredRow> rows;
  for (int i = 0; i < 3; ++i) rows.push_back({"large", "large", 'A', 1.1, 1, 0, 0});
  rows.push_back({"small", "small", 'B', 0.7, 1, 2e9, 1e9});
  rows.push_back({"small", "small", 'B', 0, 1, 0, 0});  // not predicted
  const Scores scores = score(rows);
  EXPECT_EQ(scores.by_source.at("large").rows, 3);
  EXPECT_EQ(scores.by_source.at("small").rows, 1);
  EXPECT_NEAR(scores.by_source.at("small").bias, -0.3, 1e-12);
  EXPECT_NEAR(scores.macro, 0.2, 1e-12);
  EXPECT_EQ(scores.memory_rows, 1);
  EXPECT_NEAR(scores.memory_mape, 1, 1e-12);
  EXPECT_EQ(scores.groups, 0);
  EXPECT_NEAR(score(rows, "A").macro, 0.1, 1e-12);
}

// Three rows have errors of .1, .15 and .3 with an uncertainty of .1, one .3 with .2, one says
// none.
TEST(Scores, ErrorsLieWithinWhatWasSaid) {
  std::vector<ScoredRow> rows;
  for (const double error : {0.0999, 0.15, 0.3}) rows.push_back({"a", "g", 'A', 1 + error, 1});
  rows.push_back({"b", "g", 'A', 0.7, 1});
  for (ScoredRow& row : rows) row.uncertainty = row.source == "a" ? 0.1 : 0.2;
  rows.push_back({"c", "g", 'A', 5, 1});
  const Scores scores = score(rows);
  EXPECT_NEAR(scores.within, (1.0 / 3 + 0) / 2, 1e-12);
  EXPECT_NEAR(scores.within_twice, (2.0 / 3 + 1) / 2, 1e-12);
}

// Ten rows with errors of 1, 2, ... 10 times what they say: seven of them (68 %) need a factor of 7.
TEST(Uncertainty, FactorCoversTheShareOfRows) {
  std::vector<ScoredRow> rows;
  for (int i = 1; i <= 10; ++i) rows.push_back({"a", "g", 'A', 1 + 0.01 * i, 1});
  for (ScoredRow& row : rows) row.uncertainty = 0.01;
  EXPECT_NEAR(uncertainty_factor(rows, .68), 7, 1e-9);
  for (ScoredRow& row : rows) row.uncertainty *= uncertainty_factor(rows, .68) * (1 + 1e-12);
  EXPECT_NEAR(score(rows).within, .7, 1e-12);
  EXPECT_NEAR(uncertainty_factor(rows, .68), 1, 1e-9);
  EXPECT_EQ(uncertainty_factor({}, .68), 1);
}

// Sources have the same weight, and a source's own rows do not find its factor.
TEST(Uncertainty, IsCrossValidatedBySource) {
  std::vector<ScoredRow> rows;
  for (int i = 0; i < 50; ++i) rows.push_back({"many", "g", 'A', 1.1, 1});
  rows.push_back({"one", "g", 'A', 1.3, 1});
  rows.push_back({"another", "g", 'A', 1.2, 1});
  for (ScoredRow& row : rows) row.uncertainty = 0.1;
  EXPECT_NEAR(uncertainty_factor(rows, .68), 3, 1e-9);
  EXPECT_NEAR(uncertainty_factor(rows, .6), 2, 1e-9);
  // Without "many" 3, without "one" 2, without "another" 3 (of two sources the larger).
  EXPECT_NEAR(cross_validated_within(rows, .68), 2. / 3, 1e-12);
}

TEST(Scores, RegretIsOfThePlanThatIsPredictedBest) {
  std::vector<ScoredRow> rows;
  const double predicted[] = {2, 1, 3, 4}, measured[] = {2, 2.2, 3, 4};
  for (int i = 0; i < 4; ++i) rows.push_back({"s", "g", 'A', predicted[i], measured[i], 0, 0});
  const Scores scores = score(rows);
  EXPECT_EQ(scores.groups, 1);
  EXPECT_NEAR(scores.regret, 0.1, 1e-12);
  EXPECT_NEAR(scores.tau, 4.0 / 6, 1e-12);
}

}  // namespace
}  // namespace tessera
