#include "tessera/simulate/history.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace tessera::engine {
namespace {

// All spans of the players by number, with those that happen again each time that they do.
class Unrolled {
 public:
  // Where a span is: the `copy`-th time (0: the first) of a span of the history, which happens
  // `shift_s` later than that span says. `repeat`: the repeat that the span is a part of; -1: none.
  struct Place {
    size_t span = 0;
    double shift_s = 0;
    int32_t repeat = -1;
    int64_t copy = 0;
  };

  explicit Unrolled(const History& history) : history_(history) {}

  int64_t size(int32_t player) const {
    auto out = static_cast<int64_t>(history_.spans(player).size());
    for (const History::Repeat& repeat : history_.repeats())
      out += repeat.times * length(repeat, player);
    return out;
  }
  Place place(int32_t player, int64_t number) const {
    Place out;
    for (size_t r = 0; r < history_.repeats().size(); ++r) {
      const History::Repeat& repeat = history_.repeats()[r];
      const auto first = static_cast<int64_t>(repeat.first[static_cast<size_t>(player)]);
      const int64_t one = length(repeat, player);
      if (number < first) break;
      if (number < first + one * (repeat.times + 1)) {
        out.repeat = static_cast<int32_t>(r);
        out.copy = (number - first) / one;
        out.shift_s += static_cast<double>(out.copy) * repeat.period_s;
        number -= out.copy * one;
        break;
      }
      number -= one * repeat.times;
      out.shift_s += static_cast<double>(repeat.times) * repeat.period_s;
    }
    out.span = static_cast<size_t>(number);
    return out;
  }
  double start(int32_t player, int64_t number) const {
    const Place at = place(player, number);
    return history_.spans(player)[at.span].start + at.shift_s;
  }
  // Returns the number of the first span of a repeat.
  int64_t first(int32_t player, int32_t repeat) const {
    const auto p = static_cast<size_t>(player);
    auto out = static_cast<int64_t>(of(repeat).first[p]);
    for (int32_t r = 0; r < repeat; ++r) out += of(r).times * length(of(r), player);
    return out;
  }
  const History::Repeat& of(int32_t repeat) const {
    return history_.repeats()[static_cast<size_t>(repeat)];
  }
  static int64_t length(const History::Repeat& repeat, int32_t player) {
    const auto p = static_cast<size_t>(player);
    return static_cast<int64_t>(repeat.end[p] - repeat.first[p]);
  }

 private:
  const History& history_;
};

// Walks back along the path. Where the walk is equal to what it was a number of rounds later, but
// for the rounds, it goes on in the same way as long as the rounds repeat. It then leaps over these
// rounds, and what it found between the two times is a part of the path that occurs many times.
class Walk {
 public:
  Walk(const History& history, const RunItemsTable& run_items, int32_t player, double end_s)
      : history_(history),
        unrolled_(history),
        run_items_(run_items),
        player_(player),
        at_(end_s),
        close_(kSameTime * end_s) {
    for (int32_t p = 0; p < players(); ++p) next_.push_back(unrolled_.size(p));
  }

  std::vector<PathPart> path() {
    while (at_ > close_ && step()) {
    }
    return joined();
  }

 private:
  // The state of the walk when it came to the begin of a span.
  struct Moment {
    int64_t number = 0;         // of the span
    std::vector<int64_t> next;  // by player
    double at = 0;
    size_t parts = 0;  // number of parts of the path until then
  };

  int32_t players() const { return static_cast<int32_t>(history_.players()); }

  // Returns the number of the player's spans that begin before `at`, at most `most`.
  int64_t before(int32_t player, double at, int64_t most) const {
    // Most often the answer is near; so steps are doubled until one is too far.
    int64_t low = most;
    for (int64_t step = 1; low > 0 && unrolled_.start(player, low - 1) >= at - close_; step *= 2) {
      most = low - 1;
      low = std::max<int64_t>(0, most - step);
    }
    while (low < most) {
      const int64_t middle = (low + most) / 2;
      if (unrolled_.start(player, middle) < at - close_) {
        low = middle + 1;
      } else {
        most = middle;
      }
    }
    return low;
  }

  // Goes back over one span, or over to the player that was waited for. Returns false if there is
  // no span to go back over.
  bool step() {
    int64_t& next = next_[static_cast<size_t>(player_)];
    next = before(player_, at_, next);
    if (next == 0) return false;
    const int64_t number = next - 1;
    const Unrolled::Place place = unrolled_.place(player_, number);
    Span span = history_.spans(player_)[place.span];
    for (double* time : {&span.start, &span.end, &span.h, &span.d}) *time += place.shift_s;
    if (span.cause >= 0 && span.cause != player_ && next_[static_cast<size_t>(span.cause)] > 0 &&
        span.end <= at_ + close_) {
      --next;  // this span is not looked at again, so the walk ends
      player_ = span.cause;
      return true;
    }
    const double until = std::min(at_, span.end);
    if (span.run_items >= 0) {
      add_stretch(span, until);
    } else {
      add({player_, span.what, span.label, span.start, until});
    }
    at_ = span.start;
    if (place.repeat >= 0) leap(place, number);
    return true;
  }

  void add(const PathPart& part) {
    parts_.push_back(part);
    group_.push_back(0);
  }

  // Adds the items of the span's stretch that begin before `until`, the last item first.
  void add_stretch(const Span& span, double until) {
    std::vector<PathPart> parts;
    double h = span.h;
    double d = span.start;
    const RunItems& of_run = run_items_[span.run_items];
    for (int32_t k = span.from; k < span.to && d < until; ++k) {
      const Item& item = of_run.items[static_cast<size_t>(k)];
      h += item.host_s;
      if (only_host(item)) continue;
      const double start = std::max({d, span.d, h + item.launch_s});
      if (start > d + close_)
        parts.push_back({player_, Spent::kHost, item.label, d, std::min(start, until)});
      d = start + device_time(item, of_run, span.beside);
      if (start < until - close_)
        parts.push_back({player_, item.spent, item.label, start, std::min(d, until)});
    }
    std::for_each(parts.rbegin(), parts.rend(), [this](const PathPart& part) { add(part); });
  }

  // Leaps over rounds if the walk has come to the begin of this span before, and all that it will
  // look at is as many rounds earlier as the span is.
  void leap(const Unrolled::Place& place, int64_t number) {
    Moment now{number, next_, at_, parts_.size()};
    for (int32_t p = 0; p < players(); ++p) {
      int64_t& next = now.next[static_cast<size_t>(p)];
      next = before(p, at_, next);
    }
    const auto [known, fresh] = moments_.try_emplace({player_, place.span}, now);
    if (fresh) return;
    const Moment later = std::exchange(known->second, now);
    const History::Repeat& repeat = unrolled_.of(place.repeat);
    const int64_t rounds =
        (later.number - number) / std::max<int64_t>(1, Unrolled::length(repeat, player_));
    int64_t times = place.copy / std::max<int64_t>(1, rounds);
    for (int32_t p = 0; p < players() && times > 0; ++p) {
      const auto i = static_cast<size_t>(p);
      const int64_t first = unrolled_.first(p, place.repeat), one = Unrolled::length(repeat, p);
      const bool moved = rounds > 0 && later.next[i] - now.next[i] == rounds * one;
      if (one == 0 || !moved || later.next[i] > first + one * (repeat.times + 1)) return;
      // The span before the next one must be in the repeat, too, whenever the walk looks at it.
      times = std::min(times, (now.next[i] - first - 1) / (rounds * one));
    }
    if (times <= 0) return;
    const double period = static_cast<double>(rounds) * repeat.period_s;
    const double back = static_cast<double>(times) * period;
    ++groups_;
    for (size_t i = later.parts; i < parts_.size(); ++i) {
      group_[i] = groups_;
      parts_[i].start_s -= back;
      parts_[i].end_s -= back;
      parts_[i].times = times + 1;
      parts_[i].period_s = period;
    }
    at_ -= back;
    for (int32_t p = 0; p < players(); ++p) {
      next_[static_cast<size_t>(p)] =
          now.next[static_cast<size_t>(p)] - times * rounds * Unrolled::length(repeat, p);
    }
    moments_.clear();
  }

  // Returns the parts in the order of time. Neighbours of the same player and use are joined, if
  // they happen equally often.
  std::vector<PathPart> joined() const {
    std::vector<PathPart> out;
    for (size_t i = parts_.size(); i-- > 0;) {
      const PathPart& part = parts_[i];
      if (!out.empty() && group_[i] == group_[i + 1] && out.back().player == part.player &&
          out.back().what == part.what) {
        out.back().end_s = part.end_s;
      } else {
        out.push_back(part);
      }
    }
    return out;
  }

  const History& history_;
  Unrolled unrolled_;
  const RunItemsTable& run_items_;
  int32_t player_;
  double at_;
  double close_;
  std::vector<int64_t> next_;    // by player: spans with this number or a higher one are over
  std::vector<PathPart> parts_;  // the last one first
  // By part: a number that parts of one leap share; 0: of none.
  std::vector<int32_t> group_;
  int32_t groups_ = 0;
  std::map<std::pair<int32_t, size_t>, Moment> moments_;  // by player and span of the history
};

}  // namespace

void History::add(int32_t player, const Span& span) {
  const auto p = static_cast<size_t>(player);
  if (spans_[p].size() > closed_[p]) {
    Span& last = spans_[p].back();
    if (last.run_items < 0 && span.run_items < 0 && last.cause < 0 && span.cause < 0 &&
        last.what == span.what && last.label == span.label) {
      last.end = span.end;
      return;
    }
  }
  spans_[p].push_back(span);
}

std::vector<size_t> History::sizes() {
  for (size_t p = 0; p < spans_.size(); ++p) closed_[p] = spans_[p].size();
  return closed_;
}

std::vector<PathPart> critical_path(const History& history, const RunItemsTable& run_items,
                                    int32_t player, double end_s) {
  return Walk(history, run_items, player, end_s).path();
}

}  // namespace tessera::engine
