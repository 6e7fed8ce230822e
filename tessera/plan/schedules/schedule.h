// Schedules of pipelines. A schedule says in which order each place runs its blocks. It has no
// times: a block starts when the place has run the blocks before it and has received what the
// block needs.
//
//   PipelineShape shape{.places = 2, .micro_batches = 3, .at = {{0}, {1}}};
//   make_schedule("1f1b", shape)   ->   place 0: F0 F1 B0 F2 B1 B2      place 1: F0 B0 F1 B1 F2 B2
//
// A place is a set of devices that run the same stages. For each micro-batch a stage has a forward
// block F and a backward block B. If the schedule splits the backward pass, the stage also has a
// block W; then B makes the gradient of the stage's input, and W makes the gradients of its
// weights. The rules and closed forms of the named schedules are in docs/strategies/pipelines.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// The stage number of a run whose text names no stage. It stands for the only stage of the
// place (complete_stages).
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
  // By stage: the stages that must have run the forward block of a micro-batch before this stage
  // runs its own. Backward blocks wait in the reverse direction. Empty: each stage waits for the
  // one before it.
  std::vector<std::vector<int64_t>> after = {};

  int64_t stages() const { return static_cast<int64_t>(at.size()); }
  bool has_backward(int64_t stage) const;
  // Returns `after` of the stage, or the stage before it if `after` is empty.
  std::vector<int64_t> before(int64_t stage) const;
  std::vector<int64_t> stages_of(int64_t place) const;  // stages that the place runs, ascending
  bool runs_at(int64_t stage, int64_t place) const;
};

using Schedule = std::vector<std::vector<BlockRun>>;  // by place

std::vector<std::string> schedule_names();
// Returns the named schedule for the shape, without backward blocks of stages that have none.
// Errors: an unknown name; a shape for which the schedule is not defined (the message says which
// shape is expected); an order that never finishes because of `after`.
Result<Schedule> make_schedule(std::string_view name, const PipelineShape& shape);

// Completes a schedule that a plan writes out. Every run without a stage (kOnlyStage) gets the only
// stage of its place; it is an error if the place has several or none. Backward runs of stages
// without a backward pass are left out, because the text of a plan may serve several models and
// optimizers, with which a stage has a backward pass or not (a stage with only a table that is
// updated by rows has none).
Result<Schedule> complete_stages(Schedule schedule, const PipelineShape& shape);

// Checks that each place of a stage runs every block of the stage once for each micro-batch, with F
// before B before W, and that a place runs no other block. W must run for all micro-batches of a
// stage or for none. An error names the place, the stage and the block, and says what is allowed.
Status check_schedule(const Schedule& schedule, const PipelineShape& shape);
// Checks the schedule as check_schedule does, and that no place waits forever if each place runs
// its blocks in order and waits for what a block needs. The error prints a cycle of places that
// wait for each other.
Status check_schedule_finishes(const Schedule& schedule, const PipelineShape& shape);

// Times of blocks, in seconds or any other unit.
struct UnitCosts {
  double forward = 1;
  double backward = 1;  // of a B run; if the schedule has W runs, only the gradient of the input
  double weight = 1;
  double message = 0;              // time for which one message occupies its link
  std::vector<double> scale = {};  // by stage: factor on the three costs of blocks; empty: 1
  // By stage: the factor on `backward` and `weight` in place of `scale`; empty: `scale` is used.
  std::vector<double> backward_scale = {};
};

// The times at which a place starts its first and ends its last run, and the time for which it
// computes.
struct PlaceTimes {
  double start = 0, end = 0, busy = 0;
  double bubble() const { return end - start - busy; }
};
// Returns the times of each place if the schedule is run. A place computes its blocks in order.
// The result of a block goes as one message to each other place that needs it. A message occupies
// the directed link between the two places for `message`. It starts at the end of the run, or
// later when the link is free, and does not delay computation (docs/strategies/pipelines.md
// section 4). A stage of several places starts at all of them at once. The schedule must pass the
// two checks above.
std::vector<PlaceTimes> place_times(const Schedule& schedule, const PipelineShape& shape,
                                    const UnitCosts& costs);
// Returns the time at which the last place ends.
double makespan(const Schedule& schedule, const PipelineShape& shape, const UnitCosts& costs);

// Returns for each place the largest number of micro-batches in flight at one time, summed over the
// stages of the place. A micro-batch is in flight at a stage from its forward block to its last
// backward block (W if there is one). A stage without a backward pass has none in flight.
std::vector<int64_t> in_flight(const Schedule& schedule, const PipelineShape& shape);

}  // namespace tessera
