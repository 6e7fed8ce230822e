#include "tessera/predict/floor.h"

#include <gtest/gtest.h>

namespace tessera {
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
}

}  // namespace
}  // namespace tessera
