// The engine's play of stretches (stretch.h): items of a player that are played in one go, because
// nothing from outside disturbs them, or only messages do, which slow the player's kernels by a
// constant factor. When messages begin or end, the stretch is cut: the item that is then at work,
// the head, is finished by itself, and the items after it go on as a new stretch.
#include <algorithm>

#include "tessera/simulate/engine_state.h"

namespace tessera::engine {
namespace {

// The point at which a stretch is cut. The items before `item` are done, the last one at `d`, and
// the host's clock is `h`. `item` begins at `start`, which may be later than now.
struct Cut {
  int32_t item = 0;
  double h = 0, d = 0, start = 0;
};

// Returns the point now in a stretch in which no item waits for the host, so that each item begins
// when the item before it ends.
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

Cut cut_at(const Stretch& stretch, const RunItems& of_run, double now) {
  const std::vector<Suffix>& suffixes = of_run.of(stretch.manner);
  const Suffix& whole = suffixes[static_cast<size_t>(stretch.from)];
  if (stretch.manner.rigid || stretch.from == stretch.to ||
      stretch.h + whole.lead <= stretch.d + whole.device) {
    return cut_on_device(stretch, suffixes, now);
  }
  Cut cut{stretch.from, stretch.h, stretch.d, 0};
  for (; cut.item < stretch.to; ++cut.item) {
    const Item& item = of_run.items[static_cast<size_t>(cut.item)];
    if (!only_host(item)) {
      cut.start = std::max(cut.d, cut.h + item.host_s + item.launch_s);
      const double end = cut.start + device_time(item, of_run, stretch.manner.beside);
      if (end > now) break;
      cut.d = end;
    }
    cut.h += item.host_s;
  }
  return cut;
}

// Returns whether the item is in a bundle and not its first item. No stretch may begin at such an
// item.
bool in_bundle(const RunItems& of_run, int32_t item) {
  if (static_cast<size_t>(item) == of_run.items.size()) return false;
  const Bundle* bundle = of_run.bundle(static_cast<size_t>(item));
  return bundle != nullptr && bundle->issue != item;
}

}  // namespace

// Returns which transfers move at the player now. A message counts as soon as it uses a link, even
// if it does not slow kernels, because it may slow a collective on that link.
Beside Engine::beside_of(int32_t p) {
  const std::vector<int32_t>& active = actor(p).active;
  const bool any = std::any_of(active.begin(), active.end(),
                               [&](int32_t t) { return transfer(t).item->use.nic > 0; });
  return any ? Beside::kMessages : Beside::kNothing;
}

double Engine::head_rate(int32_t p) {
  const Actor& a = actor(p);
  const RunItems& of_run = run_items(a.run_items);
  const Item& head = of_run.items[static_cast<size_t>(a.stretch.head)];
  return head.kind == ItemKind::kCompute ? 1 / of_run.slowed(a.stretch.manner.beside) : 1;
}

// Begins a stretch at the current item, if the item begins one of at least two items and no
// transfer other than messages moves at the player. Returns false if it does not begin a stretch.
bool Engine::begin_stretch(int32_t p) {
  Actor& a = actor(p);
  if (a.loud > 0) return false;
  const RunItems& of_run = run_items(a.run_items);
  const Beside beside = beside_of(p);
  const double d = std::max(a.d, now_);
  const auto at = static_cast<size_t>(a.at);
  if (of_run.items[at].kind == ItemKind::kWait) return false;
  const Manner manner = manner_of(p, beside, a.at, a.h, d);
  if (of_run.of(manner)[at].end <= a.at + 1) return false;
  a.stretch.head = -1;
  play_stretch(p, manner, a.at, a.h, d);
  return true;
}

// Returns the manner in which to play a stretch from the item on: rigid if the rigid stretch has
// more items and none of them waits for the host, else plain.
Manner Engine::manner_of(int32_t p, Beside beside, int32_t from, double h, double d) {
  const RunItems& of_run = run_items(actor(p).run_items);
  const Manner plain{beside, false}, rigid{beside, true};
  if (history_ || of_run.bundles().empty()) return plain;
  const Suffix& further = of_run.of(rigid)[static_cast<size_t>(from)];
  const bool can = actor(p).issued == 0 && !in_bundle(of_run, from) &&
                   further.end > of_run.of(plain)[static_cast<size_t>(from)].end &&
                   h + further.lead <= d + further.device;
  return can ? rigid : plain;
}

// Begins to play the items from `from` on as a stretch, after the head if there is one.
void Engine::play_stretch(int32_t p, Manner manner, int32_t from, double h, double d) {
  Actor& a = actor(p);
  const Suffix& rest = run_items(a.run_items).of(manner)[static_cast<size_t>(from)];
  a.state = State::kStretch;
  a.stretch.manner = manner;
  a.stretch.from = from;
  a.stretch.to = rest.end;
  a.stretch.h = h;
  a.stretch.d = d;
  if (h + rest.lead > d + rest.device) a.host_bound = std::max(a.host_bound, h + rest.lead);
  schedule_step(p, std::max(d + rest.device, h + rest.lead));
}

void Engine::finish_stretch(int32_t p) {
  Actor& a = actor(p);
  finish_head(p);
  a.h = a.stretch.h +
        run_items(a.run_items).of(a.stretch.manner)[static_cast<size_t>(a.stretch.from)].host;
  count_stretch(p, a.stretch.to, now_);
  a.at = a.stretch.to;
  a.state = State::kReady;
}

// Counts the head, if there is one, as done. The rest of the stretch began when the head ended.
void Engine::finish_head(int32_t p) {
  Actor& a = actor(p);
  if (a.stretch.head < 0) return;
  const Item& item = run_items(a.run_items).items[static_cast<size_t>(a.stretch.head)];
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

// Counts the stretch's items before `to` as played. The last of them ended at `end`.
void Engine::count_stretch(int32_t p, int32_t to, double end) {
  Actor& a = actor(p);
  const Stretch& stretch = a.stretch;
  if (to == stretch.from) return;
  const std::vector<Suffix>& suffixes = run_items(a.run_items).of(stretch.manner);
  std::vector<int64_t>& played = stretches_of(a.run_items, stretch.manner);
  ++played[static_cast<size_t>(stretch.from)];
  --played[static_cast<size_t>(to)];
  if (watched_ >= 0) played_stretches_.push_back({a.run_items, stretch.from, to, stretch.manner});
  const double device =
      suffixes[static_cast<size_t>(stretch.from)].device - suffixes[static_cast<size_t>(to)].device;
  results_[static_cast<size_t>(p)].spent_s[static_cast<size_t>(Spent::kHost)] +=
      std::max(0.0, end - a.d - device);
  if (history_) {
    history_->add(p, {a.d, end, Spent::kCompute, 0, -1, a.run_items, stretch.from, to, stretch.h,
                      stretch.d, stretch.manner.beside});
  }
  a.d = std::max(a.d, end);
}

// Cuts the stretch now: counts the items that are done. The item at work, if there is one, becomes
// the head, and the stretch then consists of the items after it. Returns what was found.
Engine::CutOff Engine::cut_stretch(int32_t p) {
  Actor& a = actor(p);
  Stretch& stretch = a.stretch;
  if (stretch.head >= 0 && stretch.d > now_) {
    stretch.head_left -= (now_ - stretch.head_updated) * head_rate(p);
    stretch.head_updated = now_;
    return CutOff::kAtWork;
  }
  finish_head(p);
  const RunItems& of_run = run_items(a.run_items);
  const Cut cut = cut_at(stretch, of_run, now_);
  if (cut.item == stretch.to) return CutOff::kEnds;
  if (stretch.manner.rigid && in_bundle(of_run, cut.item)) {
    leave_in_bundle(p, *of_run.bundle(static_cast<size_t>(cut.item)));
    return CutOff::kLeft;
  }
  count_stretch(p, cut.item, cut.d);
  const Item& item = of_run.items[static_cast<size_t>(cut.item)];
  stretch.from = cut.item;
  stretch.h = cut.h;
  stretch.d = cut.d;
  if (cut.start > now_) return CutOff::kWaits;
  spend(p, cut.start, Spent::kHost, item.label);
  stretch.head = cut.item;
  stretch.head_start = cut.start;
  stretch.head_updated = now_;
  stretch.head_left = device_time(item) - (now_ - cut.start) * head_rate(p);
  stretch.from = cut.item + 1;
  stretch.h = cut.h + item.host_s;
  return CutOff::kAtWork;
}

// Ends the stretch after it was cut. The player goes on item by item, from the head or from the
// item that waits for the host.
void Engine::leave_stretch(int32_t p) {
  Actor& a = actor(p);
  const Stretch& stretch = a.stretch;
  a.h = stretch.h;
  if (stretch.head < 0) {
    const Item& item = run_items(a.run_items).items[static_cast<size_t>(stretch.from)];
    a.at = stretch.from;
    a.state = State::kReady;
    a.host_bound = std::max(a.host_bound, a.h + item.host_s + item.launch_s);
    return schedule_step(p, std::max(now_, a.h + item.host_s + item.launch_s));
  }
  const Item& item = run_items(a.run_items).items[static_cast<size_t>(stretch.head)];
  a.at = stretch.head;
  if (item.kind == ItemKind::kCompute) {
    a.state = State::kComputing;
    a.started = stretch.head_start;
    a.updated = now_;
    a.left = std::max(0.0, stretch.head_left);
    a.rate = compute_rate(p);
    return schedule_step(p, now_ + a.left / a.rate);
  }
  // The head is a collective in which only this player takes part, and it is under way. Its wait
  // follows.
  a.state = State::kReady;
  join_underway(p, item, stretch.head_start);
  ++a.at;
  a.state = State::kWaiting;
  a.slot = slot_of(p, item);
}

// Interrupts the player's stretch, if it plays one, because a transfer that uses links of the node
// begins to move at the player.
void Engine::interrupt(int32_t p) {
  Actor& a = actor(p);
  if (a.state != State::kStretch) return;
  const CutOff how = cut_stretch(p);
  if (how == CutOff::kAtWork || how == CutOff::kWaits) leave_stretch(p);
}

// Goes on with the stretch in another manner, if messages have begun or ended at the player.
void Engine::change_rate(int32_t p) {
  Actor& a = actor(p);
  const Beside beside = beside_of(p);
  if (beside == a.stretch.manner.beside) return;
  const CutOff how = cut_stretch(p);
  if (how == CutOff::kEnds || how == CutOff::kLeft) return;
  const RunItems& of_run = run_items(a.run_items);
  const Stretch& stretch = a.stretch;
  if (how == CutOff::kWaits) {
    const Manner manner = manner_of(p, beside, stretch.from, stretch.h, stretch.d);
    if (of_run.of(manner)[static_cast<size_t>(stretch.from)].end == stretch.from) {
      return leave_stretch(p);
    }
    return play_stretch(p, manner, stretch.from, stretch.h, stretch.d);
  }
  const Item& head = of_run.items[static_cast<size_t>(stretch.head)];
  const bool kernel = head.kind == ItemKind::kCompute;
  if (!kernel && head.use.nic > 0) return leave_stretch(p);
  const double left = std::max(0.0, stretch.head_left);
  const double end = now_ + left * (kernel ? of_run.slowed(beside) : 1);
  play_stretch(p, manner_of(p, beside, stretch.from, stretch.h, end), stretch.from, stretch.h, end);
}

// Ends a stretch that is cut inside a bundle. Counts the items that are done; the rest of the
// bundle is played item by item.
void Engine::leave_in_bundle(int32_t p, const Bundle& bundle) {
  Actor& a = actor(p);
  const RunItems& of_run = run_items(a.run_items);
  const std::vector<Suffix>& suffixes = of_run.of(a.stretch.manner);
  const Beside beside = a.stretch.manner.beside;
  const Suffix& whole = suffixes[static_cast<size_t>(a.stretch.from)];
  const double start =
      a.stretch.d + whole.device - suffixes[static_cast<size_t>(bundle.issue)].device;
  const InBundle now = play_bundle(of_run, bundle, beside, std::max(0.0, now_ - start));
  a.h = a.stretch.h + whole.host - suffixes[static_cast<size_t>(now.item)].host;
  count_stretch(p, bundle.issue, start);
  spend(p, start, Spent::kHost, of_run.items[static_cast<size_t>(bundle.issue)].label);
  const std::vector<double>& started = of_run.started(beside);
  for (int32_t k = bundle.issue + 1; k < now.item; ++k) {
    const auto i = static_cast<size_t>(k);
    if (only_host(of_run.items[i])) continue;
    results_[static_cast<size_t>(p)].busy_s[static_cast<size_t>(of_run.items[i].lane)] +=
        started[i + 1] - started[i];
    spend(p, start + started[i + 1], of_run.items[i].spent, of_run.items[i].label);
  }
  a.at = now.item;
  if (now.item < bundle.wait) {
    a.state = State::kComputing;
    a.h += of_run.items[static_cast<size_t>(now.item)].host_s;
    a.started = start + started[static_cast<size_t>(now.item)];
    a.updated = now_;
    a.left = now.left;
    a.rate = compute_rate(p);
  } else {
    a.state = State::kReady;
  }
  take_over(p, bundle, now, start);
  if (a.state == State::kComputing) {
    a.rate = compute_rate(p);
    return schedule_step(p, now_ + a.left / a.rate);
  }
  const int32_t s = slot_of(p, of_run.items[static_cast<size_t>(bundle.issue)]);
  if (slot(p, s).done) return schedule_step(p, now_);  // it ends now
  a.state = State::kWaiting;
  a.slot = s;
}

// Handles the collective of a bundle when the player leaves the bundle. If the collective is still
// running, it becomes a transfer; if it has ended, its time is counted. `now`: the state of the
// bundle; `start`: when the bundle began.
void Engine::take_over(int32_t p, const Bundle& bundle, const InBundle& now, double start) {
  const Item& item = run_items(actor(p).run_items).items[static_cast<size_t>(bundle.issue)];
  if (now.latency_left == 0 && now.collective_left == 0) {
    PlayerResult& result = results_[static_cast<size_t>(p)];
    result.busy_s[static_cast<size_t>(item.lane)] += now.collective_end;
    if (item.account >= 0) {
      result.accounts[static_cast<size_t>(item.account)].busy_s += now.collective_end;
    }
    slot(p, slot_of(p, item)) = {-1, true};
    return;
  }
  Transfer& moving = transfer(join_underway(p, item, start));
  if (now.latency_left > 0) return;
  moving.left = now.collective_left;
  moving.updated = now_;
  schedule_transfer(slot(p, slot_of(p, item)).transfer, now_ + moving.left / moving.rate);
}

// ---- the results of stretches

std::vector<int64_t>& Engine::stretches_of(int32_t index, Manner manner) {
  const auto i = static_cast<size_t>(index);
  if (i >= stretches_.size()) stretches_.resize(i + 1);
  std::vector<int64_t>& played = stretches_[i][manner.index()];
  if (played.empty()) played.assign(run_items(index).items.size() + 1, 0);
  return played;
}

void Engine::account_stretches(int32_t index, Manner manner, PlayerResult& result) {
  if (static_cast<size_t>(index) >= stretches_.size()) return;
  const std::vector<int64_t>& played = stretches_[static_cast<size_t>(index)][manner.index()];
  if (played.empty()) return;
  const RunItems& of_run = run_items(index);
  const auto b = static_cast<size_t>(manner.beside);
  int64_t count = 0;
  for (size_t i = 0; i < of_run.items.size(); ++i) {
    count += played[i];
    const Item& item = of_run.items[i];
    if (count == 0 || only_host(item)) continue;
    const auto times = static_cast<double>(count);
    double busy = device_time(item, of_run, manner.beside), spent = busy;
    if (const Bundle* bundle = manner.rigid ? of_run.bundle(i) : nullptr) {
      const auto& started = of_run.started(manner.beside);
      const bool issue = bundle->issue == static_cast<int32_t>(i);
      busy = issue ? bundle->collective[b] : started[i + 1] - started[i];
      spent = issue ? bundle->total[b] - started[static_cast<size_t>(bundle->wait)] : busy;
    }
    result.spent_s[static_cast<size_t>(item.spent)] += times * spent;
    result.busy_s[static_cast<size_t>(item.lane)] += times * busy;
    if (item.account < 0) continue;
    Account& account = result.accounts[static_cast<size_t>(item.account)];
    account.busy_s += times * busy;
    account.exposed_s += times * spent;
  }
}

void Engine::account_stretches() {
  for (int32_t index = 0; index < run_items_.size(); ++index) {
    for (const Beside beside : {Beside::kNothing, Beside::kMessages}) {
      PlayerResult& result = results_[static_cast<size_t>(run_items(index).player)];
      account_stretches(index, {beside, false}, result);
      account_stretches(index, {beside, true}, result);
    }
  }
}

}  // namespace tessera::engine
