#include "tessera/simulate/steady.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::engine {
namespace {

constexpr int64_t kMostUnit = 64;        // micro-batches of a round
constexpr size_t kLeastPeriods = 3;      // from so many on a stretch of a schedule is a repetition
constexpr int64_t kLeastRuns = 1500;     // of blocks, all players': below, a play is quick anyway
constexpr int64_t kLeastKept = 4;        // micro-batches in rounds
constexpr int64_t kLeastDifference = 2;  // micro-batches between two plays

// A stretch of a schedule: from `first` on, run i + period is run i with `unit` later
// micro-batches.
struct Repetition {
  size_t first = 0, period = 0, periods = 0;
  int64_t unit = 1;
  size_t runs() const { return period * periods; }
  int64_t micro_batches() const { return static_cast<int64_t>(periods) * unit; }
};

// One player's schedule.
class Pattern {
 public:
  explicit Pattern(const Player& player) : schedule_(player.schedule) {
    for (size_t i = 0; i < schedule_.size(); ++i) {
      position_[{schedule_[i].block, schedule_[i].micro_batch}] = i;
      ++count_[schedule_[i].block];
    }
  }

  // Repetitions that have each block with several runs exactly once among them; the longest first.
  std::vector<Repetition> repetitions() const {
    std::vector<Repetition> all;
    for (size_t i = 0; i < schedule_.size();) {
      const Repetition found = longest_from(i);
      if (found.periods >= kLeastPeriods) all.push_back(found);
      i = found.periods >= kLeastPeriods ? found.first + found.runs() : i + 1;
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.runs() > b.runs(); });
    std::vector<Repetition> chosen;
    std::map<int32_t, bool> covered;
    for (const Repetition& one : all) {
      bool free = true;
      for (size_t i = one.first; i < one.first + one.period; ++i) {
        free = free && !covered[schedule_[i].block];
      }
      if (!free) continue;
      for (size_t i = one.first; i < one.first + one.period; ++i) {
        covered[schedule_[i].block] = true;
      }
      chosen.push_back(one);
    }
    const bool whole = std::all_of(count_.begin(), count_.end(), [&](const auto& block) {
      return block.second == 1 || covered[block.first];
    });
    return whole ? chosen : std::vector<Repetition>{};
  }

 private:
  Repetition longest_from(size_t first) const {
    Repetition best;
    const Run& run = schedule_[first];
    for (int64_t unit = 1; unit <= kMostUnit; ++unit) {
      const auto next = position_.find({run.block, run.micro_batch + unit});
      if (next == position_.end()) break;
      if (next->second <= first) continue;
      const size_t period = next->second - first;
      size_t i = first;
      while (i + period < schedule_.size() && schedule_[i + period].block == schedule_[i].block &&
             schedule_[i + period].micro_batch == schedule_[i].micro_batch + unit) {
        ++i;
      }
      const Repetition found{first, period, (i - first + period) / period, unit};
      if (found.periods >= kLeastPeriods && found.runs() > best.runs()) best = found;
    }
    return best;
  }

  const std::vector<Run>& schedule_;
  std::map<std::pair<int32_t, int64_t>, size_t> position_;  // of a block's micro-batch
  std::map<int32_t, int64_t> count_;                        // runs by block
};

Outcome extrapolated(const Outcome& middle, Outcome last, double times) {
  const auto move = [times](double& to, double from) { to += (to - from) * times; };
  move(last.end_s, middle.end_s);
  for (size_t p = 0; p < last.players.size(); ++p) {
    PlayerResult& to = last.players[p];
    const PlayerResult& from = middle.players[p];
    move(to.end_s, from.end_s);
    for (size_t i = 0; i < kSpent; ++i) move(to.spent_s[i], from.spent_s[i]);
    for (size_t i = 0; i < kLanes; ++i) move(to.busy_s[i], from.busy_s[i]);
    for (size_t i = 0; i < to.accounts.size(); ++i) {
      move(to.accounts[i].busy_s, from.accounts[i].busy_s);
      move(to.accounts[i].exposed_s, from.accounts[i].exposed_s);
    }
  }
  last.critical_path.clear();
  return last;
}

bool equal_rounds(const Outcome& first, const Outcome& second, const Outcome& third) {
  const auto equal = [](double a, double b, double c) {
    return std::abs((c - b) - (b - a)) <= kEqualRounds * std::abs(c - b);
  };
  if (!equal(first.end_s, second.end_s, third.end_s)) return false;
  for (size_t p = 0; p < first.players.size(); ++p) {
    if (!equal(first.players[p].end_s, second.players[p].end_s, third.players[p].end_s)) {
      return false;
    }
  }
  return true;
}

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::optional<Rounds> find_rounds(const Play& play) {
  Rounds out{play.micro_batches, 1};
  for (const Player& player : play.players) {
    const std::vector<Repetition> repetitions = Pattern(player).repetitions();
    if (repetitions.empty()) return std::nullopt;
    for (const Repetition& one : repetitions) {
      out.unit = std::lcm(out.unit, one.unit);
      out.micro_batches = std::min(out.micro_batches, one.micro_batches() - one.unit);
    }
  }
  out.micro_batches -= out.micro_batches % out.unit;
  if (out.micro_batches <= 0) return std::nullopt;
  return out;
}

Play without_rounds(const Play& play, int64_t left_out) {
  Play out = play;
  out.micro_batches -= left_out;
  for (Player& player : out.players) {
    const std::vector<Repetition> repetitions = Pattern(player).repetitions();
    std::vector<bool> gone(player.schedule.size(), false);
    for (const Repetition& one : repetitions) {
      TESSERA_CHECK(left_out % one.unit == 0 && left_out < one.micro_batches(),
                    "{} micro-batches of {} by {}", left_out, one.micro_batches(), one.unit);
      const size_t end = one.first + static_cast<size_t>(left_out / one.unit) * one.period;
      std::map<int32_t, bool> moves;
      for (size_t i = one.first; i < end; ++i) {
        gone[i] = true;
        moves[player.schedule[i].block] = true;
      }
      for (size_t i = end; i < player.schedule.size(); ++i) {
        if (moves.contains(player.schedule[i].block)) player.schedule[i].micro_batch -= left_out;
      }
    }
    std::vector<Run> kept;
    for (size_t i = 0; i < gone.size(); ++i) {
      if (!gone[i]) kept.push_back(player.schedule[i]);
    }
    player.schedule = std::move(kept);
  }
  return out;
}

Result<Outcome> run_steady(const Play& play) {
  size_t runs = 0;
  for (const Player& player : play.players) runs += player.schedule.size();
  if (static_cast<int64_t>(runs) < kLeastRuns || play.rules.jitter > 0 || play.rules.events) {
    return run(play);
  }
  const std::optional<Rounds> rounds = find_rounds(play);
  if (!rounds) return run(play);
  const auto players = static_cast<int64_t>(play.players.size());
  const int64_t step = rounded_up(std::max(kLeastDifference, players / 2), rounds->unit);
  const int64_t least = rounded_up(std::max(kLeastKept, players), rounds->unit);
  // Twice as many rounds if the first are not alike yet.
  for (const int64_t kept : {least, 2 * least}) {
    const int64_t most = rounds->micro_batches - kept;  // left out of the smallest play
    const int64_t beside = play.micro_batches - rounds->micro_batches;
    if (3 * (kept + beside + step) > play.micro_batches * 3 / 4) break;
    TESSERA_TRY(const Outcome first, run(without_rounds(play, most)));
    TESSERA_TRY(const Outcome second, run(without_rounds(play, most - step)));
    TESSERA_TRY(Outcome third, run(without_rounds(play, most - 2 * step)));
    if (!equal_rounds(first, second, third)) continue;
    third.played_events += first.played_events + second.played_events;
    return extrapolated(second, std::move(third),
                        static_cast<double>(most - 2 * step) / static_cast<double>(step));
  }
  return run(play);
}

Result<std::optional<double>> micro_batch_time(const Play& play, const Outcome& whole) {
  const std::optional<Rounds> rounds = find_rounds(play);
  if (!rounds || play.rules.jitter > 0) return std::nullopt;
  const auto players = static_cast<int64_t>(play.players.size());
  const int64_t step = rounded_up(std::max<int64_t>(1, players / 2), rounds->unit);
  if (2 * step > rounds->micro_batches) return std::nullopt;
  TESSERA_TRY(const Outcome first, run(without_rounds(play, 2 * step)));
  TESSERA_TRY(const Outcome second, run(without_rounds(play, step)));
  if (!equal_rounds(first, second, whole)) return std::nullopt;
  return (whole.end_s - second.end_s) / static_cast<double>(step);
}

}  // namespace tessera::engine
