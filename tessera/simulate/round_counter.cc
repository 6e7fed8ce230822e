// Counts rounds (rounds.h) that repeat exactly instead of playing them. Once a round the engine
// makes a mark of its state. A mark has what each player is doing in the round, and what the player
// and every unfinished transfer will do and when, relative to the time of the mark. If a mark
// equals an earlier one, everything that happened between the two marks happens again as long as
// the schedules repeat. The engine then takes the repeated rounds out of the schedules and adds
// what they would have added to the results. The play goes on in a step that is shorter by the time
// of these rounds. If micro-batches have two sizes, this is done for each size.
//
// With some schedules a micro-batch's blocks run in several repetitions; with gpipe the forward
// pass is in one and the backward pass in another. Micro-batches that are left out of the first
// repetition must then be left out of the later ones too. When a later repetition is found to
// repeat, the time that the missing rounds would have taken in it is added. If a later repetition
// does not repeat, the count is lost, and the play begins anew without counting.
//
// The host may get further ahead of the device from mark to mark. If nothing waited for the host
// between two marks, nothing will wait for it in the repeated rounds either. The engine then moves
// the host's clock ahead by what the host would have gained in these rounds.
#include <algorithm>
#include <cmath>

#include "tessera/simulate/round_counter.h"

namespace tessera::engine {
namespace {

constexpr size_t kMostMarks = 48;  // the most marks that are kept
// The number of rounds that are kept so that later repetitions can still be found to repeat.
constexpr int64_t kKept = 8;

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

// Returns whether a transfer can have no more effect. A message must have arrived, and its receive
// must be posted too.
bool is_over(const Transfer& one) {
  if (one.phase != Phase::kDone) return false;
  return one.item->kind == ItemKind::kIssue ||
         static_cast<int32_t>(one.parts.size()) >= one.item->parties;
}

}  // namespace

// Finds the rounds to watch, unless something needs every round to be played.
RoundCounter::RoundCounter(Scene& scene, bool counts) : scene_(scene) {
  const Rules& rules = scene_.play.rules;
  if (!counts || !scene_.play.rounds || rules.events || rules.jitter > 0) return;
  rounds_ = *scene_.play.rounds;
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

// Goes on to watch the next repetition of to_watch_. A size's later repetitions are skipped if no
// micro-batches of this size were left out of its first one.
void RoundCounter::watch_next() {
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
    for (int32_t p = 0; p < static_cast<int32_t>(scene_.actors.size()); ++p) {
      const size_t rounds = repetition(p).runs() / runs_a_round(p);
      if (rounds < fewest) watched_ = p;
      fewest = std::min(fewest, rounds);
    }
  }
  due_ = due_ && watched_ >= 0;
}

size_t RoundCounter::runs_a_round(int32_t p) const {
  const Repetition& one = repetition(p);
  return one.period * static_cast<size_t>(rounds().unit / one.unit);
}

// Handles the begin of a run of the watched player. If a round begins with the run, a mark is due
// as soon as all that happens at this time has happened.
void RoundCounter::watch_run(int32_t p) {
  const Repetition& one = repetition(p);
  const auto run = static_cast<size_t>(scene_.actor(p).run);
  if (run >= one.first + one.runs()) return watch_next();
  if (run < one.first || (run - one.first) % runs_a_round(p) != 0) return;
  mark_at_ = scene_.now;
  mark_due_ = scene_.now + kSameTime * scene_.now;
}

// Returns how many rounds may be left out such that every player is then still in its repetition
// and has yet to play its last round; -1 if some player is not in such a position now.
int64_t RoundCounter::rounds_ahead() const {
  int64_t out = INT64_MAX;
  for (int32_t p = 0; p < static_cast<int32_t>(scene_.actors.size()); ++p) {
    const Repetition& one = repetition(p);
    const auto run = static_cast<size_t>(scene_.actors[static_cast<size_t>(p)].run);
    const size_t end = one.first + one.runs() - one.period;
    // The first period does not count, because it may have items of only a block's first run. The
    // last period does not count either, for items of a block's last run. One more run is kept,
    // because receives of the next run are posted already.
    if (run < one.first + one.period || run + 1 >= end) return -1;
    out = std::min(out, static_cast<int64_t>((end - run - 2) / runs_a_round(p)));
  }
  return out;
}

void RoundCounter::take_mark() {
  mark_due_ = kNever;
  const int64_t ahead = rounds_ahead();
  if (ahead <= 0) {
    if (!marks_.empty()) watch_next();  // the repetition ends
    return;
  }
  Mark mark;
  mark.time = mark_at_;
  const Repetition& one = repetition(watched_);
  mark.round = static_cast<int64_t>((static_cast<size_t>(scene_.actor(watched_).run) - one.first) /
                                    runs_a_round(watched_));
  for (size_t p = 0; p < scene_.actors.size(); ++p) note_player(static_cast<int32_t>(p), mark);
  note_transfers(mark);
  note_posts(mark);
  mark.results = all_results(scene_.results);
  mark.stretches = played_stretches_.size();
  if (scene_.history) mark.spans = scene_.history->sizes();
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

void RoundCounter::note_player(int32_t p, Mark& mark) const {
  const Actor& a = scene_.actor(p);
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
  const bool over = stretch.d <= mark.time;  // what is left of the head then does not matter
  notes.amount(over ? 0
                    : stretch.head_left - (mark.time - stretch.head_updated) * scene_.head_rate(p));
}

int64_t RoundCounter::relative_micro_batch(const Transfer& one, int64_t round) const {
  const Part& part = one.parts[0];
  const Handle& handle = scene_.player(part.player).handles[static_cast<size_t>(part.item->handle)];
  return handle.each_micro_batch ? one.micro_batch - round * rounds().unit : one.micro_batch;
}

void RoundCounter::note_transfers(Mark& mark) {
  std::erase_if(open_, [this](int32_t t) { return is_over(scene_.transfer(t)); });
  // Sorted, because transfers that began at the same time may be in any order in open_.
  std::vector<std::array<int64_t, 4>> keys;
  for (const int32_t t : open_) {
    const Transfer& one = scene_.transfer(t);
    const bool alone = one.item->match < 0;
    keys.push_back({one.item->match, alone ? one.parts[0].player : 0,
                    alone ? reinterpret_cast<intptr_t>(one.item) : 0, t});
  }
  std::ranges::sort(keys);
  Notes notes(mark);
  for (const auto& key : keys) {
    const Transfer& one = scene_.transfer(static_cast<int32_t>(key[3]));
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

void RoundCounter::note_parts(const Transfer& one, Mark& mark) const {
  Notes notes(mark);
  std::vector<const Part*> parts;
  for (const Part& part : one.parts) parts.push_back(&part);
  std::ranges::sort(parts, {}, &Part::player);
  for (const Part* part : parts) {
    notes.words({part->player, part->queued ? 1 : 0});
    notes.item(part->item);
    // Noted too are the transfers that were before this one in its queue, as long as expose() may
    // still count them.
    int32_t t = part->before;
    while (t >= 0 && scene_.transfer(t).phase == Phase::kDone &&
           scene_.transfer(t).end > scene_.actor(part->player).d) {
      notes.moment(scene_.transfer(t).start);
      notes.moment(scene_.transfer(t).end);
      const Part* mine = scene_.part_of(part->player, t);
      t = mine == nullptr ? -1 : mine->before;
    }
  }
}

// Notes the receives that the host has still to post.
void RoundCounter::note_posts(Mark& mark) const {
  std::vector<std::pair<std::array<int64_t, 3>, double>> posts;
  for (const Post& post : scene_.posts) {
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

bool RoundCounter::repeats(const Mark& before, const Mark& now) const {
  const double close = kSameTime * now.time;
  if (before.words != now.words || !same(before.times, now.times, close)) return false;
  for (size_t p = 0; p < scene_.actors.size(); ++p) {
    const double gained = before.hosts[p] - now.hosts[p];
    if (std::abs(gained) <= close) continue;
    if (gained < 0 || scene_.actors[p].host_bound >= before.time) return false;
  }
  return true;
}

// Returns how many of the `ahead` rounds to come may be left out. If there are later repetitions,
// some rounds are kept, so that each of these can still be found to repeat: as many rounds as there
// are players, because only then all players are at work, and kKept more.
int64_t RoundCounter::rounds_to_leave_out(int64_t ahead) const {
  const bool has_later = rounds().repetitions.front().size() > 1;
  return has_later ? ahead - static_cast<int64_t>(scene_.actors.size()) - kKept : ahead;
}

// Adds to the results, `times` times, what happened between the two marks.
void RoundCounter::count_again(const Mark& before, const Mark& now, int64_t times) {
  const auto factor = static_cast<double>(times);
  scene_.left_out_s += (now.time - before.time) * factor;
  if (scene_.history)
    scene_.history->repeat(before.spans, now.spans, times, now.time - before.time);
  for (size_t p = 0; p < scene_.actors.size(); ++p) {
    const double gained = before.hosts[p] - now.hosts[p];
    if (gained <= kSameTime * now.time) continue;
    scene_.actors[p].h -= gained * factor;
    scene_.actors[p].stretch.h -= gained * factor;
  }
  size_t next = 0;
  const auto more = [&](double& value) {
    value += (now.results[next] - before.results[next]) * factor;
    ++next;
  };
  for (PlayerResult& one : scene_.results) {
    for (double& spent : one.spent_s) more(spent);
    for (double& busy : one.busy_s) more(busy);
    for (Account& account : one.accounts) {
      more(account.busy_s);
      more(account.exposed_s);
    }
  }
  for (size_t i = before.stretches; i < now.stretches; ++i) {
    scene_.stretches.add(played_stretches_[i], times);
  }
}

// Takes this number of micro-batches of the watched rounds out of the schedules.
void RoundCounter::leave_out(int64_t micro_batches) {
  scene_.timetable.leave_out(rounds(), micro_batches);
  shift_rounds(rounds_, watch_.size, micro_batches);
  left_out_[watch_.size] = micro_batches;
  for (size_t p = 0; p < scene_.actors.size(); ++p) {
    Actor& a = scene_.actors[p];
    a.current = scene_.timetable.run(static_cast<int32_t>(p), static_cast<size_t>(a.run));
  }
}

}  // namespace tessera::engine
