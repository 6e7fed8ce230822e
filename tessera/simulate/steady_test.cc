// Rounds counted against rounds played.
#include "tessera/simulate/steady.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tessera/plan/schedules/test_shapes.h"
#include "tessera/simulate/test_plays.h"

namespace tessera::engine {
namespace {

const UnitCosts kCosts{.forward = 1, .backward = 2, .weight = 0.5, .message = 0.1, .scale = {}};

Play play_of(const std::string& name, const PipelineShape& shape) {
  return SchedulePlay(make_schedule(name, shape).value(), shape, kCosts).play();
}

class SteadyNamed : public testing::TestWithParam<std::string> {};

// What is left of a schedule is the schedule of fewer micro-batches: each block runs once for each
// of them, and it takes what that takes.
TEST_P(SteadyNamed, WithoutRoundsItIsTheScheduleOfFewer) {
  for (const int64_t n : {1, 2, 4}) {
    for (const PipelineShape& shape : schedules::shapes_of(GetParam(), n, 48)) {
      const Play whole = play_of(GetParam(), shape);
      const auto found = find_rounds(whole);
      if (found->empty()) continue;
      const Rounds& rounds = found->front();
      const int64_t left_out = rounds.micro_batches / rounds.unit / 2 * rounds.unit;
      const Timetable fewer = without_rounds(whole, own_timetable(whole), rounds, left_out);
      EXPECT_EQ(fewer.micro_batches, 48 - left_out);
      for (const std::vector<engine::Run>& schedule : fewer.schedules) {
        std::map<int32_t, std::set<int64_t>> runs;
        for (const engine::Run& one : schedule) {
          EXPECT_TRUE(runs[one.block].insert(one.micro_batch).second);
        }
        for (const auto& [block, of] : runs) {
          EXPECT_EQ(static_cast<int64_t>(of.size()), fewer.micro_batches);
          EXPECT_EQ(*of.rbegin(), fewer.micro_batches - 1);
        }
      }
      PipelineShape small = shape;
      small.micro_batches -= left_out;
      const double expected = run(play_of(GetParam(), small))->end_s;
      RunItemsTable run_items(whole);
      EXPECT_NEAR(run(whole, &fewer, run_items)->end_s, expected, 1e-9 * expected)
          << n << " places";
    }
  }
}

TEST_P(SteadyNamed, CountedAsPlayed) {
  bool counted = false;
  for (const int64_t n : {2, 4, 8}) {
    for (const PipelineShape& shape : schedules::shapes_of(GetParam(), n, 512)) {
      const Play whole = play_of(GetParam(), shape);
      const Outcome played = *run(whole);
      const Outcome found = *SteadyPlay(whole).run();
      counted = counted || found.played_events < played.played_events / 2;
      const double close = kEqualRounds * played.end_s;
      EXPECT_NEAR(found.end_s, played.end_s, close) << n << " places";
      for (size_t p = 0; p < whole.players.size(); ++p) {
        const auto& a = found.players[p];
        const auto& b = played.players[p];
        EXPECT_NEAR(a.end_s, b.end_s, close);
        for (size_t i = 0; i < kSpent; ++i) {
          EXPECT_NEAR(a.spent_s[i], b.spent_s[i], close);
        }
        for (size_t i = 0; i < kLanes; ++i) {
          EXPECT_NEAR(a.busy_s[i], b.busy_s[i], close);
        }
      }
    }
  }
  if (GetParam() == "1f1b" || GetParam() == "interleaved" || GetParam() == "gpipe") {
    EXPECT_TRUE(counted);
  }
}

// What a further micro-batch takes, found in a short step, is what a long step takes for each.
TEST_P(SteadyNamed, AFurtherMicroBatchTakesAsLongAsPlayed) {
  bool known = false;
  for (const int64_t n : {1, 2, 4}) {
    const auto shapes = schedules::shapes_of(GetParam(), n, 48);
    const auto longer = schedules::shapes_of(GetParam(), n, 96);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const Play play = play_of(GetParam(), shapes[i]);
      const Outcome whole = *run(play);
      const auto time = *SteadyPlay(play).micro_batch_time(whole);
      if (!time) continue;
      known = true;
      const double expected = run(play_of(GetParam(), longer[i]))->end_s;
      EXPECT_NEAR(whole.end_s + 48 * *time, expected, kEqualRounds * expected) << n << " places";
    }
  }
  if (GetParam() == "1f1b" || GetParam() == "interleaved" || GetParam() == "gpipe") {
    EXPECT_TRUE(known);
  }
}
INSTANTIATE_TEST_SUITE_P(Schedules, SteadyNamed, testing::ValuesIn(schedule_names()));

TEST(Steady, JitterAndEventsPlayEveryRound) {
  const PipelineShape shape = schedules::shapes_of("1f1b", 4, 512).front();
  Play whole = play_of("1f1b", shape);
  whole.rules.jitter = 0.01;
  EXPECT_EQ(SteadyPlay(whole).run()->end_s, run(whole)->end_s);
  EXPECT_FALSE(*SteadyPlay(whole).micro_batch_time(*run(whole)));
  whole.rules.jitter = 0;
  whole.rules.events = true;
  EXPECT_EQ(SteadyPlay(whole).run()->events.size(), run(whole)->events.size());
}

}  // namespace
}  // namespace tessera::engine
