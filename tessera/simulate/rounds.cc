#include "tessera/simulate/rounds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::engine {
namespace {

constexpr int64_t kMostUnit = 64;    // the most micro-batches of a round
constexpr size_t kLeastPeriods = 3;  // the fewest periods that make a repetition

// Finds repetitions in one player's schedule. Only runs of blocks for one size of micro-batches
// count.
class Pattern {
 public:
  Pattern(const Player& player, bool smaller)
      : schedule_(player.schedule),
        position_(player.blocks.size()),
        count_(player.blocks.size(), 0) {
    for (size_t i = 0; i < schedule_.size(); ++i) {
      if (player.blocks[static_cast<size_t>(schedule_[i].block)].smaller != smaller) continue;
      std::vector<size_t>& runs = position_[static_cast<size_t>(schedule_[i].block)];
      const auto micro_batch = static_cast<size_t>(schedule_[i].micro_batch);
      if (runs.size() <= micro_batch) runs.resize(micro_batch + 1, kNever);
      runs[micro_batch] = i;
      ++count_[static_cast<size_t>(schedule_[i].block)];
    }
  }

  // Returns repetitions such that each block with several runs is in exactly one of them; none if
  // some block is in none. Longer repetitions are preferred.
  std::vector<Repetition> repetitions() const {
    std::vector<Repetition> all;
    for (size_t i = 0; i < schedule_.size();) {
      const Repetition found = longest_from(i);
      const bool taken = found.periods >= kLeastPeriods && has_one_size(found);
      if (taken) all.push_back(found);
      i = taken ? found.first + found.runs() : i + 1;
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
    for (size_t block = 0; block < count_.size(); ++block) {
      if (count_[block] > 1 && !covered[static_cast<int32_t>(block)]) return {};
    }
    std::ranges::sort(chosen, {}, &Repetition::first);
    return chosen;
  }

 private:
  bool has_one_size(const Repetition& one) const {
    for (size_t i = one.first; i < one.first + one.period; ++i) {
      if (count_[static_cast<size_t>(schedule_[i].block)] == 0) return false;
    }
    return true;
  }

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
  std::vector<int64_t> count_;                 // runs by block
};

// Returns whether a smaller micro-batch runs before the rounds of the larger ones. Such rounds
// cannot be left out, because leaving rounds out only renumbers the micro-batches that come after
// them.
bool begins_early(const Player& player, const Repetition& rounds) {
  const auto begin = player.schedule.begin();
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(rounds.first), [&](const Run& run) {
    return player.blocks[static_cast<size_t>(run.block)].smaller;
  });
}

std::optional<Rounds> rounds_of(const Play& play, bool smaller) {
  const auto is_of_size = [smaller](const Player& player) {
    return std::ranges::any_of(player.blocks,
                               [smaller](const Block& block) { return block.smaller == smaller; });
  };
  if (!std::ranges::all_of(play.players, is_of_size)) return std::nullopt;
  Rounds out{play.micro_batches, 1, {}, smaller};
  for (const Player& player : play.players) {
    std::vector<Repetition> repetitions = Pattern(player, smaller).repetitions();
    if (repetitions.empty()) return std::nullopt;
    for (const Repetition& one : repetitions) {
      if (!smaller && begins_early(player, one)) return std::nullopt;
      out.unit = std::lcm(out.unit, one.unit);
      out.micro_batches = std::min(out.micro_batches, one.micro_batches() - one.unit);
    }
    out.repetitions.push_back(std::move(repetitions));
  }
  out.micro_batches -= out.micro_batches % out.unit;
  if (out.micro_batches <= 0) return std::nullopt;
  return out;
}

}  // namespace

std::shared_ptr<const std::vector<Rounds>> find_rounds(const Play& play) {
  auto out = std::make_shared<std::vector<Rounds>>();
  for (const bool smaller : {false, true}) {
    if (auto rounds = rounds_of(play, smaller)) out->push_back(std::move(*rounds));
  }
  return out;
}

Timetable::Timetable(const Play& play) : micro_batches_(play.micro_batches) {
  for (const Player& player : play.players) {
    const size_t blocks = player.blocks.size();
    OfPlayer& one = players_.emplace_back(OfPlayer{&player,
                                                   player.schedule.size(),
                                                   std::vector<int32_t>(blocks, -1),
                                                   std::vector<int32_t>(blocks, -1),
                                                   {},
                                                   {}});
    for (size_t i = 0; i < player.schedule.size(); ++i) {
      const auto block = static_cast<size_t>(player.schedule[i].block);
      if (one.first[block] < 0) one.first[block] = static_cast<int32_t>(i);
      one.last[block] = static_cast<int32_t>(i);
    }
  }
}

size_t Timetable::whole(const OfPlayer& one, size_t position) {
  for (const Gone& gone : one.gone) {
    if (position < gone.first) break;
    position += gone.runs;
  }
  return position;
}

Run Timetable::run(int32_t player, size_t position) const {
  const OfPlayer& one = of(player);
  const size_t at = whole(one, position);
  Run out = one.player->schedule[at];
  if (one.shifts.empty()) return out;
  for (const Shift& shift : one.shifts[static_cast<size_t>(out.block)]) {
    if (at >= shift.from) out.micro_batch -= shift.micro_batches;
  }
  return out;
}

void Timetable::leave_out(const Rounds& rounds, int64_t left_out) {
  micro_batches_ -= left_out;
  for (size_t p = 0; p < players_.size(); ++p) {
    OfPlayer& one = players_[p];
    const std::vector<Block>& blocks = one.player->blocks;
    one.shifts.resize(blocks.size());
    std::vector<Gone> more;
    for (const Repetition& repetition : rounds.repetitions[p]) {
      TESSERA_CHECK(left_out % repetition.unit == 0 && left_out < repetition.micro_batches(),
                    "{} micro-batches of {} by {}", left_out, repetition.micro_batches(),
                    repetition.unit);
      const size_t runs = static_cast<size_t>(left_out / repetition.unit) * repetition.period;
      const size_t first = whole(one, repetition.first);
      more.push_back({first, runs});
      std::set<int32_t> moved;
      for (size_t i = first; i < first + repetition.period; ++i)
        moved.insert(one.player->schedule[i].block);
      for (const int32_t block : moved)
        one.shifts[static_cast<size_t>(block)].push_back({first + runs, left_out});
      one.size -= runs;
    }
    // If the first run of a block is left out, the next one that is not takes its position.
    for (std::vector<int32_t>* ends : {&one.first, &one.last}) {
      for (int32_t& end : *ends) {
        size_t before = 0;
        for (size_t i = 0; i < more.size(); ++i) {
          const size_t behind = rounds.repetitions[p][i].first + more[i].runs;
          if (end >= static_cast<int32_t>(behind)) before += more[i].runs;
        }
        end -= static_cast<int32_t>(before);
      }
    }
    for (size_t block = 0; block < blocks.size(); ++block) {
      if (blocks[block].smaller && !rounds.smaller) one.shifts[block].push_back({0, left_out});
    }
    one.gone.insert(one.gone.end(), more.begin(), more.end());
    std::ranges::sort(one.gone, {}, &Gone::first);
  }
}

void shift_rounds(std::vector<Rounds>& all, size_t size, int64_t left_out) {
  for (size_t p = 0; p < all[size].repetitions.size(); ++p) {
    struct Gone {
      size_t first, runs;
    };
    std::vector<Gone> gone;
    for (Repetition& one : all[size].repetitions[p]) {
      const auto periods = static_cast<size_t>(left_out / one.unit);
      gone.push_back({one.first, periods * one.period});
      one.periods -= periods;
    }
    for (Rounds& rounds : all) {
      for (Repetition& one : rounds.repetitions[p]) {
        size_t before = 0;
        for (const Gone& part : gone) {
          if (part.first < one.first) before += part.runs;
        }
        one.first -= before;
      }
    }
  }
  all[size].micro_batches -= left_out;
}

}  // namespace tessera::engine
