#include "never_slower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::planner_test {
namespace {

TEST(NeverSlower, WithMoreRoom) {
  const NeverSlower out = compare_rooms(0, 2);
  EXPECT_THAT(out.slower_with_memory, testing::IsEmpty());
  EXPECT_THAT(out.slower_with_links, testing::IsEmpty());
  EXPECT_THAT(out.slower_with_freedom, testing::IsEmpty());
}

}  // namespace
}  // namespace tessera::planner_test
