#include "tessera/search/schedule_facts.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera {
namespace {

// The closed forms of docs/strategies/pipelines.md.
TEST(ScheduleFacts, EqualTheClosedForms) {
  ScheduleTable table;
  for (const int64_t p : {1, 2, 4, 8}) {
    for (const int64_t m : {p, 2 * p, 3 * p, 40 * p}) {
      const auto places = static_cast<double>(p);
      const ScheduleFacts* plain = table.facts("1f1b", {p}, m);
      ASSERT_NE(plain, nullptr);
      EXPECT_DOUBLE_EQ(plain->bubble, places - 1);
      for (int64_t q = 0; q < p; ++q)
        EXPECT_EQ(plain->held[static_cast<size_t>(q)], static_cast<double>(std::min(m, p - q)));
      const ScheduleFacts* chunked = table.facts("interleaved", {p, 2}, m);
      ASSERT_NE(chunked, nullptr);
      EXPECT_NEAR(chunked->bubble, (places - 1) / 2, 1e-9);
      const ScheduleFacts* split = table.facts("zb_h1", {p}, m);
      ASSERT_NE(split, nullptr);
      EXPECT_NEAR(split->bubble, (places - 1) / 3, 1e-9) << p << " " << m;
    }
  }
}

// docs/theory/terapipe.md, section 2: slices shorten the bubble of GPipe by their number.
TEST(ScheduleFacts, Slices) {
  ScheduleTable table;
  for (const int64_t n : {1, 2, 4}) {
    const ScheduleFacts* facts = table.facts("token", {4, 1, n}, 3);
    ASSERT_NE(facts, nullptr);
    EXPECT_NEAR(facts->bubble, 3.0 / static_cast<double>(n), 1e-9);
    for (const double held : facts->held) EXPECT_EQ(held, 3);
  }
}

// The stages of a place together hold at least what the place holds at its fullest time.
TEST(ScheduleFacts, StagesHoldAtLeastWhatTheirPlaceHolds) {
  ScheduleTable table;
  constexpr int64_t kPlaces = 4, kChunks = 3, kMicroBatches = 12;
  PipelineShape shape{.places = kPlaces, .micro_batches = kMicroBatches};
  for (int64_t s = 0; s < kPlaces * kChunks; ++s) shape.at.push_back({s % kPlaces});
  const auto held = in_flight(make_schedule("interleaved", shape).value(), shape);
  const ScheduleFacts* facts = table.facts("interleaved", {kPlaces, kChunks}, kMicroBatches);
  ASSERT_NE(facts, nullptr);
  for (size_t q = 0; q < kPlaces; ++q) {
    double sum = 0;
    for (size_t s = q; s < facts->held.size(); s += kPlaces) sum += facts->held[s];
    EXPECT_GE(sum, static_cast<double>(held[q]));
    EXPECT_LE(sum, 1.5 * static_cast<double>(held[q]));
  }
}

TEST(ScheduleFacts, AShapeThatTheScheduleIsNotMadeFor) {
  ScheduleTable table;
  EXPECT_EQ(table.facts("interleaved", {4, 2}, 6), nullptr);
  EXPECT_EQ(table.facts("1f1b", {4, 2}, 8), nullptr);
}

}  // namespace
}  // namespace tessera
