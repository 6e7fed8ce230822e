#include "freedom.h"

#include <gtest/gtest.h>

namespace tessera::planner_test {
namespace {

TEST(Freedom, OfAnMlpIsNeverSlower) {
  expect_no_fix_is_faster("mlp:in=4096,hidden=16384,out=1024,layers=12", "dgx-a100:2", 4096);
}

}  // namespace
}  // namespace tessera::planner_test
