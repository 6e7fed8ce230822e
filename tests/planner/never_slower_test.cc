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

// In these questions the answer was once beaten: by 7 and 9 % by that with fewer devices, because only
// the best program was edited.
TEST(NeverSlower, ThanWithFewerDevices) {
  EXPECT_LE(against_rival({.model = "vgg:layers=11,form=cifar,width=8,image=32,classes=10,norm=1,ghost=2",
                           .machine = "dgx-v100:1",
                           .batch = 6,
                           .compute = DType::kBFloat16,
                           .rival_fixes = {{"devices", "4"}}}),
            kEqual);
  EXPECT_LE(against_rival({.model = "dlrm:dense=3,rows=5000-700-1100,bags=3-1-2,width=16,"
                                    "bottom=32-16,top=16-1",
                           .machine = "l4:1",
                           .batch = 8,
                           .optimizer = "adamw,tables.*=rowwise_adagrad",
                           .rival_fixes = {{"devices", "2"}}}),
            kEqual);
}

}  // namespace
}  // namespace tessera::planner_test
