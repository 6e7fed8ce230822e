// Steady-state extrapolation over micro-batches. Between warm-up and drain a pipeline's schedule
// repeats itself: the same runs of blocks again, with later micro-batches. A play of many such
// rounds is played with three smaller numbers of rounds; if the second difference of every player's
// times vanishes, what the rounds that are left out take is counted instead of played.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/simulate/rounds.h"
#include "tessera/simulate/stretch.h"

namespace tessera::engine {

// Relative second difference up to which rounds count as equally long.
inline constexpr double kEqualRounds = 1e-4;

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
  const Rounds* rounds();  // null: none, or of two sizes
  bool has_two_sizes() const;
  Result<Outcome> run_whole();
  Result<Outcome> run_without(int64_t left_out);

  const Play& play_;
  RunItemsTable run_items_;
  bool known_ = false;  // rounds_ has been looked for
  std::shared_ptr<const std::vector<Rounds>> rounds_;
};

}  // namespace tessera::engine
