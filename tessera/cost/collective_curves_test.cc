// Checks that the curves give the measured figures of docs/theory/cost-model.md section 4.3.
#include "tessera/cost/collective_curves.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::collective_curves_test {
namespace {

constexpr int64_t kKibi = 1024, kMebi = 1024 * 1024, kGibi = 1024 * kMebi;
constexpr auto kAll = CollectiveKind::kAllReduce;
constexpr auto kGather = CollectiveKind::kAllGather;

Link nvlink(double giga) { return {LinkKind::kNvlink, giga * 1e9, 0, true}; }

double seconds(CollectiveKind kind, Generation generation, double giga, int64_t members,
               int64_t bytes) {
  const auto point = inner_curve(kind, generation, nvlink(giga), members, bytes);
  EXPECT_TRUE(point.has_value());
  return point ? point->latency_s + point->transfer_s : 0;
}

TEST(Volume, of_a_member) {
  EXPECT_DOUBLE_EQ(collective_volume(kAll, 8, 80), 140);
  EXPECT_DOUBLE_EQ(collective_volume(kGather, 8, 80), 70);
  EXPECT_DOUBLE_EQ(collective_volume(CollectiveKind::kReduceScatter, 4, 80), 60);
  EXPECT_DOUBLE_EQ(collective_volume(CollectiveKind::kAllToAll, 4, 80), 60);
  EXPECT_DOUBLE_EQ(collective_volume(CollectiveKind::kBroadcast, 4, 80), 80);
}

TEST(A100, the_fit_of_8_devices) {
  EXPECT_NEAR(seconds(kAll, Generation::named("ampere"), 300, 8, kMebi) * 1e6, 87, .5);
  EXPECT_NEAR(seconds(kAll, Generation::named("ampere"), 300, 8, 16 * kMebi) * 1e6, 208, .5);
  EXPECT_NEAR(seconds(kAll, Generation::named("ampere"), 300, 8, kGibi) * 1e6, 8357, 1);
}

TEST(A100, every_number_of_devices) {
  const std::pair<double, double> fits[] = {{46, 193}, {56, 210}, {54, 218}, {59, 222},
                                            {67, 225}, {71, 226}, {79, 227}};
  for (int64_t n = 2; n <= 8; ++n) {
    const auto& [micros, bus] = fits[n - 2];
    const double volume = 2. * static_cast<double>(n - 1) / static_cast<double>(n) * 1e8;
    EXPECT_NEAR(seconds(kAll, Generation::named("ampere"), 300, n, 100'000'000),
                micros * 1e-6 + volume / (bus * 1e9), 1e-12);
  }
}

TEST(V100, is_not_monotone_in_the_number_of_devices) {
  const std::pair<double, double> fits[] = {{24, 22.6}, {32, 45.2}, {45, 85.8}, {42, 37.1},
                                            {50, 45.9}, {64, 87.6}, {76, 136.1}};
  for (int64_t n = 2; n <= 8; ++n) {
    const auto& [micros, bus] = fits[n - 2];
    const double volume = 2. * static_cast<double>(n - 1) / static_cast<double>(n) * 1e8;
    EXPECT_NEAR(seconds(kAll, Generation::named("volta"), 150, n, 100'000'000),
                micros * 1e-6 + volume / (bus * 1e9), 1e-12);
  }
  EXPECT_GT(seconds(kAll, Generation::named("volta"), 150, 5, kGibi),
            seconds(kAll, Generation::named("volta"), 150, 8, kGibi));
}

TEST(H200, table_of_8_devices) {
  const std::pair<int64_t, double> table[] = {
      {32 * kKibi, 1.4},  {kMebi, 40},  {16 * kMebi, 220}, {64 * kMebi, 347},
      {256 * kMebi, 436}, {kGibi, 464}, {16 * kGibi, 482}};
  for (const auto& [bytes, bus] : table) {
    const double time = seconds(kAll, Generation::named("hopper"), 450, 8, bytes);
    EXPECT_NEAR(1.75 * static_cast<double>(bytes) / time / 1e9, bus, 1e-6 * bus);
  }
}

TEST(H100, rates_of_the_algorithm_at_1_gibibyte) {
  const auto rate = [](CollectiveKind kind, int64_t n) {
    return static_cast<double>(kGibi) / seconds(kind, Generation::named("hopper"), 450, n, kGibi) /
           1e9;
  };
  EXPECT_NEAR(rate(kGather, 2), 537, 5);
  EXPECT_NEAR(rate(kGather, 4), 434, 5);
  EXPECT_NEAR(rate(kGather, 8), 394, 6);
  EXPECT_NEAR(rate(kAll, 2), 324, 3);
  EXPECT_NEAR(rate(kAll, 4), 236, 3);
  EXPECT_NEAR(rate(kAll, 8), 267, 3);
}

TEST(B200, bus_rates_of_8_devices) {
  const auto bus = [](CollectiveKind kind) {
    return collective_volume(kind, 8, 16. * kGibi) /
           seconds(kind, Generation::named("blackwell"), 900, 8, 16 * kGibi) / 1e9;
  };
  EXPECT_NEAR(bus(kAll), 846, .03 * 846);
  EXPECT_NEAR(bus(kGather), .674 * 900, .05 * 607);
  EXPECT_NEAR(bus(CollectiveKind::kAllToAll), .597 * 900, .01 * 537);
}

TEST(Curve, scales_with_the_link) {  // A800, H800: 200 GB/s
  const auto full = inner_curve(kAll, Generation::named("ampere"), nvlink(300), 8, kGibi),
             cut = inner_curve(kAll, Generation::named("ampere"), nvlink(200), 8, kGibi);
  EXPECT_NEAR(cut->transfer_s, 1.5 * full->transfer_s, 1e-12);
  EXPECT_EQ(cut->latency_s, full->latency_s);
}

TEST(Curve, is_for_nvlink_of_devices_that_were_measured) {
  EXPECT_FALSE(
      inner_curve(kAll, Generation::named("ampere"), {LinkKind::kPcie, 25e9, 0, true}, 8, kMebi));
  EXPECT_FALSE(inner_curve(kAll, Generation::named("turing"), nvlink(50), 2, kMebi));
}

TEST(Curve, more_bytes_are_never_faster) {
  for (const auto generation : {Generation::named("volta"), Generation::named("ampere"),
                                Generation::named("hopper"), Generation::named("blackwell")}) {
    for (const auto kind : {kAll, kGather, CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
      for (int64_t n = 2; n <= 9; ++n) {
        double last = 0;
        for (double bytes = 100; bytes < 1e11; bytes *= 1.1) {
          const double now = seconds(kind, generation, 300, n, std::llround(bytes));
          ASSERT_GE(now, last) << n << " " << bytes;
          last = now;
        }
      }
    }
  }
}

TEST(Ramp, of_rings_over_nodes) {
  const std::pair<int64_t, double> table[] = {
      {128 * kKibi, .10}, {256 * kKibi, .18}, {512 * kKibi, .30}, {kMebi, .43},
      {2 * kMebi, .63},   {4 * kMebi, .55},   {8 * kMebi, .78},   {16 * kMebi, .93},
      {32 * kMebi, 1.},   {kGibi, 1.}};
  for (const auto& [bytes, share] : table) {
    EXPECT_NEAR(ring_ramp(static_cast<double>(bytes), 48e9), share, 1e-9);
  }
  // Half the rate reaches at half the size what the full rate reaches.
  EXPECT_NEAR(ring_ramp(512. * kKibi, 24e9), .43, 1e-9);
}

TEST(Ramp, time_grows_with_bytes_and_falls_with_rate) {
  double last = 0;
  for (double bytes = 1e4; bytes < 1e9; bytes *= 1.05) {
    const double now = bytes / ring_ramp(bytes, 48e9);
    EXPECT_GE(now, last);
    last = now;
  }
  last = 1e99;
  for (double rate = 1e8; rate < 1e12; rate *= 1.05) {
    const double now = 1 / (rate * ring_ramp(1e6, rate));
    EXPECT_LE(now, last * (1 + 1e-12));
    last = now;
  }
}

TEST(AllToAll, latency_and_nic_share_by_nodes) {
  const std::pair<int64_t, double> micros[] = {{2, 37}, {4, 42}, {8, 60}, {16, 98}, {32, 290}};
  for (const auto& [nodes, latency] : micros) {
    EXPECT_NEAR(all_to_all_latency(nodes) * 1e6, latency, 1e-9);
  }
  EXPECT_NEAR(all_to_all_latency(64) * 1e6, 580, 1e-9);
  EXPECT_DOUBLE_EQ(all_to_all_nic_share(2), .78);
  EXPECT_DOUBLE_EQ(all_to_all_nic_share(4), .89);
}

TEST(Message, h200_and_the_cube_mesh) {
  EXPECT_DOUBLE_EQ(450 * message_share(Generation::named("hopper"), LinkKind::kNvlink), 396);
  EXPECT_DOUBLE_EQ(150 * message_share(Generation::named("volta"), LinkKind::kNvlink), 22.5);
}

}  // namespace
}  // namespace tessera::collective_curves_test
