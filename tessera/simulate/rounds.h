// Rounds of a schedule: between warm-up and drain a pipeline's schedule repeats the same runs of
// blocks with later micro-batches. Micro-batches of two sizes (program.h) have blocks of their own,
// so there are rounds of the larger ones and, after them, rounds of the smaller ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/simulate/engine.h"

namespace tessera::engine {

// A stretch of a schedule that repeats: from `first` on, run i + period is run i with `unit` later
// micro-batches.
struct Repetition {
  size_t first = 0, period = 0, periods = 0;
  int64_t unit = 1;
  size_t runs() const { return period * periods; }
  int64_t micro_batches() const { return static_cast<int64_t>(periods) * unit; }
};

// Micro-batches of one size that may be left out of a play, and in which steps.
struct Rounds {
  int64_t micro_batches = 0;  // in rounds, at every player
  int64_t unit = 1;           // of one round, or of as many as all players repeat after
  // By player, in the order of its schedule. With gpipe one repetition has the forward passes,
  // another the backward passes: micro-batches that are left out of one are left out of all.
  std::vector<std::vector<Repetition>> repetitions;
  bool smaller = false;  // of the smaller micro-batches
};
// Returns the rounds of each size that repeats at every player, in the order of the schedule; none
// if no size does.
std::shared_ptr<const std::vector<Rounds>> find_rounds(const Play& play);

// The schedules of a play, or their rest after rounds were left out.
struct Timetable {
  int64_t micro_batches = 1;
  std::vector<std::vector<Run>> schedules;  // by player
};
Timetable own_timetable(const Play& play);
// Returns the schedules without `left_out` micro-batches, a multiple of Rounds::unit and at most
// Rounds::micro_batches: takes the first rounds of each repetition out and renumbers later
// micro-batches. `rounds`: their places in `when`.
Timetable without_rounds(const Play& play, const Timetable& when, const Rounds& rounds,
                         int64_t left_out);
// Moves the rounds of all sizes to their places after rounds of `all[size]` were left out.
void shift_rounds(std::vector<Rounds>& all, size_t size, int64_t left_out);

}  // namespace tessera::engine
