// Steady-state extrapolation over micro-batches. Between warm-up and drain a pipeline's schedule
// repeats itself: the same runs of blocks again, with later micro-batches. A play of many such
// rounds is played with three smaller numbers of rounds; if the second difference of every player's
// times vanishes, what the rounds that are left out take is counted instead of played.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/simulate/stretch.h"

namespace tessera::engine {

// Relative second difference up to which rounds count as equally long.
inline constexpr double kEqualRounds = 1e-4;

// A stretch of a schedule: from `first` on, run i + period is run i with `unit` later
// micro-batches.
struct Repetition {
  size_t first = 0, period = 0, periods = 0;
  int64_t unit = 1;
  size_t runs() const { return period * periods; }
  int64_t micro_batches() const { return static_cast<int64_t>(periods) * unit; }
};

// How many micro-batches may be left out of a play, and in which steps.
struct Rounds {
  int64_t micro_batches = 0;  // in rounds, at every player
  int64_t unit = 1;           // of one round, or of as many as all players repeat after
  std::vector<std::vector<Repetition>> repetitions;  // by player
};
// Nothing if some player's schedule does not repeat.
std::optional<Rounds> find_rounds(const Play& play);

// The play with `left_out` micro-batches less, a multiple of Rounds::unit and at most
// Rounds::micro_batches: rounds are taken out and later micro-batches renumbered.
Timetable without_rounds(const Play& play, const Rounds& rounds, int64_t left_out);

class SteadyPlay {
 public:
  explicit SteadyPlay(const Play& play);  // outlives it

  // As run(), without critical path and events. Plays everything where rounds are few or not
  // equally long, or where jitter makes each its own.
  Result<Outcome> run();

  // What each further micro-batch adds to the time of a step like `whole`, the outcome of the play:
  // what the last rounds add to plays without them. Nothing where rounds are too few or not equally
  // long.
  Result<std::optional<double>> micro_batch_time(const Outcome& whole);

 private:
  const std::optional<Rounds>& rounds();
  Result<Outcome> run_whole();
  Result<Outcome> run_without(int64_t left_out);

  const Play& play_;
  Texts texts_;
  bool known_ = false;  // rounds_ has been looked for
  std::optional<Rounds> rounds_;
};

}  // namespace tessera::engine
