// Texts, checks and their errors. The named schedules: schedules/schedules_test.cc.
#include "tessera/plan/schedules/schedule.h"

#include <gtest/gtest.h>

#include "tessera/base/text.h"
#include "tessera/plan/schedules/test_shapes.h"

namespace tessera {
namespace {

using schedules::chunks;
using schedules::embedded;
using schedules::text;
using schedules::v_shape;

// Returns rows of blocks, "F0 B0"; stages that are left out are those of the shape.
Schedule rows(const std::vector<std::string>& lines, const PipelineShape& shape) {
  Schedule out;
  for (const std::string& line : lines) {
    auto& row = out.emplace_back();
    for (const std::string& word : split_text(line, ' ')) {
      row.push_back(parse_block_run(word).value());
    }
  }
  return complete_stages(out, shape).value();
}
std::string check(const std::vector<std::string>& lines, const PipelineShape& shape) {
  const auto status = check_schedule(rows(lines, shape), shape);
  return status ? "" : status.error().message;
}
std::string finish(const std::vector<std::string>& lines, const PipelineShape& shape) {
  const auto status = check_schedule_finishes(rows(lines, shape), shape);
  return status ? "" : status.error().message;
}
std::string refusal(std::string_view name, const PipelineShape& shape) {
  const auto schedule = make_schedule(name, shape);
  return schedule ? "" : schedule.error().message;
}

TEST(Schedule, Orders) {
  EXPECT_EQ(text(make_schedule("1f1b", chunks(2, 1, 3)).value()[0]),
            "F0@0 F1@0 B0@0 F2@0 B1@0 B2@0");
  EXPECT_EQ(text(make_schedule("gpipe", chunks(2, 1, 2)).value()[1]), "F0@1 F1@1 B0@1 B1@1");
  EXPECT_EQ(text(make_schedule("interleaved", chunks(2, 2, 2)).value()[1]),
            "F0@1 F1@1 F0@3 B0@3 F1@3 B1@3 B0@1 B1@1");
}

TEST(Schedule, BlockRunsPrintAndParse) {
  for (const std::string word : {"F0", "B12", "W3", "F0@4", "W7@11"}) {
    EXPECT_EQ(to_string(parse_block_run(word).value()), word);
  }
  EXPECT_EQ(parse_block_run("W3@5").value(), (BlockRun{BlockRun::kWeight, 3, 5}));
  EXPECT_EQ(parse_block_run("B3").value(), (BlockRun{BlockRun::kBackward, 3, kOnlyStage}));
  for (const std::string word : {"", "F", "F-1", "G0", "F0@", "F@1", "F0@-1", "F0@1@2", "0"}) {
    EXPECT_FALSE(parse_block_run(word).has_value()) << word;
  }
}

TEST(Schedule, ShapesThatAScheduleIsNotMadeFor) {
  EXPECT_EQ(refusal("1f2b", chunks(2, 1, 2)), "unknown schedule '1f2b', did you mean '1f1b'?");
  EXPECT_EQ(refusal("1f1b", chunks(2, 1, 0)), "expected micro_batches >= 1, found 0");
  EXPECT_EQ(refusal("1f1b", chunks(2, 2, 2)),
            "schedule '1f1b': expected one stage at each place, found 2 at place 0");
  EXPECT_EQ(refusal("interleaved", chunks(4, 2, 6)),
            "schedule 'interleaved': expected micro_batches of 4, 8, 12, ... (a multiple of the 4 "
            "places), found 6");
  EXPECT_EQ(refusal("interleaved", v_shape(2, 2)),
            "schedule 'interleaved': expected stage 2 at place 0, found place 1");
  EXPECT_EQ(refusal("zb_v", chunks(2, 2, 2)),
            "schedule 'zb_v': expected stage 2 at place 1, found place 0");
  EXPECT_EQ(refusal("chimera", v_shape(3, 2)),
            "schedule 'chimera': expected an even number of places, found 3");
  EXPECT_EQ(refusal("nf1b", chunks(2, 2, 2)),
            "schedule 'nf1b': expected stages 1..1 without backward, found a backward of stage 1");
  EXPECT_EQ(refusal("interlaced", chunks(2, 2, 2)),
            "schedule 'interlaced': expected 2 stages of one place each, found one more, stage 2");
  PipelineShape outside = chunks(2, 1, 2);
  outside.at[1] = {2};
  EXPECT_EQ(refusal("1f1b", outside), "pipeline: stage 1: expected a place of 0..1, found 2");
}

TEST(Schedule, IncompleteTablesAreFound) {
  const PipelineShape one = chunks(1, 1, 1);
  EXPECT_EQ(check({"F0 F0 B0"}, one), "schedule of place 0: F0@0 runs twice");
  EXPECT_EQ(check({"F0 B0", "B0 F0"}, chunks(2, 1, 1)),
            "schedule of place 1: B0@1 runs before F0@1");
  EXPECT_EQ(check({"F0 W0 B0"}, one), "schedule of place 0: W0@0 runs before B0@0");
  EXPECT_EQ(check({"F0"}, one), "schedule of place 0: B0@0 is missing (micro_batches = 1)");
  EXPECT_EQ(check({"F0 F1 B0 W0 B1"}, chunks(1, 1, 2)),
            "schedule of place 0: W1@0 is missing (micro_batches = 2): W runs for all "
            "micro-batches of a stage or none");
  EXPECT_EQ(check({"F0 B0 F1"}, one),
            "schedule of place 0: F1@0 is outside micro_batches = 1: expected 0..0");
  EXPECT_EQ(check({"F0 B0 F0@1"}, chunks(2, 1, 1)),
            "expected 2 lists in 'schedule' (one a place), found 1");
  EXPECT_EQ(check({"F0 B0 F0@1", "F0 B0"}, chunks(2, 1, 1)),
            "schedule of place 0: F0@1 is of a stage that is not at this place, which has 0");
  PipelineShape forward_only = one;
  forward_only.backward = {false};
  EXPECT_EQ(check({"F0"}, forward_only), "");
  // Runs that a plan writes for a backward pass that does not exist are left out; in a finished
  // schedule they are an error.
  const Schedule written = {{{BlockRun::kForward, 0, 0}, {BlockRun::kBackward, 0, 0}}};
  EXPECT_EQ(text(complete_stages(written, forward_only).value()[0]), "F0@0");
  const Status strict = check_schedule(written, forward_only);
  ASSERT_FALSE(strict.has_value());
  EXPECT_EQ(strict.error().message,
            "schedule of place 0: B0@0 is of a stage without backward, which runs only F");
  EXPECT_EQ(
      complete_stages({{{BlockRun::kForward, 0, kOnlyStage}}}, chunks(1, 2, 1)).error().message,
      "schedule of place 0: F0 names no stage: expected one of @0, @1");
}

TEST(Schedule, OrdersThatNeverFinishPrintTheCycle) {
  // Place 1 wants the second micro-batch first, place 0 sends it only after the first's backward.
  EXPECT_EQ(finish({"F0 B0 F1 B1", "F1 F0 B0 B1"}, chunks(2, 1, 2)),
            "the schedule never finishes: place 0 waits at B0@0 for B0@1 of place 1, which waits "
            "at F1@1 for F1@0 of place 0");
  // Three places.
  EXPECT_EQ(finish({"F0 B0 F1 B1", "F0 F1 B0 B1", "F0 F1 B0 B1"}, chunks(3, 1, 2)),
            "the schedule never finishes: place 0 waits at B0@0 for B0@1 of place 1, which waits "
            "at F1@1 for F1@0 of place 0");
  EXPECT_EQ(finish({"F0 F1 B0 B1", "F0 B0 F1 B1", "F0 F1 B0 B1"}, chunks(3, 1, 2)),
            "the schedule never finishes: place 1 waits at B0@1 for B0@2 of place 2, which waits "
            "at F1@2 for F1@1 of place 1");
  // A place that waits for itself: its second chunk before its first.
  EXPECT_EQ(finish({"F0@1 F0@0 B0@1 B0@0"}, chunks(1, 2, 1)),
            "the schedule never finishes: place 0 waits at F0@1 for F0@0 of place 0");
  // Places that meet in two spanning stages in different order.
  PipelineShape meeting = embedded(2, {0, 0}, 1);
  meeting.backward.assign(4, false);
  meeting.after = {{}, {}, {0, 1}, {2}};
  EXPECT_EQ(finish({"F0@0 F0@1 F0@2", "F0@1 F0@0 F0@3"}, meeting),
            "the schedule never finishes: place 0 waits at F0@0 for F0@0 of place 1, which waits "
            "at F0@1 for F0@1 of place 0");
  EXPECT_EQ(finish({"F0@0 F0@1 F0@2", "F0@0 F0@1 F0@3"}, meeting), "");
  // Stages that wait for each other.
  PipelineShape circular = chunks(2, 1, 1);
  circular.after = {{1}, {0}};
  EXPECT_EQ(refusal("1f1b", circular),
            "the schedule never finishes: place 0 waits at F0@0 for F0@1 of place 1, which waits "
            "at F0@1 for F0@0 of place 0");
}

}  // namespace
}  // namespace tessera
