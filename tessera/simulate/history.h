// The past of the players, which is kept only if a critical path is asked for, and the path itself.
// Rounds that were counted and not played (round_counter.h) are in it once, with the number of
// times that they happen: both the history and the path have a size that does not grow with the
// number of such rounds.
//
//   History history(players);
//   history.add(p, span);  // each span of a player begins where the one before it ends
//   const auto before = history.sizes();
//   ...
//   history.repeat(before, history.sizes(), 100, 0.5);
//   const std::vector<PathPart> path = critical_path(history, run_items, p, end_s);
#pragma once

#include <vector>

#include "tessera/simulate/stretch.h"

namespace tessera::engine {

// Two times count as equal if they differ by at most this fraction of the time since the step
// began.
inline constexpr double kSameTime = 1e-12;

// A `Span` is an interval of a player's past and what the player did in it. The spans of a player
// follow each other without gaps.
struct Span {
  double start = 0, end = 0;
  Spent what = Spent::kCompute;
  int32_t label = 0;
  int32_t cause = -1;  // kBubble: the player that was waited for and came at the end of the span
  // If run_items >= 0, the span is a stretch (stretch.h): the items [from, to) of these run items,
  // which began with the host clock `h` and the device's time `d`. `beside` is enough of its
  // manner, because stretches are not rigid if a critical path is asked for.
  int32_t run_items = -1, from = 0, to = 0;
  double h = 0, d = 0;
  Beside beside = Beside::kNothing;
};

class History {
 public:
  // Spans that happen again, right after they have happened: the spans [first, end) of each player.
  // The k-th further time they begin k x `period_s` later. All spans after them have times as if
  // they happened once.
  struct Repeat {
    std::vector<size_t> first, end;  // by player
    int64_t times = 0;
    double period_s = 0;
  };

  explicit History(size_t players) : spans_(players), closed_(players, 0) {}
  size_t players() const { return spans_.size(); }
  // Adds a span. It becomes a part of the player's last span if both are of one kind.
  void add(int32_t player, const Span& span);
  // Returns the number of spans of each player. Later spans do not become a part of these.
  std::vector<size_t> sizes();
  // Says that what was added between the sizes `first` and `end` happens `times` more times. Calls
  // must be in the order of time, and parts of the past must not overlap.
  void repeat(std::vector<size_t> first, std::vector<size_t> end, int64_t times, double period_s) {
    repeats_.push_back({std::move(first), std::move(end), times, period_s});
  }
  const std::vector<Span>& spans(int32_t player) const {
    return spans_[static_cast<size_t>(player)];
  }
  const std::vector<Repeat>& repeats() const { return repeats_; }

 private:
  std::vector<std::vector<Span>> spans_;  // by player
  std::vector<size_t> closed_;            // by player: number of spans that nothing is added to
  std::vector<Repeat> repeats_;
};

// Returns the critical path to the time `end_s`, at which this player ends. The path is followed
// backwards. Where a player was in a bubble, the path goes on at the player that was waited for.
std::vector<PathPart> critical_path(const History& history, const RunItemsTable& run_items,
                                    int32_t player, double end_s);

}  // namespace tessera::engine
