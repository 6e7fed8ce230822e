// Drops up to 12 waits of the programs of 200 plans of the matrix, on the device `test`. The cases are
// divided among tests, which ctest runs in processes of their own.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "dropped_waits.h"
#include "matrix_cases.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

constexpr size_t kTests = 20, kProgramsOfTest = 10;

class DroppedWaitsOfTheMatrix : public testing::TestWithParam<size_t> {};

TEST_P(DroppedWaitsOfTheMatrix, AreSeen) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases) << cases.error().message;
  DroppedWaits result;
  std::set<std::string> tried;
  size_t number = 0;
  for (const MatrixCase& one : *cases) {
    // Each plan on its first model; examples are long.
    if (one.plan.ends_with(".toml") || !tried.insert(one.plan).second) continue;
    if (number++ % kTests != GetParam()) continue;
    if (result.programs >= static_cast<int64_t>(kProgramsOfTest)) break;
    const Status done = drop_waits(one.spec, one.batch, one.plan, /*most=*/12, /*seeds=*/5, result);
    ASSERT_TRUE(done) << one.model << " " << one.plan << ": " << done.error().message;
  }
  std::printf("%ld programs, %ld waits dropped, %ld seen; of sends %ld, %ld\n",
              static_cast<long>(result.programs), static_cast<long>(result.dropped),
              static_cast<long>(result.seen), static_cast<long>(result.of_sends),
              static_cast<long>(result.of_sends_seen));
  for (const std::string& one : result.unseen) std::printf("not seen: %s\n", one.c_str());
  EXPECT_EQ(result.programs, static_cast<int64_t>(kProgramsOfTest));
  EXPECT_GE(static_cast<double>(result.seen), 0.95 * static_cast<double>(result.dropped));
}

INSTANTIATE_TEST_SUITE_P(All, DroppedWaitsOfTheMatrix, testing::Range<size_t>(0, kTests));

}  // namespace
}  // namespace tessera
