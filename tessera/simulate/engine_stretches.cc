// The engine's play of stretches (stretch.h): items of a player that are played in one go, because
// nothing from outside disturbs them, or only messages do, which slow the player's kernels by a
// constant factor. When messages begin or end, the stretch is cut: the item that is then at work,
// the head, is finished by itself, and the items after it go on as a new stretch.
#include <algorithm>

#include "tessera/simulate/engine_steps.h"

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

// Begins a stretch at the current item, if the item begins one of at least two items and no
// transfer other than messages moves at the player. Returns false if it does not begin a stretch.
bool Engine::begin_stretch(int32_t p) {
  Actor& a = actor(p);
  if (a.loud > 0) return false;
  const RunItems& of_run = run_items(a.run_items);
  const Beside beside = beside_of(p);
  const double d = std::max(a.d, scene_.now);
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
  if (scene_.history || of_run.bundles().empty()) return plain;
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
  count_stretch(p, a.stretch.to, scene_.now);
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
  PlayerResult& result = scene_.result(p);
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
  const PlayedStretch played{a.run_items, stretch.from, to, stretch.manner};
  scene_.stretches.add(played);
  rounds_.stretch_ends(played);
  const double device =
      suffixes[static_cast<size_t>(stretch.from)].device - suffixes[static_cast<size_t>(to)].device;
  result(p).spent_s[static_cast<size_t>(Spent::kHost)] += std::max(0.0, end - a.d - device);
  if (scene_.history) {
    scene_.history->add(p, {a.d, end, Spent::kCompute, 0, -1, a.run_items, stretch.from, to,
                            stretch.h, stretch.d, stretch.manner.beside});
  }
  a.d = std::max(a.d, end);
}

// Cuts the stretch now: counts the items that are done. The item at work, if there is one, becomes
// the head, and the stretch then consists of the items after it. Returns what was found.
Engine::CutOff Engine::cut_stretch(int32_t p) {
  Actor& a = actor(p);
  Stretch& stretch = a.stretch;
  if (stretch.head >= 0 && stretch.d > scene_.now) {
    stretch.head_left -= (scene_.now - stretch.head_updated) * scene_.head_rate(p);
    stretch.head_updated = scene_.now;
    return CutOff::kAtWork;
  }
  finish_head(p);
  const RunItems& of_run = run_items(a.run_items);
  const Cut cut = cut_at(stretch, of_run, scene_.now);
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
  if (cut.start > scene_.now) return CutOff::kWaits;
  spend(p, cut.start, Spent::kHost, item.label);
  stretch.head = cut.item;
  stretch.head_start = cut.start;
  stretch.head_updated = scene_.now;
  stretch.head_left = device_time(item) - (scene_.now - cut.start) * scene_.head_rate(p);
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
    return schedule_step(p, std::max(scene_.now, a.h + item.host_s + item.launch_s));
  }
  const Item& item = run_items(a.run_items).items[static_cast<size_t>(stretch.head)];
  a.at = stretch.head;
  if (item.kind == ItemKind::kCompute) {
    a.state = State::kComputing;
    a.started = stretch.head_start;
    a.updated = scene_.now;
    a.left = std::max(0.0, stretch.head_left);
    a.rate = compute_rate(p);
    return schedule_step(p, scene_.now + a.left / a.rate);
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
  const double end = scene_.now + left * (kernel ? of_run.slowed(beside) : 1);
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
  const InBundle now = play_bundle(of_run, bundle, beside, std::max(0.0, scene_.now - start));
  a.h = a.stretch.h + whole.host - suffixes[static_cast<size_t>(now.item)].host;
  count_stretch(p, bundle.issue, start);
  spend(p, start, Spent::kHost, of_run.items[static_cast<size_t>(bundle.issue)].label);
  const std::vector<double>& started = of_run.started(beside);
  for (int32_t k = bundle.issue + 1; k < now.item; ++k) {
    const auto i = static_cast<size_t>(k);
    if (only_host(of_run.items[i])) continue;
    result(p).busy_s[static_cast<size_t>(of_run.items[i].lane)] += started[i + 1] - started[i];
    spend(p, start + started[i + 1], of_run.items[i].spent, of_run.items[i].label);
  }
  a.at = now.item;
  if (now.item < bundle.wait) {
    a.state = State::kComputing;
    a.h += of_run.items[static_cast<size_t>(now.item)].host_s;
    a.started = start + started[static_cast<size_t>(now.item)];
    a.updated = scene_.now;
    a.left = now.left;
    a.rate = compute_rate(p);
  } else {
    a.state = State::kReady;
  }
  take_over(p, bundle, now, start);
  if (a.state == State::kComputing) {
    a.rate = compute_rate(p);
    return schedule_step(p, scene_.now + a.left / a.rate);
  }
  const int32_t s = slot_of(p, of_run.items[static_cast<size_t>(bundle.issue)]);
  if (slot(p, s).done) return schedule_step(p, scene_.now);  // it ends now
  a.state = State::kWaiting;
  a.slot = s;
}

// Handles the collective of a bundle when the player leaves the bundle. If the collective is still
// running, it becomes a transfer; if it has ended, its time is counted. `now`: the state of the
// bundle; `start`: when the bundle began.
void Engine::take_over(int32_t p, const Bundle& bundle, const InBundle& now, double start) {
  const Item& item = run_items(actor(p).run_items).items[static_cast<size_t>(bundle.issue)];
  if (now.latency_left == 0 && now.collective_left == 0) {
    PlayerResult& result = scene_.result(p);
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
  moving.updated = scene_.now;
  schedule_transfer(slot(p, slot_of(p, item)).transfer, scene_.now + moving.left / moving.rate);
}

}  // namespace tessera::engine
