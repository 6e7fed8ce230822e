// Every run of formula_runs.h; the quick tests have some of them.
#include "formula_runs.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

class FormulaRuns : public testing::TestWithParam<FormulaRun> {};

TEST_P(FormulaRuns, EqualTheSerialRunOfTheProcessor) {
  expect_equal_to_serial(GetParam(), "test(kernels=formulas)");
}

TEST_P(FormulaRuns, EqualItOnTheStandIn) {
  if (GetParam().cached) GTEST_SKIP() << "accelerators have no caches of rows";
  expect_equal_to_serial(GetParam(), "stand-in");
}

INSTANTIATE_TEST_SUITE_P(All, FormulaRuns, testing::ValuesIn(formula_runs()));

}  // namespace
}  // namespace tessera
