#include "freedom.h"

#include <gtest/gtest.h>

namespace tessera::planner_test {
namespace {

TEST(Freedom, OfVgg) { expect_no_fix_is_faster("vgg:layers=16", "2080ti:8", 64); }
TEST(Freedom, OfAlexNet) { expect_no_fix_is_faster("alexnet", "2080ti:4", 512); }
TEST(Freedom, OfCosmoFlow) { expect_no_fix_is_faster("cosmoflow:width=512", "dgx-v100-16:4", 8); }
TEST(Freedom, OfAGptOnOneNode) {
  expect_no_fix_is_faster("gpt:layers=12,hidden=768,heads=12,seq=1024,vocab=50304", "2080ti:1", 32);
}

}  // namespace
}  // namespace tessera::planner_test
