// Rounds of a schedule. After its warm-up and before its drain, a pipeline's schedule repeats the
// same runs of blocks with later micro-batches; a round is one such period. If micro-batches have
// two sizes (program.h), each size has blocks of its own, so there are rounds of the larger
// micro-batches and, after these, rounds of the smaller ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/small_vector.h"
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

// The schedules of all players of a play, perhaps without some rounds. It reads the schedules of the
// play, so that it is small however many runs they have.
class Timetable {
 public:
  explicit Timetable(const Play& play);  // whole; `play` must outlive the object
  int64_t micro_batches() const { return micro_batches_; }
  size_t size(int32_t player) const { return of(player).size; }  // number of runs
  Run run(int32_t player, size_t position) const;
  // Returns the position of the first (the last) run of a block; -1: it does not run.
  int32_t first(int32_t player, size_t block) const { return of(player).first[block]; }
  int32_t last(int32_t player, size_t block) const { return of(player).last[block]; }
  // Removes the first rounds of each repetition and gives later micro-batches smaller numbers.
  // `left_out` is a number of micro-batches: a multiple of Rounds::unit and at most
  // Rounds::micro_batches. `rounds` must have the positions that the rounds have now.
  void leave_out(const Rounds& rounds, int64_t left_out);

 private:
  struct Gone {  // runs that are left out: position of the first in the play's schedule, number
    size_t first = 0, runs = 0;
  };
  // From this position in the play's schedule on, micro-batches have numbers that are so much
  // smaller.
  struct Shift {
    size_t from = 0;
    int64_t micro_batches = 0;
  };
  struct OfPlayer {
    const Player* player = nullptr;
    size_t size = 0;
    std::vector<int32_t> first, last;                // by block
    std::vector<Gone> gone;                          // in the order of positions
    std::vector<SmallVector<Shift, 2>> shifts = {};  // by block
  };
  const OfPlayer& of(int32_t player) const { return players_[static_cast<size_t>(player)]; }
  // Returns the position in the play's schedule of the run that is at this position now.
  static size_t whole(const OfPlayer& one, size_t position);

  int64_t micro_batches_;
  std::vector<OfPlayer> players_;
};
// Changes the positions in `all`, the rounds of all sizes, to those in the schedules from which
// `left_out` micro-batches of the rounds all[size] were removed.
void shift_rounds(std::vector<Rounds>& all, size_t size, int64_t left_out);

}  // namespace tessera::engine
