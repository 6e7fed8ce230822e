#include "unequal_meshes.h"

#include <gtest/gtest.h>

namespace tessera::planner_test {
namespace {

TEST(UnequalMeshes, OfThreeDevicesAreNearlyAsFastAsTheBestOfAll) {
  expect_as_fast_as_all({"mlp:layers=3,in=1024,hidden=4096,out=256", {3}, 4}, kFormulaErrs);
  expect_as_fast_as_all({"mlp:layers=5,in=64,hidden=512,out=10", {3}, 4}, kFormulaErrs);
}

}  // namespace
}  // namespace tessera::planner_test
