// The part of the engine that plays the items of players: the host clock, the compute stream and
// waiting.
#include "tessera/simulate/engine.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/simulate/engine_steps.h"

namespace tessera::engine {

Engine::Engine(const Play& play, RunItemsTable& run_items, bool counts_rounds)
    : scene_(play, run_items), rounds_(scene_, counts_rounds) {}

Result<Outcome> Engine::run() {
  const auto players = static_cast<int32_t>(scene_.actors.size());
  for (int32_t p = 0; p < players; ++p) schedule_step(p, 0);
  while (!scene_.agenda.empty() || !scene_.posts.empty()) {
    const bool post = scene_.agenda.empty() || (!scene_.posts.empty() && next_is_post());
    const double time = post ? scene_.posts.front().time : scene_.agenda.next().time;
    rounds_.before(time);
    if (lost_count()) return Outcome{};
    scene_.now = time;
    ++scene_.events;
    if (post) {
      on_post();
      continue;
    }
    const int32_t who = scene_.agenda.next().who;
    scene_.agenda.erase(who);
    if (who < players) {
      on_step(who);
    } else {
      on_transfer(who - players);
    }
  }
  rounds_.end();
  if (lost_count()) return Outcome{};
  for (const Actor& a : scene_.actors) {
    if (a.state != State::kFinished) return deadlock(scene_);
  }
  scene_.stretches.add_to(scene_.results);
  return outcome_of(scene_);
}

bool Engine::next_is_post() const {
  const Post& post = scene_.posts.front();
  const Agenda::Entry& other = scene_.agenda.next();
  return post.time != other.time ? post.time < other.time : post.order < other.order;
}

void Engine::on_step(int32_t p) {
  Actor& a = actor(p);
  if (a.state == State::kComputing) finish_compute(p);
  if (a.state == State::kStretch) finish_stretch(p);
  advance(p);
  if (!a.active.empty() && (a.state == State::kComputing) != a.links_see_compute) {
    update_slowing(p);
  }
  if (a.loading && a.state != State::kComputing) {
    a.loading = false;
    add_load(player(p).pool, -player(p).ranks);
  }
}

void Engine::on_post() {
  std::ranges::pop_heap(scene_.posts, std::greater<>());
  const Post due = scene_.posts.back();
  scene_.posts.pop_back();
  const RunItems& of_run = run_items(run_items_of(due.player, due.run));
  post(due.player, of_run.items[static_cast<size_t>(due.item)],
       scene_.timetable.run(due.player, static_cast<size_t>(due.run)).micro_batch, of_run.ref);
}

void Engine::schedule_step(int32_t p, double time) { scene_.agenda.set(p, time, scene_.order++); }

int32_t Engine::run_items_of(int32_t p, int32_t run) {
  const int32_t block = scene_.timetable.run(p, static_cast<size_t>(run)).block;
  const bool first = scene_.timetable.first(p, static_cast<size_t>(block)) == run;
  const bool last = scene_.timetable.last(p, static_cast<size_t>(block)) == run;
  return scene_.run_items.index_of(p, block, first, last);
}

int32_t Engine::slot_of(int32_t p, const Item& item) {
  const Actor& a = scene_.actors[static_cast<size_t>(p)];
  const Run& run = run_of(p);
  const bool each = player(p).handles[static_cast<size_t>(item.handle)].each_micro_batch;
  if (!each || item.lag == 0) return scene_.slots.at(p, item.handle, run.micro_batch);
  const std::vector<int32_t>& past = a.past[family_of(p, run.block)];
  const auto lag = static_cast<size_t>(item.lag);
  if (lag > past.size()) return -1;
  // If the run was of the other size of micro-batches, it may have issued nothing under the handle.
  const int32_t s = scene_.slots.at(p, item.handle, past[past.size() - lag]);
  const Slot& sent = scene_.slots(p, s);
  const bool none =
      sent.transfer < 0 && !sent.done &&
      std::ranges::any_of(player(p).blocks, [](const Block& block) { return block.family >= 0; });
  return none ? -1 : s;
}

void Engine::spend(int32_t p, double until, Spent what, int32_t label, int32_t cause) {
  Actor& a = actor(p);
  if (until <= a.d) return;
  result(p).spent_s[static_cast<size_t>(what)] += until - a.d;
  if (scene_.history) scene_.history->add(p, {a.d, until, what, label, cause});
  a.d = until;
}

// ---- runs of blocks

void Engine::begin_run(int32_t p) {
  Actor& a = actor(p);
  a.at = 0;
  a.current = scene_.timetable.run(p, static_cast<size_t>(a.run));
  a.run_items = run_items_of(p, a.run);
  rounds_.run_begins(p);
  if (scene_.play.rules.messages_block) return post_receives(p, a.run, a.h);
  if (a.run == 0) post_receives(p, 0, a.h);
  post_receives(p, a.run + 1, a.h + run_items(a.run_items).host);
}

// Posts the receives of a run that are posted ahead, now or later. The host begins the run at
// `host_at` if it waits for nothing, and posts each receive when it would come to it then.
void Engine::post_receives(int32_t p, int32_t run, double host_at) {
  if (run >= static_cast<int32_t>(scene_.timetable.size(p))) return;
  const int32_t index = run_items_of(p, run);
  const int64_t micro_batch = scene_.timetable.run(p, static_cast<size_t>(run)).micro_batch;
  for (size_t i = 0; i < run_items(index).receives.size(); ++i) {
    const int32_t at = run_items(index).receives[i];
    const double time = std::max(scene_.now, host_at + run_items(index).host_before[i]);
    if (time > scene_.now) {
      actor(p).host_bound = std::max(actor(p).host_bound, time);
      scene_.posts.push_back({time, scene_.order++, p, run, at});
      std::ranges::push_heap(scene_.posts, std::greater<>());
    } else {
      post(p, run_items(index).items[static_cast<size_t>(at)], micro_batch, run_items(index).ref);
    }
  }
}

void Engine::advance(int32_t p) {
  Actor& a = actor(p);
  if (a.state == State::kWaiting || a.state == State::kFinished) return;
  if (a.state == State::kDraining) return finish_player(p);
  while (a.run < static_cast<int32_t>(scene_.timetable.size(p))) {
    if (a.run_items < 0) begin_run(p);
    while (a.at < static_cast<int32_t>(run_items(a.run_items).items.size())) {
      if (begin_stretch(p)) return;
      if (!step(p, run_items(a.run_items).items[static_cast<size_t>(a.at)])) return;
      ++a.at;
    }
    const Run& run = run_of(p);
    a.past[family_of(p, run.block)].push_back(static_cast<int32_t>(run.micro_batch));
    ++a.run;
    a.run_items = -1;
  }
  finish_player(p);
}

void Engine::finish_player(int32_t p) {
  Actor& a = actor(p);
  a.state = State::kDraining;
  if (a.outstanding > 0) return;
  if (a.last_done >= 0) attribute_wait(p, a.last_done);
  spend(p, scene_.now, Spent::kHost, 0);
  a.state = State::kFinished;
}

// ---- items

bool Engine::step(int32_t p, const Item& item) {
  switch (item.kind) {
    case ItemKind::kCompute: return step_compute(p, item);
    case ItemKind::kIssue:
    case ItemKind::kSend: return step_join(p, item);
    case ItemKind::kReceive:
      if (!item.ahead) return step_join(p, item);
      actor(p).h += item.host_s;
      return true;
    case ItemKind::kWait: return step_wait(p, item);
    case ItemKind::kHost: actor(p).h += item.host_s; return true;
  }
  return true;
}

double Engine::noise(int32_t p, const Item& item) const {
  const double sigma = scene_.play.rules.jitter;
  if (sigma == 0) return 1;
  const Run& run = run_of(p);
  const Philox random{scene_.play.rules.seed, static_cast<uint64_t>(player(p).rank)};
  const uint64_t which = (static_cast<uint64_t>(run.block) << 52) ^
                         (static_cast<uint64_t>(run.micro_batch) << 24) ^
                         static_cast<uint64_t>(item.instruction);
  return std::exp(sigma * random.normal(which) - sigma * sigma / 2);  // its mean is 1
}

bool Engine::step_compute(int32_t p, const Item& item) {
  Actor& a = actor(p);
  const double start = std::max({a.d, scene_.now, a.h + item.host_s + item.launch_s});
  if (start > scene_.now) {
    if (start > a.d) a.host_bound = start;
    schedule_step(p, start);
    return false;
  }
  a.h += item.host_s;
  spend(p, scene_.now, Spent::kHost, item.label);
  a.state = State::kComputing;
  a.started = a.updated = scene_.now;
  a.left = device_time(item) * noise(p, item);
  if (player(p).pool >= 0 && !a.loading) {
    a.loading = true;
    a.rate = compute_rate(p);
    add_load(player(p).pool, player(p).ranks);
  }
  a.rate = compute_rate(p);
  schedule_step(p, scene_.now + a.left / a.rate);
  return false;
}

void Engine::finish_compute(int32_t p) {
  Actor& a = actor(p);
  const Item& item = run_items(a.run_items).items[static_cast<size_t>(a.at)];
  a.state = State::kReady;
  PlayerResult& result = scene_.result(p);
  result.busy_s[static_cast<size_t>(Lane::kCompute)] += scene_.now - a.started;
  if (scene_.play.rules.events) {
    scene_.trace.push_back({player(p).rank, Lane::kCompute, 0, run_items(a.run_items).ref,
                            item.instruction, run_of(p).micro_batch, a.started, scene_.now,
                            item.label, -1, 0});
  }
  spend(p, scene_.now, item.spent, item.label);
  ++a.at;
}

bool Engine::step_join(int32_t p, const Item& item) {
  Actor& a = actor(p);
  const double at = std::max({a.d, scene_.now, a.h + item.host_s + item.launch_s});
  if (at > scene_.now) {
    if (at > a.d) a.host_bound = at;
    schedule_step(p, at);
    return false;
  }
  a.h += item.host_s;
  if (item.kind == ItemKind::kReceive) {
    post(p, item, run_of(p).micro_batch, run_items(a.run_items).ref);
  } else {
    join(p, item);
  }
  return true;
}

bool Engine::step_wait(int32_t p, const Item& item) {
  Actor& a = actor(p);
  const int32_t s = slot_of(p, item);
  if (s < 0 || slot(p, s).done) {
    a.h += item.host_s;
    if (item.blocks_host) hold_host(a);
    return true;
  }
  spend(p, scene_.now, Spent::kHost, item.label);
  a.state = State::kWaiting;
  a.slot = s;
  return false;
}

// Sets the host's clock to the device's time if it is behind, because the host has waited for the
// device.
void Engine::hold_host(Actor& a) const {
  if (a.h > scene_.now) a.host_bound = std::max(a.host_bound, a.h);
  a.h = std::max(a.h, scene_.now);
}

void Engine::resume(int32_t p, int32_t t) {
  Actor& a = actor(p);
  attribute_wait(p, t);
  a.state = State::kReady;
  a.slot = -1;
  const Item& item = run_items(a.run_items).items[static_cast<size_t>(a.at)];
  a.h += item.host_s;
  if (item.blocks_host) hold_host(a);
  ++a.at;
  schedule_step(p, scene_.now);
}

// Adds the player's time until now, in which it waited for the transfer, to its uses of time: as a
// bubble until the last player came, then as time of the transfer.
void Engine::attribute_wait(int32_t p, int32_t t) {
  const Transfer& done = transfer(t);
  if (done.last >= 0 && done.last != p) {
    spend(p, std::min(done.ready, scene_.now), Spent::kBubble, done.item->label, done.last);
  }
  expose(p, t);
  spend(p, std::min(done.end, scene_.now), done.item->spent, done.item->label);
}

// Counts the time from d to the end of the transfer as exposed: the transfer's own time, and the
// time of the transfers that were before it in its stream.
void Engine::expose(int32_t p, int32_t t) {
  const double d = actor(p).d;
  double until = transfer(t).end;
  while (t >= 0 && until > d) {
    const Part* mine = scene_.part_of(p, t);
    if (mine == nullptr) return;
    const double from = std::max(d, transfer(t).start);
    if (mine->item->account >= 0 && until > from) {
      result(p).accounts[static_cast<size_t>(mine->item->account)].exposed_s += until - from;
    }
    until = transfer(t).start;
    t = mine->before;
    if (t >= 0) until = std::min(until, transfer(t).end);
  }
}

Result<Outcome> run(const Play& play) {
  RunItemsTable run_items(play);
  Engine counting(play, run_items, /*counts_rounds=*/true);
  auto out = counting.run();
  if (!counting.lost_count()) return out;
  return Engine(play, run_items, /*counts_rounds=*/false).run();
}

}  // namespace tessera::engine
