#include "unequal_meshes.h"

#include <gtest/gtest.h>

namespace tessera::planner_test {
namespace {

TEST(UnequalMeshes, OfThreeDevicesAreNearlyAsFastAsTheBestOfAll) {
  expect_as_fast_as_all({"mlp:layers=3,in=1024,hidden=4096,out=256", {3}, 2}, kFormulaErrs);
}

}  // namespace
}  // namespace tessera::planner_test
