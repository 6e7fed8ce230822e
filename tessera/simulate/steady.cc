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

// One player's schedule.
class Pattern {
 public:
  explicit Pattern(const Player& player)
      : schedule_(player.schedule), position_(player.blocks.size()) {
    for (size_t i = 0; i < schedule_.size(); ++i) {
      std::vector<size_t>& runs = position_[static_cast<size_t>(schedule_[i].block)];
      const auto micro_batch = static_cast<size_t>(schedule_[i].micro_batch);
      if (runs.size() <= micro_batch) runs.resize(micro_batch + 1, kNever);
      runs[micro_batch] = i;
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
      const std::vector<size_t>& runs = position_[static_cast<size_t>(run.block)];
      const auto later = static_cast<size_t>(run.micro_batch + unit);
      if (later >= runs.size() || runs[later] == kNever) break;
      if (runs[later] <= first) continue;
      const size_t period = runs[later] - first;
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

  static constexpr size_t kNever = SIZE_MAX;
  const std::vector<Run>& schedule_;
  std::vector<std::vector<size_t>> position_;  // by block and micro-batch
  std::map<int32_t, int64_t> count_;           // runs by block
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
  Rounds out{play.micro_batches, 1, {}};
  for (const Player& player : play.players) {
    std::vector<Repetition> repetitions = Pattern(player).repetitions();
    if (repetitions.empty()) return std::nullopt;
    for (const Repetition& one : repetitions) {
      out.unit = std::lcm(out.unit, one.unit);
      out.micro_batches = std::min(out.micro_batches, one.micro_batches() - one.unit);
    }
    out.repetitions.push_back(std::move(repetitions));
  }
  out.micro_batches -= out.micro_batches % out.unit;
  if (out.micro_batches <= 0) return std::nullopt;
  return out;
}

Timetable without_rounds(const Play& play, const Rounds& rounds, int64_t left_out) {
  Timetable out;
  out.micro_batches = play.micro_batches - left_out;
  for (size_t p = 0; p < play.players.size(); ++p) {
    std::vector<Run> schedule = play.players[p].schedule;
    std::vector<bool> gone(schedule.size(), false);
    for (const Repetition& one : rounds.repetitions[p]) {
      TESSERA_CHECK(left_out % one.unit == 0 && left_out < one.micro_batches(),
                    "{} micro-batches of {} by {}", left_out, one.micro_batches(), one.unit);
      const size_t end = one.first + static_cast<size_t>(left_out / one.unit) * one.period;
      std::map<int32_t, bool> moves;
      for (size_t i = one.first; i < end; ++i) {
        gone[i] = true;
        moves[schedule[i].block] = true;
      }
      for (size_t i = end; i < schedule.size(); ++i) {
        if (moves.contains(schedule[i].block)) schedule[i].micro_batch -= left_out;
      }
    }
    std::vector<Run>& kept = out.schedules.emplace_back();
    for (size_t i = 0; i < gone.size(); ++i) {
      if (!gone[i]) kept.push_back(schedule[i]);
    }
  }
  return out;
}

SteadyPlay::SteadyPlay(const Play& play) : play_(play), texts_(play) {}

const std::optional<Rounds>& SteadyPlay::rounds() {
  if (!std::exchange(known_, true)) rounds_ = find_rounds(play_);
  return rounds_;
}

Result<Outcome> SteadyPlay::run_whole() { return engine::run(play_, nullptr, texts_); }
Result<Outcome> SteadyPlay::run_without(int64_t left_out) {
  const Timetable when = without_rounds(play_, *rounds_, left_out);
  return engine::run(play_, &when, texts_);
}

Result<Outcome> SteadyPlay::run() {
  size_t runs = 0;
  for (const Player& player : play_.players) runs += player.schedule.size();
  if (static_cast<int64_t>(runs) < kLeastRuns || play_.rules.jitter > 0 || play_.rules.events) {
    return run_whole();
  }
  if (!rounds()) return run_whole();
  const auto players = static_cast<int64_t>(play_.players.size());
  const int64_t step = rounded_up(std::max(kLeastDifference, players / 2), rounds_->unit);
  const int64_t least = rounded_up(std::max(kLeastKept, players), rounds_->unit);
  // Twice as many rounds if the first are not alike yet.
  for (const int64_t kept : {least, 2 * least}) {
    const int64_t most = rounds_->micro_batches - kept;  // left out of the smallest play
    const int64_t beside = play_.micro_batches - rounds_->micro_batches;
    if (3 * (kept + beside + step) > play_.micro_batches * 3 / 4) break;
    TESSERA_TRY(const Outcome first, run_without(most));
    TESSERA_TRY(const Outcome second, run_without(most - step));
    TESSERA_TRY(Outcome third, run_without(most - 2 * step));
    if (!equal_rounds(first, second, third)) continue;
    third.played_events += first.played_events + second.played_events;
    return extrapolated(second, std::move(third),
                        static_cast<double>(most - 2 * step) / static_cast<double>(step));
  }
  return run_whole();
}

Result<std::optional<double>> SteadyPlay::micro_batch_time(const Outcome& whole) {
  if (!rounds() || play_.rules.jitter > 0) return std::nullopt;
  const auto players = static_cast<int64_t>(play_.players.size());
  const int64_t step = rounded_up(std::max<int64_t>(1, players / 2), rounds_->unit);
  if (2 * step > rounds_->micro_batches) return std::nullopt;
  TESSERA_TRY(const Outcome first, run_without(2 * step));
  TESSERA_TRY(const Outcome second, run_without(step));
  if (!equal_rounds(first, second, whole)) return std::nullopt;
  return (whole.end_s - second.end_s) / static_cast<double>(step);
}

}  // namespace tessera::engine
