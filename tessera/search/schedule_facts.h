// Facts about a pipeline's schedule beside the work itself: its bubble, and how many micro-batches'
// activations each stage holds. The schedule that will run is made and played with unit times
// (plan/schedule.h), so that every schedule has its facts without a formula of its own.
//
//   ScheduleTable table;
//   const ScheduleFacts* facts = table.facts("1f1b", {4}, 64);
//   facts->bubble;     // 3: passes of a micro-batch through a place, in which it waits
//   facts->held;       // {4, 3, 2, 1}
//
// Stage c * places + q is chunk c of place q. Where micro-batches go through the places in slices,
// the facts are those of equal slices, and a stage holds the part of them that it has seen. Many
// micro-batches are played as few of them: their steady state repeats.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/plan/schedule.h"

namespace tessera {

struct ScheduleFacts {
  // The time that a place waits in a step, in units of its time for a micro-batch (all its chunks,
  // forward and backward), if all stages take equal time and the backward pass twice the forward's.
  double bubble = 0;
  // By stage: micro-batches whose activations it holds at the most. A micro-batch of which only the
  // weights' part of the backward pass is missing holds half.
  std::vector<double> held;
  // Whether the schedule has a block of its own for the gradients of weights. Where that block
  // waits, recomputed activations would have to be held for it meanwhile.
  bool splits_backward = false;
};

struct PipelineSize {
  int64_t places = 1;
  int64_t chunks = 1;  // stages of a place
  int64_t slices = 0;  // of a micro-batch; 0: it goes through the places whole
  friend auto operator<=>(const PipelineSize&, const PipelineSize&) = default;
};

// The time that each stage takes for a micro-batch, and the time of its output on the way to
// another place.
struct StageTimes {
  std::vector<double> forward_s, backward_s;  // by stage
  double message_s = 0;
};

class ScheduleTable {
 public:
  // Returns the facts. Null: the schedule cannot be made for this size and so many micro-batches.
  const ScheduleFacts* facts(const std::string& schedule, const PipelineSize& size,
                             int64_t micro_batches);

  // Returns the seconds of the schedule where stages take times of their own: a place runs its row
  // in order, each run as soon as its inputs have arrived. If there are many micro-batches, the
  // first ones are played, and the others take what the slowest place needs for them. Needs an
  // earlier facts() with the same arguments, and whole micro-batches.
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
  std::map<Question, Schedule> made_;  // of the questions that were played
};

}  // namespace tessera
