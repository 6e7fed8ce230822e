// Steady-state extrapolation over micro-batches. Between warm-up and drain a pipeline's schedule
// repeats itself: the same runs of blocks again, with later micro-batches. A play of many such
// rounds is played with three smaller numbers of rounds; if the second difference of every player's
// times vanishes, what the rounds that are left out take is counted instead of played.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/simulate/engine.h"

namespace tessera::engine {

// Relative second difference up to which rounds count as equally long.
inline constexpr double kEqualRounds = 1e-4;

// How many micro-batches may be left out of a play, and in which steps.
struct Rounds {
  int64_t micro_batches = 0;  // in rounds, at every player
  int64_t unit = 1;           // of one round, or of as many as all players repeat after
};
// Nothing if some player's schedule does not repeat.
std::optional<Rounds> find_rounds(const Play& play);

// The play with `left_out` micro-batches less, a multiple of Rounds::unit and at most
// Rounds::micro_batches: rounds are taken out and later micro-batches renumbered.
Play without_rounds(const Play& play, int64_t left_out);

// As run(), without critical path and events. Plays everything where rounds are few or not equally
// long, or where jitter makes each its own.
Result<Outcome> run_steady(const Play& play);

// What each further micro-batch adds to the time of a step like `whole`, the outcome of the play:
// what the last rounds add to plays without them. Nothing where rounds are too few or not equally
// long.
Result<std::optional<double>> micro_batch_time(const Play& play, const Outcome& whole);

}  // namespace tessera::engine
