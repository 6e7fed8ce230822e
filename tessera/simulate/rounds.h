// Rounds of a schedule. After its warm-up and before its drain, a pipeline's schedule repeats the
// same runs of blocks with later micro-batches; a round is one such period. If micro-batches have
// two sizes (program.h), each size has blocks of its own, so there are rounds of the larger
// micro-batches and, after these, rounds of the smaller ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/simulate/engine.h"

namespace tessera::engine {

// A part of one player's schedule that repeats. It begins at run `first` and has `periods` periods
// of `period` runs each. Run i + period is the same block as run i, for the micro-batch whose
// number is larger by `unit`.
struct Repetition {
  size_t first = 0, period = 0, periods = 0;
  int64_t unit = 1;
  size_t runs() const { return period * periods; }
  int64_t micro_batches() const { return static_cast<int64_t>(periods) * unit; }
};

// The rounds for one size of micro-batches at all players. Micro-batches of rounds may be left out
// of a play, a multiple of `unit` at a time.
struct Rounds {
  int64_t micro_batches = 0;  // number of micro-batches that are in rounds at every player
  int64_t unit = 1;           // number of micro-batches after which all players repeat
  // By player, in the order of its schedule. A player may have several: with gpipe one repetition
  // has the forward passes and another the backward passes. A micro-batch that is left out of one
  // repetition must be left out of all.
  std::vector<std::vector<Repetition>> repetitions;
  bool smaller = false;  // of the smaller micro-batches
};
// Returns the rounds for each size of micro-batches whose runs repeat at every player, in the order
// of the schedule. The list is empty if there is no such size.
std::shared_ptr<const std::vector<Rounds>> find_rounds(const Play& play);

// The schedules of all players of a play, perhaps without some rounds.
struct Timetable {
  int64_t micro_batches = 1;
  std::vector<std::vector<Run>> schedules;  // by player
};
Timetable own_timetable(const Play& play);
// Returns the schedules `when` without `left_out` micro-batches: removes the first rounds of each
// repetition and gives later micro-batches smaller numbers. `left_out` must be a multiple of
// Rounds::unit and at most Rounds::micro_batches. `rounds` must have the positions of the rounds in
// `when`.
Timetable without_rounds(const Play& play, const Timetable& when, const Rounds& rounds,
                         int64_t left_out);
// Changes the positions in `all`, the rounds of all sizes, to those in the schedules from which
// `left_out` micro-batches of the rounds all[size] were removed.
void shift_rounds(std::vector<Rounds>& all, size_t size, int64_t left_out);

}  // namespace tessera::engine
