// Schedules: a schedule is the order in which each place of a pipeline runs its blocks. It is only
// an order; when a block really starts follows from what it waits for.
//
//   PipelineShape shape{.places = 2, .micro_batches = 3, .at = {{0}, {1}}};
//   make_schedule("1f1b", shape)   ->   place 0: F0 F1 B0 F2 B1 B2      place 1: F0 B0 F1 B1 F2 B2
//
// A place is a set of devices that runs the same stages. Blocks of a stage, for each micro-batch:
// the forward F, the backward B, and, if the schedule splits the backward, W: then B makes the
// gradient of the stage's input and W those of its weights. The rules and closed forms of the named
// schedules are in docs/strategies/pipelines.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// The stage of a run whose text names no stage: the only stage of its place (complete_stages).
inline constexpr int64_t kOnlyStage = -1;

struct BlockRun {
  enum Kind : uint8_t { kForward, kBackward, kWeight } kind = kForward;
  int64_t micro_batch = 0;
  int64_t stage = 0;
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

std::string to_string(const BlockRun& run);               // "F0@5"; "F0" if stage is kOnlyStage
Result<BlockRun> parse_block_run(std::string_view text);  // the inverse

struct PipelineShape {
  int64_t places = 1, micro_batches = 1;
  // By stage: the places that run it. A stage of several places is run by all of them together.
  std::vector<std::vector<int64_t>> at = {};
  // By stage: whether it has a backward block. Empty: every stage has one.
  std::vector<bool> backward = {};
  // By stage: the stages whose forward of the same micro-batch must have run before; the backward
  // edges are the same, reversed. Empty: the chain 0, 1, 2, ...
  std::vector<std::vector<int64_t>> after = {};

  int64_t stages() const { return static_cast<int64_t>(at.size()); }
  bool has_backward(int64_t stage) const;
  std::vector<int64_t> before(int64_t stage) const;     // `after`, or the chain
  std::vector<int64_t> stages_of(int64_t place) const;  // ascending
  bool runs_at(int64_t stage, int64_t place) const;
};

using Schedule = std::vector<std::vector<BlockRun>>;  // by place

std::vector<std::string> schedule_names();
// Returns the named schedule. Errors: an unknown name; a shape for which the schedule is not made
// (the message names the right one); an order that cannot finish because of the shape's `after`
// edges. Runs of blocks that a stage does not have are left out.
Result<Schedule> make_schedule(std::string_view name, const PipelineShape& shape);

// Completes a schedule that a plan writes out: gives every run without a stage (kOnlyStage) the
// only stage of its place, and leaves out backward runs of stages without a backward pass. Whether
// a stage has one depends on the model and on its optimizer (a stage with only a table that is
// updated by rows has none), and plans are written for both.
Result<Schedule> complete_stages(Schedule schedule, const PipelineShape& shape);

// Checks that every block of every stage runs once for each micro-batch at each place of the stage,
// F before B before W, and that nothing else runs. W must run for all micro-batches of a stage or
// for none. Errors name place, stage and block and what is allowed.
Status check_schedule(const Schedule& schedule, const PipelineShape& shape);
// Checks that the places reach their ends if each runs its row in order and waits for what a block
// needs. The error prints a cycle of places that wait for each other.
Status check_schedule_finishes(const Schedule& schedule, const PipelineShape& shape);

// Times of blocks, in seconds or any other unit.
struct UnitCosts {
  double forward = 1;
  double backward = 1;  // of a B run: the input part only, where the schedule has W runs
  double weight = 1;
  double message = 0;              // time for which one message occupies its link
  std::vector<double> scale = {};  // by stage: factor on the three block costs; empty: 1 each
  // By stage: the factor on backward and weight, if it differs from that on forward; empty:
  // `scale`.
  std::vector<double> backward_scale = {};
};

// The times at which a place starts its first and ends its last run, and the time for which it
// computes.
struct PlaceTimes {
  double start = 0, end = 0, busy = 0;
  double bubble() const { return end - start - busy; }
};
// Runs the schedule: a place computes its row in order; the result of a run goes to each other
// place that needs it as one message, which occupies the directed link between the two places from
// the end of the run or from when the link is free, concurrently with computation
// (docs/strategies/pipelines.md section 4). A stage of several places starts at all of them
// at once. The schedule must pass the two checks.
std::vector<PlaceTimes> place_times(const Schedule& schedule, const PipelineShape& shape,
                                    const UnitCosts& costs);
double makespan(const Schedule& schedule, const PipelineShape& shape, const UnitCosts& costs);

// Returns by place the largest number of micro-batches that its stages hold together. A stage holds
// a micro-batch from its forward to the last part of its backward; a stage without backward holds
// none.
std::vector<int64_t> in_flight(const Schedule& schedule, const PipelineShape& shape);

}  // namespace tessera
