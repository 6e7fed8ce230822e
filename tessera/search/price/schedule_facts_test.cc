#include "tessera/search/price/schedule_facts.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera {
namespace {

// The facts equal the closed forms of docs/strategies/pipelines.md.
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

// docs/strategies/terapipe.md, section 2: slices shorten the bubble of GPipe by their number.
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

// Stages of unequal times take as long as the schedule's own player says.
TEST(ScheduleFacts, PlaysStagesOfUnequalTimes) {
  struct Case {
    std::string schedule;
    int64_t places, chunks, micro_batches;
    bool splits;
  };
  for (const Case& one : {Case{"1f1b", 4, 1, 6, false}, Case{"interleaved", 4, 3, 12, false},
                          Case{"zb_h1", 3, 1, 8, true}, Case{"zb_h2", 4, 1, 9, true}}) {
    PipelineShape shape{.places = one.places, .micro_batches = one.micro_batches};
    UnitCosts costs{.forward = 1, .backward = one.splits ? 1.0 : 2.0, .weight = 1};
    StageTimes times;
    for (int64_t s = 0; s < one.places * one.chunks; ++s) {
      shape.at.push_back({s % one.places});
      costs.scale.push_back(1 + .25 * static_cast<double>(s * 7 % 4));
      times.forward_s.push_back(costs.scale.back());
      times.backward_s.push_back(2 * costs.scale.back());
    }
    const Schedule schedule = make_schedule(one.schedule, shape).value();
    ScheduleTable table;
    const PipelineSize size{one.places, one.chunks};
    ASSERT_NE(table.facts(one.schedule, size, one.micro_batches), nullptr);
    EXPECT_NEAR(table.play(one.schedule, size, one.micro_batches, times),
                makespan(schedule, shape, costs), 1e-9)
        << one.schedule;
  }
}

// A single micro-batch meets every stage twice, and a message between two of them; each of very
// many takes the slowest place's time.
TEST(ScheduleFacts, PlaysMessagesAndManyMicroBatches) {
  ScheduleTable table;
  const StageTimes times{{1, 2, 1}, {2, 4, 2}, .5};
  ASSERT_NE(table.facts("1f1b", {3}, 1), nullptr);
  EXPECT_NEAR(table.play("1f1b", {3}, 1, times), 4 + 8 + 4 * .5, 1e-9);
  ASSERT_NE(table.facts("1f1b", {3}, 1000), nullptr);
  EXPECT_NEAR(table.play("1f1b", {3}, 1000, times) - table.play("1f1b", {3}, 400, times), 600 * 6,
              1e-6);
}

TEST(ScheduleFacts, AShapeThatTheScheduleIsNotMadeFor) {
  ScheduleTable table;
  EXPECT_EQ(table.facts("interleaved", {4, 2}, 6), nullptr);
  EXPECT_EQ(table.facts("1f1b", {4, 2}, 8), nullptr);
}

}  // namespace
}  // namespace tessera
