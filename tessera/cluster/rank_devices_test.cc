#include "tessera/cluster/rank_devices.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(RankDevices, ranks_are_on_devices_of_their_own_number_by_default) {
  const RankDevices devices;
  EXPECT_TRUE(devices.in_order());
  EXPECT_EQ(devices.device_of(7), 7);
  EXPECT_EQ(devices.rank_on(7), 7);
  EXPECT_EQ(devices.end(8), 8);
  EXPECT_EQ(devices.ranks_by_device(3), (std::vector<int>{0, 1, 2}));
}

TEST(RankDevices, a_list_says_where_each_rank_is_and_devices_may_stay_free) {
  const RankDevices devices({0, 4, 1, 6});
  EXPECT_FALSE(devices.in_order());
  EXPECT_EQ(devices.devices_of(std::vector<int>{1, 3}), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(devices.rank_on(4), 1);
  EXPECT_EQ(devices.rank_on(2), -1);
  EXPECT_EQ(devices.rank_on(9), -1);
  EXPECT_EQ(devices.end(4), 7);
  EXPECT_EQ(devices.ranks_by_device(4), (std::vector<int>{0, 2, 1, 3}));
}

TEST(RankDevices, a_list_in_order_is_the_default) {
  EXPECT_EQ(RankDevices({0, 1, 2}), RankDevices());
}

}  // namespace
}  // namespace tessera
