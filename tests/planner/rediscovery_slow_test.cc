#include "rediscovery.h"

#include <gtest/gtest.h>

namespace tessera::planner_test {
namespace {

// Dynamic axial parallelism: some ops by rows, others by columns of the pair representation.
TEST(Rediscovery, EvoformerAlternatesRowsAndColumns) {
  const Found found("evoformer:layers=4,sequences=128,residues=256,hidden=128,pair=128",
                    "dgx-a100:1", 1, {{"tp", "4"}, {"pp", "1"}, {"dp", "1"}});
  EXPECT_TRUE(found.cuts().contains("r") && found.cuts().contains("r2")) << found.text();
}

}  // namespace
}  // namespace tessera::planner_test
