#include "tessera/orchestrate/share/linear_program.h"

#include <gtest/gtest.h>

#include "tessera/orchestrate/share/random.h"

namespace tessera::share {
namespace {

TEST(LinearProgram, FindsTheOptimumOfAKnownProgram) {
  // maximise 3x + 5y, x <= 4, 2y <= 12, 3x + 2y <= 18: x = 2, y = 6.
  const LinearAnswer answer = solve({{-3, -5},
                                     {{{1, 0}, RowSense::kAtMost, 4},
                                      {{0, 2}, RowSense::kAtMost, 12},
                                      {{3, 2}, RowSense::kAtMost, 18}}});
  ASSERT_TRUE(answer.found);
  EXPECT_NEAR(answer.cost, -36, 1e-9);
  EXPECT_NEAR(answer.values[0], 2, 1e-9);
  EXPECT_NEAR(answer.values[1], 6, 1e-9);
}

TEST(LinearProgram, SaysThatNothingSatisfiesTheRowsOrThatThereIsNoBound) {
  EXPECT_FALSE(solve({{1}, {{{1}, RowSense::kAtMost, 1}, {{1}, RowSense::kAtLeast, 2}}}).found);
  EXPECT_FALSE(solve({{-1}, {{{1}, RowSense::kAtLeast, 2}}}).found);
}

// No point of a fine grid that satisfies the rows costs less, and the answer satisfies them.
TEST(LinearProgram, NoPointOfAGridIsBetter) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    LinearProgram program;
    for (int k = 0; k < 2; ++k) program.costs.push_back(random.uniform() - 0.7);
    for (int i = 0; i < 4; ++i)
      program.rows.push_back({{random.uniform(), random.uniform()}, RowSense::kAtMost, 1});
    program.rows.push_back({{1, 0}, RowSense::kAtMost, 3});
    program.rows.push_back({{0, 1}, RowSense::kAtMost, 3});
    const LinearAnswer answer = solve(program);
    ASSERT_TRUE(answer.found);
    for (const LinearRow& row : program.rows) {
      ASSERT_LE(row.factors[0] * answer.values[0] + row.factors[1] * answer.values[1],
                row.value + 1e-9);
    }
    for (double x = 0; x <= 3; x += 0.1) {
      for (double y = 0; y <= 3; y += 0.1) {
        bool holds = true;
        for (const LinearRow& row : program.rows)
          holds = holds && row.factors[0] * x + row.factors[1] * y <= row.value;
        if (holds) {
          ASSERT_GE(program.costs[0] * x + program.costs[1] * y, answer.cost - 1e-9);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::share
