// Counts rounds (rounds.h) that repeat exactly instead of playing them. It watches
// a scene and marks what it is like once a round; the engine tells it of what it must know.
#pragma once

#include <limits>
#include <vector>

#include "tessera/simulate/engine_state.h"

namespace tessera::engine {

// A `Mark` is a description of a scene at one time, for the comparison of rounds. Two marks are compared by `words`,
// `times` and `hosts`.
struct Mark {
  double time = 0;
  int64_t round = 0;            // the round that the watched player is in
  std::vector<int64_t> words;   // what players and transfers are doing
  std::vector<double> times;    // when that began and how much is left, relative to `time`
  std::vector<double> hosts;    // by player: the host's clock, relative to `time`
  std::vector<double> results;  // the results of all players until `time`
  size_t stretches = 0;         // number of stretches that were played until `time`
  std::vector<size_t> spans;    // by player: number of spans of its past, if the path is asked for
};

class RoundCounter {
 public:
  // Makes a counter. With `counts` it counts rounds where it can; else all of them are played.
  RoundCounter(Scene& scene, bool counts);
  // Notes that a player begins a run, that a transfer is made, that a stretch was played.
  void run_begins(int32_t p) {
    if (p == watched_) watch_run(p);
  }
  void transfer_begins(int32_t t) {
    if (watched_ >= 0) open_.push_back(t);
  }
  void stretch_ends(const PlayedStretch& stretch) {
    if (watched_ >= 0) played_stretches_.push_back(stretch);
  }
  // Makes a mark if one is due before the scene moves on to this time.
  void before(double time) {
    if (time > mark_due_) take_mark();
  }
  // Notes that the scene has ended.
  void end() {
    while (watched_ >= 0) watch_next();
  }
  // Returns whether the scene is invalid because rounds were left out of one repetition of the
  // schedule, but the time that they take in a later repetition was not found.
  bool lost_count() const { return lost_count_; }

 private:
  void watch_next();
  const Rounds& rounds() const { return rounds_[watch_.size]; }
  const Repetition& repetition(int32_t p) const {
    return rounds().repetitions[static_cast<size_t>(p)][watch_.repetition];
  }
  size_t runs_a_round(int32_t p) const;
  void watch_run(int32_t p);
  int64_t rounds_ahead() const;
  void take_mark();
  void note_player(int32_t p, Mark& mark) const;
  int64_t relative_micro_batch(const Transfer& one, int64_t round) const;
  void note_transfers(Mark& mark);
  void note_parts(const Transfer& one, Mark& mark) const;
  void note_posts(Mark& mark) const;
  bool repeats(const Mark& before, const Mark& now) const;
  int64_t rounds_to_leave_out(int64_t ahead) const;
  void count_again(const Mark& before, const Mark& now, int64_t times);
  void leave_out(int64_t micro_batches);

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  Scene& scene_;
  struct Watch {
    size_t size = 0, repetition = 0;  // index into rounds_, and into the repetitions of each player
  };
  std::vector<Watch> to_watch_;  // the next one is at the end
  Watch watch_;                  // the repetition that is watched now
  int32_t watched_ = -1;         // the player at whose rounds marks are made; -1: none
  std::vector<Rounds> rounds_;   // with their positions in the present, shortened schedules
  // By index into rounds_: the number of micro-batches that were left out. `due_`: the time that
  // they would have taken in the watched repetition is still to be added.
  std::vector<int64_t> left_out_;
  bool due_ = false, lost_count_ = false;
  // Time of the next mark, and the time after which everything that happens at that time has
  // happened, so that the mark can be made.
  double mark_at_ = 0, mark_due_ = kNever;
  std::vector<Mark> marks_;
  std::vector<int32_t> open_;                    // all transfers that are not over, and some others
  std::vector<PlayedStretch> played_stretches_;  // those played while a player is watched
};

}  // namespace tessera::engine
