// Drops every wait of the programs of many plans of the matrix, on the device `test`.
#include <gtest/gtest.h>

#include <cstdio>

#include "dropped_waits.h"
#include "matrix_cases.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

constexpr int64_t kPrograms = 200;

TEST(DroppedWaits, OfManyProgramsAreSeen) {
  const auto cases = load_plans(TESSERA_SOURCE_DIR);
  ASSERT_TRUE(cases) << cases.error().message;
  DroppedWaits result;
  std::string last;
  for (const MatrixCase& one : *cases) {
    // A plan on its first model; examples are long.
    if (one.plan == last || one.plan.ends_with(".toml") || result.programs >= kPrograms) continue;
    last = one.plan;
    const Status done = drop_waits(one.spec, one.batch, one.plan, /*ranks=*/2, /*seeds=*/5, result);
    ASSERT_TRUE(done) << one.model << " " << one.plan << ": " << done.error().message;
  }
  std::printf("%ld programs, %ld waits dropped, %ld seen\n", static_cast<long>(result.programs),
              static_cast<long>(result.dropped), static_cast<long>(result.seen));
  for (const std::string& one : result.unseen) std::printf("not seen: %s\n", one.c_str());
  EXPECT_GE(result.programs, kPrograms);
  EXPECT_GE(static_cast<double>(result.seen), 0.95 * static_cast<double>(result.dropped));
}

}  // namespace
}  // namespace tessera
