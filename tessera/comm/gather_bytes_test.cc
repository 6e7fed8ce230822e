#include "tessera/comm/gather_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/comm/testing.h"

namespace tessera::comm::gather_bytes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GatherBytes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GatherBytes, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(GatherBytes, EveryRankGetsWhatEveryRankHas) {
  const Status status = run_threads(
      GetParam(), {}, [](Communicator& world) { EXPECT_EQ(testing::gather_error(world), ""); });
  EXPECT_TRUE(status) << status.error().message;
}

TEST_P(GatherBytes, NumbersAreExact) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // a double would lose the 1
  const Status status = run_threads(GetParam(), {}, [](Communicator& world) {
    const auto all = gather_values(world, kOdd + 2 * world.rank());
    ASSERT_EQ(std::ssize(all), world.size());
    for (int rank = 0; rank < world.size(); ++rank)
      EXPECT_EQ(all[static_cast<size_t>(rank)], kOdd + 2 * rank);
    const auto lists =
        gather_lists(world, std::vector<uint64_t>(static_cast<size_t>(world.rank()), ~uint64_t{0}));
    for (size_t rank = 0; rank < lists.size(); ++rank)
      EXPECT_EQ(lists[rank], std::vector<uint64_t>(rank, ~uint64_t{0}));
  });
  EXPECT_TRUE(status) << status.error().message;
}

TEST(GatherBytes, OneRankMayTakeAll) {
  const Status status = run_threads(3, {}, [](Communicator& world) {
    const auto all = gather_lists_at(world, 1, std::vector<int64_t>{world.rank(), -7});
    if (world.rank() == 1) {
      EXPECT_THAT(all, ElementsAre(ElementsAre(0, -7), ElementsAre(1, -7), ElementsAre(2, -7)));
    } else {
      EXPECT_THAT(all, IsEmpty());
    }
    // Apart from the lengths, only the receiver is sent anything.
    const int64_t lengths = 8 * (world.size() - 1);
    const int64_t values = world.rank() == 1 ? 0 : 16;
    EXPECT_EQ(world.counters().total_bytes(), lengths + values);
  });
  EXPECT_TRUE(status) << status.error().message;
}

}  // namespace
}  // namespace tessera::comm::gather_bytes_test
