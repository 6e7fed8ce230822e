// Drops up to 12 waits of the programs of 200 plans of the matrix, on the device `test`. At least 95 %
// of all must show.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "dropped_waits.h"
#include "matrix_cases.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

constexpr int64_t kPrograms = 200, kProgramsOfLine = 10;

TEST(DroppedWaitsOfTheMatrix, AreSeen) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases) << cases.error().message;
  DroppedWaits result;
  std::set<std::string> tried;
  for (const MatrixCase& one : *cases) {
    if (result.programs == kPrograms) break;
    // Each plan on its first model; examples are long.
    if (one.plan.ends_with(".toml") || !tried.insert(one.plan).second) continue;
    const Status done = drop_waits(one.spec, one.batch, one.plan, /*most=*/12, /*seeds=*/5, result);
    ASSERT_TRUE(done) << one.model << " " << one.plan << ": " << done.error().message;
    if (result.programs % kProgramsOfLine != 0) continue;
    std::printf("%ld programs, %ld waits dropped, %ld seen; of sends %ld, %ld\n",
                static_cast<long>(result.programs), static_cast<long>(result.dropped),
                static_cast<long>(result.seen), static_cast<long>(result.of_sends),
                static_cast<long>(result.of_sends_seen));
    std::fflush(stdout);
  }
  for (const std::string& one : result.unseen) std::printf("not seen: %s\n", one.c_str());
  EXPECT_EQ(result.programs, kPrograms);
  EXPECT_GE(static_cast<double>(result.seen), 0.95 * static_cast<double>(result.dropped));
}

}  // namespace
}  // namespace tessera
