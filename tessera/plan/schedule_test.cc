#include "tessera/plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tessera {
namespace {

std::string text(const std::vector<BlockRun>& runs) {
  std::string out;
  for (const BlockRun& run : runs) out += (out.empty() ? "" : " ") + to_string(run);
  return out;
}

std::vector<std::vector<BlockRun>> all_stages(std::string_view name, int64_t n, int64_t m) {
  std::vector<std::vector<BlockRun>> stages;
  for (int64_t s = 0; s < n; ++s) stages.push_back(make_schedule(name, s, n, m).value());
  return stages;
}

// Steps until all stages are done when every block takes one step and messages take none.
int64_t unit_steps(const std::vector<std::vector<BlockRun>>& stages) {
  std::map<std::pair<size_t, std::string>, int64_t> end;  // step after which the block has run
  std::vector<size_t> next(stages.size(), 0);
  const auto done_before = [&](size_t stage, const BlockRun& run, int64_t step) {
    const auto it = end.find({stage, to_string(run)});
    return it != end.end() && it->second <= step;
  };
  for (int64_t step = 0; step < 1000; ++step) {
    bool all_done = true;
    for (size_t s = 0; s < stages.size(); ++s) {
      if (next[s] == stages[s].size()) continue;
      all_done = false;
      const BlockRun& run = stages[s][next[s]];
      const bool first = run.kind == BlockRun::kForward ? s == 0 : s + 1 == stages.size();
      if (!first && !done_before(run.kind == BlockRun::kForward ? s - 1 : s + 1, run, step))
        continue;
      end[{s, to_string(run)}] = step + 1;
      ++next[s];
    }
    if (all_done) return step;
  }
  return -1;
}

TEST(Schedule, OneForwardOneBackwardOrders) {
  EXPECT_EQ(text(*make_schedule("1f1b", 0, 1, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text(*make_schedule("1f1b", 0, 2, 3)), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(text(*make_schedule("1f1b", 1, 2, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text(*make_schedule("1f1b", 0, 4, 2)), "F0 F1 B0 B1");
}

TEST(Schedule, GPipeRunsAllForwardsFirst) {
  EXPECT_EQ(text(*make_schedule("gpipe", 1, 2, 3)), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, InFlightAndUnitCostMatchTheClosedForms) {
  for (int64_t n = 1; n <= 5; ++n) {
    for (int64_t m = 1; m <= 7; ++m) {
      for (const std::string& name : schedule_names()) {
        const auto stages = all_stages(name, n, m);
        EXPECT_TRUE(check_schedule(stages, m).has_value()) << name;
        EXPECT_TRUE(check_schedule_finishes(stages).has_value()) << name;
        EXPECT_EQ(unit_steps(stages), 2 * m + 2 * (n - 1)) << name << " n=" << n << " m=" << m;
        for (int64_t i = 0; i < n; ++i) {
          const int64_t expected = name == "gpipe" ? m : std::min(m, n - i);
          EXPECT_EQ(in_flight(stages[static_cast<size_t>(i)]), expected) << name << " stage " << i;
        }
      }
    }
  }
}

TEST(Schedule, BlockRunsPrintAndParse) {
  const BlockRun run{BlockRun::kBackward, 12};
  EXPECT_EQ(parse_block_run(to_string(run)).value(), run);
  EXPECT_EQ(parse_block_run("G0").error().message,
            "expected a block like 'F0' or 'B3' (F or B and a micro-batch), found 'G0'");
  EXPECT_FALSE(parse_block_run("F-1").has_value());
  EXPECT_FALSE(parse_block_run("F").has_value());
}

TEST(Schedule, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(make_schedule("1f2b", 0, 2, 2).error().message,
            "unknown schedule '1f2b', did you mean '1f1b'?");
  EXPECT_EQ(make_schedule("1f1b", 2, 2, 2).error().message, "expected a stage of 0..1, found 2");
  EXPECT_EQ(make_schedule("1f1b", 0, 2, 0).error().message, "expected micro_batches >= 1, found 0");
  const BlockRun f0{BlockRun::kForward, 0}, b0{BlockRun::kBackward, 0}, f1{BlockRun::kForward, 1};
  EXPECT_EQ(check_schedule({{f0, f0, b0}}, 1).error().message,
            "schedule of stage 0: F0 runs twice");
  EXPECT_EQ(check_schedule({{f0, b0}, {b0, f0}}, 1).error().message,
            "schedule of stage 1: B0 runs before F0");
  EXPECT_EQ(check_schedule({{f0}}, 1).error().message,
            "schedule of stage 0: B0 is missing (micro_batches = 1)");
  EXPECT_EQ(check_schedule({{f0, b0, f1}}, 1).error().message,
            "schedule of stage 0: F1 is outside micro_batches = 1");
}

TEST(Schedule, AnOrderThatWaitsForEverIsFound) {
  const BlockRun f0{BlockRun::kForward, 0}, b0{BlockRun::kBackward, 0};
  const BlockRun f1{BlockRun::kForward, 1}, b1{BlockRun::kBackward, 1};
  // Stage 1 wants the second micro-batch first, but stage 0 sends it only after the backward of the
  // first.
  const auto status = check_schedule_finishes({{f0, b0, f1, b1}, {f1, f0, b0, b1}});
  EXPECT_EQ(status.error().message, "the schedule never finishes: stage 0 waits for ever at B0");
}

}  // namespace
}  // namespace tessera
