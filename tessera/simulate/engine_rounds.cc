// Rounds that repeat within one play. Once a round the engine makes a mark of its state: where each
// player stands relative to the round, and what the player and every transfer that is not over will
// do and when, relative to the mark. If the mark equals an earlier one, everything between the two
// happens again and again while schedules go on alike: the engine takes that many rounds out of the
// schedules (rounds.h) and adds what they would have added. The play then goes on as before, in a
// step that is shorter by their time. Micro-batches of two sizes have two such stretches.
//
// With some schedules a micro-batch's blocks run in several repetitions, with gpipe its forward
// pass in one and its backward pass in another. Micro-batches left out of the first repetition are
// then left out of the later ones, too, and when a later one is found to repeat, the time of the
// rounds that it lacks is added. If a later one does not repeat, the count is lost and the play
// begins anew without counting.
//
// The host may get further ahead from mark to mark: if nothing waited for it between them, nothing
// does later either, and the engine puts it ahead by what it would have gained.
#include <algorithm>
#include <cmath>

#include "tessera/simulate/engine_state.h"

namespace tessera::engine {
namespace {

// Relative to the time since the step began: smaller differences are rounding errors.
constexpr double kSameTime = 1e-12;
constexpr size_t kMostMarks = 48;  // that are kept, the latest
constexpr int64_t kKept = 8;       // rounds in which later repetitions come to repeat

bool same(const std::vector<double>& a, const std::vector<double>& b, double close) {
  return std::ranges::equal(a, b, [close](double x, double y) { return std::abs(x - y) <= close; });
}

// Writes down the words and times of a mark.
class Notes {
 public:
  explicit Notes(Mark& mark) : mark_(mark) {}
  void word(int64_t value) { mark_.words.push_back(value); }
  void words(std::initializer_list<int64_t> values) {
    mark_.words.insert(mark_.words.end(), values);
  }
  void item(const Item* item) { word(reinterpret_cast<intptr_t>(item)); }
  void amount(double value) { mark_.times.push_back(value); }
  void moment(double time) { mark_.times.push_back(time - mark_.time); }

 private:
  Mark& mark_;
};

std::vector<double> all_results(const std::vector<PlayerResult>& results) {
  std::vector<double> out;
  for (const PlayerResult& one : results) {
    out.insert(out.end(), one.spent_s.begin(), one.spent_s.end());
    out.insert(out.end(), one.busy_s.begin(), one.busy_s.end());
    for (const Account& account : one.accounts) {
      out.push_back(account.busy_s);
      out.push_back(account.exposed_s);
    }
  }
  return out;
}

}  // namespace

// Finds the rounds to watch, unless something needs every round to be played.
void Engine::watch_rounds() {
  const Rules& rules = play_.rules;
  if (!play_.rounds || path_ || rules.events || rules.jitter > 0) return;
  rounds_ = *play_.rounds;
  left_out_.assign(rounds_.size(), 0);
  for (size_t size = 0; size < rounds_.size(); ++size) {
    const auto& repetitions = rounds_[size].repetitions;
    const size_t count = repetitions.front().size();
    const bool alike = std::ranges::all_of(
        repetitions, [count](const auto& of_player) { return of_player.size() == count; });
    for (size_t i = 0; alike && i < count; ++i) to_watch_.push_back({size, i});
  }
  std::ranges::sort(to_watch_, std::greater<>(), [this](const Watch& one) {
    return rounds_[one.size].repetitions.front()[one.repetition].first;
  });
  watch_next();
}

// Watches the next repetition: the first of a size of micro-batches, or a later one of a size of
// which micro-batches were left out.
void Engine::watch_next() {
  lost_count_ = lost_count_ || due_;
  due_ = false;
  watched_ = -1;
  mark_due_ = kNever;
  marks_.clear();
  while (watched_ < 0 && !to_watch_.empty()) {
    watch_ = to_watch_.back();
    to_watch_.pop_back();
    due_ = watch_.repetition > 0;
    if (due_ && left_out_[watch_.size] == 0) continue;
    size_t fewest = SIZE_MAX;
    for (int32_t p = 0; p < static_cast<int32_t>(actors_.size()); ++p) {
      const size_t rounds = repetition(p).runs() / runs_a_round(p);
      if (rounds < fewest) watched_ = p;
      fewest = std::min(fewest, rounds);
    }
  }
  due_ = due_ && watched_ >= 0;
}

size_t Engine::runs_a_round(int32_t p) const {
  const Repetition& one = repetition(p);
  return one.period * static_cast<size_t>(rounds().unit / one.unit);
}

// Notes that the watched player begins a run: a mark is due where its rounds begin, once all that
// happens at that time has happened.
void Engine::watch_run(int32_t p) {
  const Repetition& one = repetition(p);
  const auto run = static_cast<size_t>(actor(p).run);
  if (run >= one.first + one.runs()) return watch_next();
  if (run < one.first || (run - one.first) % runs_a_round(p) != 0) return;
  mark_at_ = now_;
  mark_due_ = now_ + kSameTime * now_;
}

// Returns the number of rounds after which every player is still among its own, with its last round
// still to come; -1: some player is not.
int64_t Engine::rounds_ahead() const {
  int64_t out = INT64_MAX;
  for (int32_t p = 0; p < static_cast<int32_t>(actors_.size()); ++p) {
    const Repetition& one = repetition(p);
    const auto run = static_cast<size_t>(actors_[static_cast<size_t>(p)].run);
    const size_t end = one.first + one.runs() - one.period;
    // The first round may have items of a block's first run alone, the last round items of its last
    // run; messages of the next run are received already.
    if (run < one.first + one.period || run + 1 >= end) return -1;
    out = std::min(out, static_cast<int64_t>((end - run - 2) / runs_a_round(p)));
  }
  return out;
}

void Engine::take_mark() {
  mark_due_ = kNever;
  const int64_t ahead = rounds_ahead();
  if (ahead <= 0) {
    if (!marks_.empty()) watch_next();  // the end comes
    return;
  }
  Mark mark;
  mark.time = mark_at_;
  const Repetition& one = repetition(watched_);
  mark.round = static_cast<int64_t>((static_cast<size_t>(actor(watched_).run) - one.first) /
                                    runs_a_round(watched_));
  for (size_t p = 0; p < actors_.size(); ++p) note_player(static_cast<int32_t>(p), mark);
  note_transfers(mark);
  note_posts(mark);
  mark.results = all_results(results_);
  mark.stretches = played_stretches_.size();
  for (size_t i = marks_.size(); i-- > 0;) {
    const Mark& before = marks_[i];
    const int64_t rounds_between = mark.round - before.round;
    const int64_t more = due_ ? left_out_[watch_.size] / rounds().unit : rounds_to_leave_out(ahead);
    if (more < rounds_between) break;
    if (!repeats(before, mark)) continue;
    if (due_ && more % rounds_between != 0) continue;
    count_again(before, mark, more / rounds_between);
    if (!due_) leave_out(more / rounds_between * rounds_between * rounds().unit);
    due_ = false;
    watch_next();
    return;
  }
  if (marks_.size() == kMostMarks) marks_.erase(marks_.begin());
  marks_.push_back(std::move(mark));
}

void Engine::note_player(int32_t p, Mark& mark) {
  const Actor& a = actor(p);
  Notes notes(mark);
  const Repetition& one = repetition(p);
  notes.words(
      {static_cast<int64_t>(a.state),
       a.run - static_cast<int64_t>(one.first) - mark.round * static_cast<int64_t>(runs_a_round(p)),
       a.at, a.run_items, a.outstanding, a.loud, a.issued,
       (a.loading ? 1 : 0) + (a.links_see_compute ? 2 : 0)});
  notes.moment(a.d);
  mark.hosts.push_back((a.state == State::kStretch ? a.stretch.h : a.h) - mark.time);
  if (a.state == State::kComputing) {
    notes.moment(a.started);
    notes.amount(a.left - (mark.time - a.updated) * a.rate);
    notes.amount(a.rate);
  }
  if (a.state != State::kStretch) return;
  const Stretch& stretch = a.stretch;
  notes.words(
      {static_cast<int64_t>(stretch.manner.index()), stretch.from, stretch.to, stretch.head});
  notes.moment(stretch.d);
  if (stretch.head < 0) return;
  notes.moment(stretch.head_start);
  const bool over = stretch.d <= mark.time;  // of its rest nobody asks then
  notes.amount(over ? 0 : stretch.head_left - (mark.time - stretch.head_updated) * head_rate(p));
}

// Returns whether a transfer is over. A message that has arrived is over only when its receiver
// knows of it.
bool Engine::is_over(const Transfer& one) const {
  if (one.phase != Phase::kDone) return false;
  return one.item->kind == ItemKind::kIssue ||
         static_cast<int32_t>(one.parts.size()) >= one.item->parties;
}

int64_t Engine::relative_micro_batch(const Transfer& one, int64_t round) const {
  const Part& part = one.parts[0];
  const Handle& handle = player(part.player).handles[static_cast<size_t>(part.item->handle)];
  return handle.each_micro_batch ? one.micro_batch - round * rounds().unit : one.micro_batch;
}

void Engine::note_transfers(Mark& mark) {
  std::erase_if(open_, [this](int32_t t) { return is_over(transfer(t)); });
  // Transfers that began at one time may have come in any order.
  std::vector<std::array<int64_t, 4>> keys;
  for (const int32_t t : open_) {
    const Transfer& one = transfer(t);
    const bool alone = one.item->match < 0;
    keys.push_back({one.item->match, alone ? one.parts[0].player : 0,
                    alone ? reinterpret_cast<intptr_t>(one.item) : 0, t});
  }
  std::ranges::sort(keys);
  Notes notes(mark);
  for (const auto& key : keys) {
    const Transfer& one = transfer(static_cast<int32_t>(key[3]));
    notes.item(one.item);
    notes.words({static_cast<int64_t>(one.phase), relative_micro_batch(one, mark.round), one.heads,
                 one.posted ? 1 : 0, one.last});
    notes.moment(one.last < 0 ? mark.time : one.ready);
    notes.moment(one.phase == Phase::kGathering ? mark.time : one.start);
    notes.moment(one.phase == Phase::kDone ? one.end : mark.time);
    if (one.phase == Phase::kTransfer) {
      notes.amount(one.left - (mark.time - one.updated) * one.rate);
      notes.amount(one.rate);
    }
    note_parts(one, mark);
  }
}

void Engine::note_parts(const Transfer& one, Mark& mark) {
  Notes notes(mark);
  std::vector<const Part*> parts;
  for (const Part& part : one.parts) parts.push_back(&part);
  std::ranges::sort(parts, {}, &Part::player);
  for (const Part* part : parts) {
    notes.words({part->player, part->queued ? 1 : 0});
    notes.item(part->item);
    // The transfers behind which it stood may count as exposed (expose()).
    int32_t t = part->before;
    while (t >= 0 && transfer(t).phase == Phase::kDone && transfer(t).end > actor(part->player).d) {
      notes.moment(transfer(t).start);
      notes.moment(transfer(t).end);
      const Part* mine = part_of(part->player, t);
      t = mine == nullptr ? -1 : mine->before;
    }
  }
}

// Notes the receives that the host has still to post.
void Engine::note_posts(Mark& mark) {
  std::vector<std::pair<std::array<int64_t, 3>, double>> posts;
  for (const Post& post : posts_) {
    const Repetition& one = repetition(post.player);
    const int64_t run = post.run - static_cast<int64_t>(one.first) -
                        mark.round * static_cast<int64_t>(runs_a_round(post.player));
    posts.push_back({{post.player, run, post.item}, post.time});
  }
  std::ranges::sort(posts);
  Notes notes(mark);
  for (const auto& [key, time] : posts) {
    notes.words({key[0], key[1], key[2]});
    notes.moment(time);
  }
}

bool Engine::repeats(const Mark& before, const Mark& now) const {
  const double close = kSameTime * now.time;
  if (before.words != now.words || !same(before.times, now.times, close)) return false;
  for (size_t p = 0; p < actors_.size(); ++p) {
    const double gained = before.hosts[p] - now.hosts[p];
    if (std::abs(gained) <= close) continue;
    if (gained < 0 || actors_[p].host_bound >= before.time) return false;
  }
  return true;
}

// Returns how many of the `ahead` rounds to come may be left out. If there are later repetitions,
// each of them must still begin to repeat with the rounds that are kept, and all players are at
// work only after as many rounds as there are players.
int64_t Engine::rounds_to_leave_out(int64_t ahead) const {
  const bool has_later = rounds().repetitions.front().size() > 1;
  return has_later ? ahead - static_cast<int64_t>(actors_.size()) - kKept : ahead;
}

// Adds what happened between the marks `times` times more.
void Engine::count_again(const Mark& before, const Mark& now, int64_t times) {
  const auto factor = static_cast<double>(times);
  left_out_s_ += (now.time - before.time) * factor;
  for (size_t p = 0; p < actors_.size(); ++p) {
    const double gained = before.hosts[p] - now.hosts[p];
    if (gained <= kSameTime * now.time) continue;
    actors_[p].h -= gained * factor;
    actors_[p].stretch.h -= gained * factor;
  }
  size_t next = 0;
  const auto more = [&](double& value) {
    value += (now.results[next] - before.results[next]) * factor;
    ++next;
  };
  for (PlayerResult& one : results_) {
    for (double& spent : one.spent_s) more(spent);
    for (double& busy : one.busy_s) more(busy);
    for (Account& account : one.accounts) {
      more(account.busy_s);
      more(account.exposed_s);
    }
  }
  for (size_t i = before.stretches; i < now.stretches; ++i) {
    const PlayedStretch& one = played_stretches_[i];
    std::vector<int64_t>& played = stretches_of(one.run_items, one.manner);
    played[static_cast<size_t>(one.from)] += times;
    played[static_cast<size_t>(one.to)] -= times;
  }
}

// Takes so many micro-batches out of the schedules.
void Engine::leave_out(int64_t micro_batches) {
  if (shorter_.schedules.empty()) shorter_ = own_timetable(play_);
  shorter_ = without_rounds(play_, shorter_, rounds(), micro_batches);
  shift_rounds(rounds_, watch_.size, micro_batches);
  left_out_[watch_.size] = micro_batches;
  for (size_t p = 0; p < actors_.size(); ++p) schedules_[p] = &shorter_.schedules[p];
  find_ends();
}

}  // namespace tessera::engine
