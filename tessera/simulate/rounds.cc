#include "tessera/simulate/rounds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::engine {
namespace {

constexpr int64_t kMostUnit = 64;    // micro-batches of a round
constexpr size_t kLeastPeriods = 3;  // from so many on a stretch of a schedule is a repetition

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

}  // namespace

std::shared_ptr<const Rounds> find_rounds(const Play& play) {
  Rounds out{play.micro_batches, 1, {}};
  for (const Player& player : play.players) {
    std::vector<Repetition> repetitions = Pattern(player).repetitions();
    if (repetitions.empty()) return nullptr;
    for (const Repetition& one : repetitions) {
      out.unit = std::lcm(out.unit, one.unit);
      out.micro_batches = std::min(out.micro_batches, one.micro_batches() - one.unit);
    }
    out.repetitions.push_back(std::move(repetitions));
  }
  out.micro_batches -= out.micro_batches % out.unit;
  if (out.micro_batches <= 0) return nullptr;
  return std::make_shared<const Rounds>(std::move(out));
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

}  // namespace tessera::engine
