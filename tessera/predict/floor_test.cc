#include "tessera/predict/floor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace tessera::floor_test {
namespace {

ScoredRow row_of(std::string inputs, double predicted, double measured) {
  ScoredRow row;
  row.source = "s";
  row.group = "g";
  row.inputs = std::move(inputs);
  row.predicted = predicted;
  row.measured = measured;
  return row;
}

// Two runs of one plan at 1 s and 2 s: the best prediction is 1 s (errors 0 and .5), not 2 s (1 and
// 0).
TEST(Floor, RepeatedRowsHaveOnePrediction) {
  const Floor floor = floor_of({row_of("a", 1, 1), row_of("a", 1, 2), row_of("b", 3, 4)});
  EXPECT_EQ(floor.by_source.at("s").repeated, 2);
  EXPECT_NEAR(floor.by_source.at("s").mape, 0.5 / 3, 1e-12);
  EXPECT_NEAR(floor.macro, 0.5 / 3, 1e-12);
  EXPECT_EQ(floor_of({row_of("a", 1, 1), row_of("b", 9, 2)}).macro, 0);
}

// Brute force: no prediction of a set does better.
TEST(Floor, NoPredictionIsBelowIt) {
  const std::vector<double> measured{1.0, 1.3, 1.9, 2.2, 5.0};
  std::vector<ScoredRow> rows;
  for (const double value : measured) rows.push_back(row_of("a", 1, value));
  const double least = floor_of(rows).macro;
  for (double p = 0.5; p < 6; p += 0.01) {
    for (ScoredRow& row : rows) row.predicted = p;
    EXPECT_GE(score(rows).macro, least - 1e-12) << p;
  }
}

// Four rows, two of them repeated: five of six pairs can be ordered.
TEST(Floor, EqualInputsCannotBeOrdered) {
  const std::vector<ScoredRow> rows{row_of("a", 1, 1), row_of("a", 1, 2), row_of("b", 3, 3),
                                    row_of("c", 4, 4)};
  EXPECT_NEAR(floor_of(rows).tau, 5.0 / 6, 1e-12);
  EXPECT_NEAR(score(rows).tau, 5.0 / 6, 1e-12);
  EXPECT_NEAR(tau_of_distinct(rows), 1, 1e-12);
}

// A choice among rows of equal inputs (1 s and 2 s) costs 1.5 s; the other plan takes 1.2 s.
TEST(Floor, AChoiceAmongRepeatedRowsCostsTheirMean) {
  const std::vector<ScoredRow> rows{row_of("a", 1, 1), row_of("a", 1, 2), row_of("b", 3, 1.2),
                                    row_of("c", 4, 4)};
  EXPECT_NEAR(floor_of(rows).regret, 0.2, 1e-12);
  EXPECT_NEAR(floor_of({row_of("a", 1, 1), row_of("b", 1, 2)}).regret, 0, 1e-12) << "no group";
}

// Predictions of one block are all twice too long, those of the other all right but one.
TEST(Floor, AFactorForEachBlockLeavesTheErrorOfTheRest) {
  std::vector<ScoredRow> rows{row_of("", 2, 1), row_of("", 4, 2), row_of("", 6, 3),
                              row_of("", 1, 1), row_of("", 2, 2), row_of("", 3, 2)};
  for (size_t i = 0; i < rows.size(); ++i) rows[i].block = i < 3 ? "a" : "b";
  rows.push_back(row_of("", 0, 5));  // without a prediction
  const std::vector<ScoredRow> scaled = with_block_factors(rows);
  EXPECT_NEAR(score(rows).macro, 3.5 / 6, 1e-12);
  const double left = score(scaled).macro;
  EXPECT_NEAR(left, 0.5 / 6, 1e-12);
  EXPECT_EQ(scaled.back().predicted, 0);
  // Brute force: no factors do better.
  for (double a = 0.1; a < 2; a += 0.05) {
    for (double b = 0.1; b < 2; b += 0.05) {
      double sum = 0;
      for (size_t i = 0; i < 6; ++i)
        sum += std::abs((i < 3 ? a : b) * rows[i].predicted / rows[i].measured - 1);
      EXPECT_GE(sum / 6, left - 1e-12);
    }
  }
}

TEST(Floor, BlocksAreWithoutDepthStagesReplicasAndBatch) {
  Row row;
  row.model = "GPT-1024x12";
  row.layers = 12;
  row.hidden = 1024;
  row.tp = 2;
  Row other = row;
  other.model = "GPT-1024x24";
  other.layers = 24;
  other.pp = 2;
  other.dp = 4;
  other.global_batch = 64;
  EXPECT_EQ(block_of(row), block_of(other));
  other.microbatch = 2;
  EXPECT_NE(block_of(row), block_of(other));
}

TEST(Floor, InputsAreAllThatARowSays) {
  Row row;
  row.model = "m";
  row.tp = 2;
  Row other = row;
  EXPECT_EQ(inputs_of(row), inputs_of(other));
  other.tp.reset();
  other.pp = 2;
  EXPECT_NE(inputs_of(row), inputs_of(other));
  other = row;
  other.id = "another";
  other.line = 7;
  EXPECT_EQ(inputs_of(row), inputs_of(other));
  for (const auto& change : std::vector<std::function<void(Row&)>>{
           [](Row& one) { one.lora = 8; }, [](Row& one) { one.notes = "LoRA, rank 4"; },
           [](Row& one) { one.notes = "QLoRA"; }}) {
    Row tuned = row;
    change(tuned);
    EXPECT_NE(inputs_of(row), inputs_of(tuned));
  }
  Row noted = row;
  noted.notes = "measured twice";
  EXPECT_EQ(inputs_of(row), inputs_of(noted));
}

}  // namespace
}  // namespace tessera::floor_test
