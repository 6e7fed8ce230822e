// Finds facts about a pipeline's schedule: its bubble, and for each stage the number of
// micro-batches whose activations it holds. The schedule is made as for a run, and simulated with
// unit times (plan/schedules/schedule.h), so that no schedule needs a formula of its own.
//
//   ScheduleTable table;
//   const ScheduleFacts* facts = table.facts("1f1b", {4}, 64);
//   facts->bubble;     // 3: a place waits for as long as 3 micro-batches take there
//   facts->held;       // {4, 3, 2, 1}
//
// Stage c * places + q is chunk c of place q. Where micro-batches go through the places in slices,
// the facts assume equal slices, and a stage holds the activations of the slices that it has
// computed. If there are many micro-batches, only a few are simulated, because the steady state of
// a schedule repeats.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/plan/schedules/schedule.h"

namespace tessera {

// A schedule of slices, and its counterpart for whole micro-batches.
struct SliceSchedule {
  const char *of_slices, *of_wholes;
};
inline constexpr SliceSchedule kSliceSchedules[] = {{"token", "gpipe"}, {"token_1f1b", "1f1b"}};
// Returns the row of kSliceSchedules whose schedule of slices has that name; null if there is none.
const SliceSchedule* slice_schedule(const std::string& name);

struct ScheduleFacts {
  // The time for which a place waits in a step, divided by its time for a micro-batch (all chunks,
  // forward and backward). It assumes that all stages take equal time, and that a backward pass
  // takes twice as long as a forward pass.
  double bubble = 0;
  // By stage: the most micro-batches whose activations the stage holds at a time. A micro-batch
  // counts half if only the part of its backward pass that makes gradients of weights is missing.
  std::vector<double> held;
  // Whether the schedule has a separate block for the gradients of weights. Searches do not combine
  // such schedules with recomputation, because recomputed activations would have to be held until
  // that block runs.
  bool splits_backward = false;
};

struct PipelineSize {
  int64_t places = 1;
  int64_t chunks = 1;  // stages of a place
  int64_t slices = 0;  // slices of a micro-batch; 0: micro-batches go through the places whole
  friend auto operator<=>(const PipelineSize&, const PipelineSize&) = default;
};

// The time that each stage takes for a micro-batch, and the time of a message from one place
// to another.
struct StageTimes {
  std::vector<double> forward_s, backward_s;  // by stage
  double message_s = 0;
};

class ScheduleTable {
 public:
  // Returns the facts, or null if the schedule cannot be made for this size and so
  // many micro-batches.
  const ScheduleFacts* facts(const std::string& schedule, const PipelineSize& size,
                             int64_t micro_batches);

  // Returns the seconds of a step in which the stages take the given times. Each place runs its
  // blocks in the order of the schedule, each block as soon as its inputs have arrived. If there
  // are many micro-batches, simulates a few and adds for each further one the time of the slowest
  // place. Needs micro-batches without slices, and an earlier call of facts() with equal arguments.
  double play(const std::string& schedule, const PipelineSize& size, int64_t micro_batches,
              const StageTimes& times);

 private:
  struct Question {
    std::string schedule;
    PipelineSize size;
    int64_t micro_batches = 1;
    friend auto operator<=>(const Question&, const Question&) = default;
  };
  std::map<Question, std::optional<ScheduleFacts>> known_;
  std::map<Question, Schedule> made_;  // schedules of play()
};

}  // namespace tessera
