#include "tessera/simulate/steady.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::engine {
namespace {

constexpr int64_t kLeastRuns = 1500;     // of blocks, all players': below, a play is quick anyway
constexpr int64_t kLeastKept = 4;        // micro-batches in rounds
constexpr int64_t kLeastDifference = 2;  // micro-batches between two plays

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

SteadyPlay::SteadyPlay(const Play& play) : play_(play), run_items_(play) {}

const Rounds* SteadyPlay::rounds() {
  if (!std::exchange(known_, true)) {
    rounds_ = play_.rounds;
    if (!rounds_) rounds_ = find_rounds(play_);
  }
  // Micro-batches of two sizes take two times: nothing is the time of a further one.
  const bool equal = rounds_->size() == 1 && !has_two_sizes();
  return equal ? &rounds_->front() : nullptr;
}

bool SteadyPlay::has_two_sizes() const {
  return std::ranges::any_of(play_.players, [](const Player& player) {
    return std::ranges::any_of(player.blocks, &Block::smaller);
  });
}

Result<Outcome> SteadyPlay::run_whole() { return engine::run(play_, nullptr, run_items_); }
Result<Outcome> SteadyPlay::run_without(int64_t left_out) {
  const Timetable when = without_rounds(play_, own_timetable(play_), *rounds(), left_out);
  return engine::run(play_, &when, run_items_);
}

Result<Outcome> SteadyPlay::run() {
  size_t runs = 0;
  for (const Player& player : play_.players) runs += player.schedule.size();
  if (static_cast<int64_t>(runs) < kLeastRuns || play_.rules.jitter > 0 || play_.rules.events) {
    return run_whole();
  }
  const Rounds* const found = rounds();
  if (found == nullptr) return run_whole();
  const auto players = static_cast<int64_t>(play_.players.size());
  const int64_t step = rounded_up(std::max(kLeastDifference, players / 2), found->unit);
  const int64_t least = rounded_up(std::max(kLeastKept, players), found->unit);
  // Twice as many rounds if the first are not alike yet.
  for (const int64_t kept : {least, 2 * least}) {
    const int64_t most = found->micro_batches - kept;  // left out of the smallest play
    const int64_t beside = play_.micro_batches - found->micro_batches;
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
  const Rounds* const found = rounds();
  if (found == nullptr || play_.rules.jitter > 0) return std::nullopt;
  const auto players = static_cast<int64_t>(play_.players.size());
  const int64_t step = rounded_up(std::max<int64_t>(1, players / 2), found->unit);
  if (2 * step > found->micro_batches) return std::nullopt;
  TESSERA_TRY(const Outcome first, run_without(2 * step));
  TESSERA_TRY(const Outcome second, run_without(step));
  if (!equal_rounds(first, second, whole)) return std::nullopt;
  return (whole.end_s - second.end_s) / static_cast<double>(step);
}

}  // namespace tessera::engine
