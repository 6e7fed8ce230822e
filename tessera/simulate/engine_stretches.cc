// Stretches: items of a player that are played at once, because nothing from outside disturbs them,
// or messages only, which slow its kernels by a constant factor (stretch.h). When messages begin or
// end the stretch is cut: the item at work becomes the head of the stretch that goes on.
#include <algorithm>

#include "tessera/simulate/engine_state.h"

namespace tessera::engine {
namespace {

const std::vector<Suffix>& suffixes_of(const Text& words, Beside beside) {
  return words.suffixes[static_cast<size_t>(beside)];
}

// Where the items of a stretch are at a time: those before `item` are done, at `d`; `item` begins
// at `start`, which may be still to come.
struct Cut {
  int32_t item = 0;
  double h = 0, d = 0, start = 0;
};

// No item waits for the host: each begins when the one before it ends.
Cut cut_on_device(const Stretch& stretch, const std::vector<Suffix>& suffixes, double now) {
  const auto at = [&suffixes](int32_t item) { return suffixes.begin() + item; };
  const Suffix& whole = *at(stretch.from);
  const auto start_of = [&](const Suffix& suffix) {
    return stretch.d + whole.device - suffix.device;
  };
  const auto later = std::partition_point(at(stretch.from) + 1, at(stretch.to) + 1,
                                          [&](const Suffix& one) { return start_of(one) <= now; });
  const auto item = later > at(stretch.to) ? at(stretch.to) : later - 1;
  return {static_cast<int32_t>(item - suffixes.begin()), stretch.h + whole.host - item->host,
          start_of(*item), start_of(*item)};
}

Cut cut_at(const Stretch& stretch, const Text& words, double now) {
  const std::vector<Suffix>& suffixes = suffixes_of(words, stretch.beside);
  const Suffix& whole = suffixes[static_cast<size_t>(stretch.from)];
  if (stretch.from == stretch.to || stretch.h + whole.lead <= stretch.d + whole.device) {
    return cut_on_device(stretch, suffixes, now);
  }
  Cut cut{stretch.from, stretch.h, stretch.d, 0};
  for (; cut.item < stretch.to; ++cut.item) {
    const Item& item = words.items[static_cast<size_t>(cut.item)];
    if (!only_host(item)) {
      cut.start = std::max(cut.d, cut.h + item.host_s + item.launch_s);
      const double end = cut.start + device_time(item, words, stretch.beside);
      if (end > now) break;
      cut.d = end;
    }
    cut.h += item.host_s;
  }
  return cut;
}

}  // namespace

double Engine::stretch_rate(int32_t p) {
  const Actor& a = actor(p);
  return a.stretch.beside == Beside::kMessages ? 1 / text(a.text).slowed : 1;
}

// From the item on, if it is in a stretch and nothing but messages moves at this player.
bool Engine::begin_stretch(int32_t p) {
  Actor& a = actor(p);
  if (a.loud > 0) return false;
  const Text& words = text(a.text);
  const Beside beside = compute_rate(p) == 1 ? Beside::kNothing : Beside::kMessages;
  if (suffixes_of(words, beside)[static_cast<size_t>(a.at)].end <= a.at + 1) return false;
  if (words.items[static_cast<size_t>(a.at)].kind == ItemKind::kWait) return false;
  a.stretch.head = -1;
  play_stretch(p, beside, a.at, a.h, std::max(a.d, now_));
  return true;
}

// The items from `from` on, behind the head if there is one.
void Engine::play_stretch(int32_t p, Beside beside, int32_t from, double h, double d) {
  Actor& a = actor(p);
  const Suffix& rest = suffixes_of(text(a.text), beside)[static_cast<size_t>(from)];
  a.state = State::kStretch;
  a.stretch.beside = beside;
  a.stretch.from = from;
  a.stretch.to = rest.end;
  a.stretch.h = h;
  a.stretch.d = d;
  schedule_step(p, std::max(d + rest.device, h + rest.lead));
}

void Engine::finish_stretch(int32_t p) {
  Actor& a = actor(p);
  finish_head(p);
  a.h = a.stretch.h +
        suffixes_of(text(a.text), a.stretch.beside)[static_cast<size_t>(a.stretch.from)].host;
  count_stretch(p, a.stretch.to, now_);
  a.at = a.stretch.to;
  a.state = State::kReady;
}

// The head has ended: its rest of the stretch began at that time.
void Engine::finish_head(int32_t p) {
  Actor& a = actor(p);
  if (a.stretch.head < 0) return;
  const Item& item = text(a.text).items[static_cast<size_t>(a.stretch.head)];
  a.stretch.head = -1;
  const double time = a.stretch.d - a.stretch.head_start;
  PlayerResult& result = results_[static_cast<size_t>(p)];
  result.busy_s[static_cast<size_t>(item.lane)] += time;
  spend(p, a.stretch.d, item.spent, item.label);
  if (item.account < 0) return;
  Account& account = result.accounts[static_cast<size_t>(item.account)];
  account.busy_s += time;
  account.exposed_s += time;
}

// The items before `to` ended at `end`.
void Engine::count_stretch(int32_t p, int32_t to, double end) {
  Actor& a = actor(p);
  const Stretch& stretch = a.stretch;
  if (to == stretch.from) return;
  const std::vector<Suffix>& suffixes = suffixes_of(text(a.text), stretch.beside);
  std::vector<int64_t>& played = stretches_of(a.text, stretch.beside);
  ++played[static_cast<size_t>(stretch.from)];
  --played[static_cast<size_t>(to)];
  const double device =
      suffixes[static_cast<size_t>(stretch.from)].device - suffixes[static_cast<size_t>(to)].device;
  results_[static_cast<size_t>(p)].spent_s[static_cast<size_t>(Spent::kHost)] +=
      std::max(0.0, end - a.d - device);
  if (path_) {
    a.spans.push_back({a.d, end, Spent::kCompute, 0, -1, a.text, stretch.from, to, stretch.h,
                       stretch.d, stretch.beside});
  }
  a.d = std::max(a.d, end);
}

// Puts the item at work at the head of what is left of the stretch. False: the stretch ends now, or
// stands before an item that waits for the host; then there is no head.
bool Engine::cut_stretch(int32_t p) {
  Actor& a = actor(p);
  Stretch& stretch = a.stretch;
  if (stretch.head >= 0 && stretch.d > now_) {
    stretch.head_left -= (now_ - stretch.head_updated) * stretch_rate(p);
    stretch.head_updated = now_;
    return true;
  }
  finish_head(p);
  const Text& words = text(a.text);
  const Cut cut = cut_at(stretch, words, now_);
  if (cut.item == stretch.to) return false;
  count_stretch(p, cut.item, cut.d);
  const Item& item = words.items[static_cast<size_t>(cut.item)];
  stretch.from = cut.item;
  stretch.h = cut.h;
  stretch.d = cut.d;
  if (cut.start > now_) return false;
  spend(p, cut.start, Spent::kHost, item.label);
  stretch.head = cut.item;
  stretch.head_start = cut.start;
  stretch.head_updated = now_;
  stretch.head_left = device_time(item) -
                      (now_ - cut.start) * (item.kind == ItemKind::kCompute ? stretch_rate(p) : 1);
  stretch.from = cut.item + 1;
  stretch.h = cut.h + item.host_s;
  return true;
}

// The stretch is left: its head, or the item that waits for the host, is played by itself.
void Engine::leave_stretch(int32_t p) {
  Actor& a = actor(p);
  const Stretch& stretch = a.stretch;
  a.h = stretch.h;
  if (stretch.head < 0) {
    const Item& item = text(a.text).items[static_cast<size_t>(stretch.from)];
    a.at = stretch.from;
    a.state = State::kReady;
    return schedule_step(p, std::max(now_, a.h + item.host_s + item.launch_s));
  }
  const Item& item = text(a.text).items[static_cast<size_t>(stretch.head)];
  a.at = stretch.head;
  if (item.kind == ItemKind::kCompute) {
    a.state = State::kComputing;
    a.started = stretch.head_start;
    a.updated = now_;
    a.left = std::max(0.0, stretch.head_left);
    a.rate = compute_rate(p);
    return schedule_step(p, now_ + a.left / a.rate);
  }
  // A collective of the player alone, which has been on its way; its wait follows.
  a.state = State::kReady;
  join_underway(p, item, stretch.head_start);
  ++a.at;
  a.state = State::kWaiting;
  a.slot = slot_of(p, item);
}

// Something that uses the links of the node begins to move at a player in the middle of a stretch.
void Engine::interrupt(int32_t p) {
  Actor& a = actor(p);
  if (a.state != State::kStretch) return;
  if (!cut_stretch(p) && a.stretch.from == a.stretch.to) return;
  leave_stretch(p);
}

// Messages begin or end beside a stretch.
void Engine::change_rate(int32_t p) {
  Actor& a = actor(p);
  const Beside beside = compute_rate(p) == 1 ? Beside::kNothing : Beside::kMessages;
  if (beside == a.stretch.beside) return;
  const bool at_work = cut_stretch(p);
  const Text& words = text(a.text);
  const std::vector<Suffix>& suffixes = suffixes_of(words, beside);
  if (!at_work) {
    if (a.stretch.from == a.stretch.to) return;
    if (suffixes[static_cast<size_t>(a.stretch.from)].end == a.stretch.from)
      return leave_stretch(p);
    return play_stretch(p, beside, a.stretch.from, a.stretch.h, a.stretch.d);
  }
  const Item& head = words.items[static_cast<size_t>(a.stretch.head)];
  const bool kernel = head.kind == ItemKind::kCompute;
  if (!kernel && head.use.nic > 0) return leave_stretch(p);
  const double left = std::max(0.0, a.stretch.head_left);
  const double slowed = kernel && beside == Beside::kMessages ? words.slowed : 1;
  play_stretch(p, beside, a.stretch.from, a.stretch.h, now_ + left * slowed);
}

// ---- what stretches come to

std::vector<int64_t>& Engine::stretches_of(int32_t index, Beside beside) {
  const auto i = static_cast<size_t>(index);
  if (i >= stretches_.size()) stretches_.resize(i + 1);
  std::vector<int64_t>& played = stretches_[i][static_cast<size_t>(beside)];
  if (played.empty()) played.assign(text(index).items.size() + 1, 0);
  return played;
}

void Engine::account_stretches(int32_t index, Beside beside, PlayerResult& result) {
  if (static_cast<size_t>(index) >= stretches_.size()) return;
  const std::vector<int64_t>& played =
      stretches_[static_cast<size_t>(index)][static_cast<size_t>(beside)];
  if (played.empty()) return;
  const Text& words = text(index);
  int64_t times = 0;
  for (size_t i = 0; i < words.items.size(); ++i) {
    times += played[i];
    const Item& item = words.items[i];
    if (times == 0 || only_host(item)) continue;
    const double total = static_cast<double>(times) * device_time(item, words, beside);
    result.spent_s[static_cast<size_t>(item.spent)] += total;
    result.busy_s[static_cast<size_t>(item.lane)] += total;
    if (item.account < 0) continue;
    Account& account = result.accounts[static_cast<size_t>(item.account)];
    account.busy_s += total;
    account.exposed_s += total;
  }
}

void Engine::account_stretches() {
  for (size_t p = 0; p < results_.size(); ++p) {
    for (const auto& variants : texts_.of_player(p)) {
      for (const int32_t index : variants) {
        if (index < 0) continue;
        account_stretches(index, Beside::kNothing, results_[p]);
        account_stretches(index, Beside::kMessages, results_[p]);
      }
    }
  }
}

}  // namespace tessera::engine
