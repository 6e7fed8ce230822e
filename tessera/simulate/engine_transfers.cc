// The part of the engine that moves transfers: collectives and messages on streams and links.
#include <algorithm>
#include <limits>

#include "tessera/base/check.h"
#include "tessera/simulate/engine_steps.h"

namespace tessera::engine {
namespace {

DirectedUse directed(const Part& part) {
  const LinkUse& use = part.item->use;
  switch (part.item->kind) {
    case ItemKind::kSend: return {use.inner, 0, use.nic, 0};
    case ItemKind::kReceive: return {0, use.inner, 0, use.nic};
    default: return {use.inner, use.inner, use.nic, use.nic};
  }
}

// Returns whether the transfer disturbs a stretch: it is a collective, or uses links in the node.
bool is_loud(const Item& item) { return item.kind == ItemKind::kIssue || item.use.inner > 0; }

}  // namespace

void Engine::schedule_transfer(int32_t t, double time) {
  scene_.agenda.set(static_cast<int32_t>(scene_.actors.size()) + t, time, scene_.order++);
}

// Returns the transfer in which the item takes part, and makes it if no other player has come yet.
int32_t Engine::transfer_of(int32_t p, const Item& item, int64_t micro_batch) {
  const auto make = [&] {
    Transfer& fresh = scene_.transfers.add();
    fresh.item = &item;
    fresh.micro_batch = micro_batch;
    const auto number = static_cast<int32_t>(scene_.transfers.size()) - 1;
    rounds_.transfer_begins(number);
    return number;
  };
  if (item.match < 0) return make();
  const bool message = item.kind != ItemKind::kIssue;
  const auto ordinal =
      static_cast<size_t>(message ? micro_batch : int64_t{actor(p).came[item.match]++});
  const auto match = static_cast<size_t>(item.match);
  if (scene_.meeting.size() <= match) scene_.meeting.resize(match + 1);
  std::vector<int32_t>& here = scene_.meeting[match];
  if (here.size() <= ordinal) here.resize(ordinal + 1, -1);
  if (here[ordinal] < 0) here[ordinal] = make();
  Transfer& found = transfer(here[ordinal]);
  if (item.kind != ItemKind::kReceive) found.item = &item;
  return here[ordinal];
}

void Engine::join(int32_t p, const Item& item) {
  const Run& run = run_of(p);
  const int32_t t = transfer_of(p, item, run.micro_batch);
  const int32_t s = slot_of(p, item);
  transfer(t).parts.push_back({p, s, &item, run_items(actor(p).run_items).ref, false, -1});
  transfer(t).last = p;
  transfer(t).ready = scene_.now;
  slot(p, s) = {t, false};
  ++actor(p).outstanding;
  if (item.kind == ItemKind::kIssue) ++actor(p).issued;
  const bool met = !item.rendezvous || item.parties == 1 || transfer(t).posted;
  if (met) enter_stream(t, transfer(t).parts.size() - 1);
}

// Puts the part into the queue of its stream. A message that must wait for its receiver is put
// there only when the receive is posted, so that until then other messages may pass it.
void Engine::enter_stream(int32_t t, size_t index) {
  Part& part = transfer(t).parts[index];
  Queue& queue = actor(part.player).queues[static_cast<size_t>(part.item->stream)];
  part.queued = true;
  part.before = queue.empty() ? -1 : queue.back();
  queue.push_back(t);
  if (queue.size() > 1) return;
  ++transfer(t).heads;
  try_start(t);
}

// Makes a transfer of a collective in which only this player takes part and that began earlier, at
// `start_s`. It is taken to have run at full speed until now. Returns the transfer.
int32_t Engine::join_underway(int32_t p, const Item& item, double start_s) {
  const Run& run = run_of(p);
  const int32_t t = transfer_of(p, item, run.micro_batch);
  Transfer& moving = transfer(t);
  const int32_t s = slot_of(p, item);
  moving.parts.push_back({p, s, &item, run_items(actor(p).run_items).ref, true, -1});
  moving.last = p;
  moving.ready = moving.start = start_s;
  moving.heads = 1;
  slot(p, s) = {t, false};
  Actor& a = actor(p);
  ++a.outstanding;
  ++a.issued;
  if (is_loud(item)) ++a.loud;
  a.queues[static_cast<size_t>(item.stream)].push_back(t);
  moving.phase = Phase::kLatency;
  if (start_s + item.latency_s > scene_.now) {
    schedule_transfer(t, start_s + item.latency_s);
    return t;
  }
  begin_flow(t);
  moving.left = start_s + device_time(item) - scene_.now;
  schedule_transfer(t, scene_.now + moving.left / moving.rate);
  return t;
}

// Posts a receive. A receive joins no stream. It only lets the message start, if the message waits
// for its receiver.
void Engine::post(int32_t p, const Item& item, int64_t micro_batch, BlockRef block) {
  const int32_t t = transfer_of(p, item, micro_batch);
  Transfer& message = transfer(t);
  const int32_t s = scene_.slots.at(p, item.handle, micro_batch);
  message.parts.push_back({p, s, &item, block, false, -1});
  const bool first = !message.posted;
  message.posted = true;
  if (message.phase == Phase::kDone) {
    slot(p, s) = {t, true};
    count_part(t, message.parts.back());
    Actor& a = actor(p);
    if (a.state == State::kWaiting && a.slot == s) resume(p, t);
    return;
  }
  slot(p, s) = {t, false};
  ++actor(p).outstanding;
  if (message.phase != Phase::kGathering) {
    if (is_loud(*message.item)) {
      ++actor(p).loud;
      interrupt(p);
    }
    if (message.phase == Phase::kTransfer) {
      actor(p).active.push_back(t);
      update_links(p);
      update_compute(p);
    }
    return;
  }
  const Part& sender = message.parts[0];
  if (first && sender.item->kind == ItemKind::kSend && !sender.queued) enter_stream(t, 0);
}

void Engine::try_start(int32_t t) {
  const Transfer& gathering = transfer(t);
  const Item& item = *gathering.item;
  if (item.kind == ItemKind::kReceive || gathering.phase != Phase::kGathering) return;
  if (item.kind == ItemKind::kSend) {
    if (gathering.heads < 1) return;
  } else if (gathering.heads < item.parties) {
    return;
  }
  start(t);
}

void Engine::start(int32_t t) {
  Transfer& starting = transfer(t);
  starting.phase = Phase::kLatency;
  starting.start = scene_.now;
  double latency = 0;
  for (const Part& part : starting.parts) {
    latency = std::max(latency, part.item->latency_s);
    if (!is_loud(*starting.item)) continue;
    ++actor(part.player).loud;
    interrupt(part.player);
  }
  schedule_transfer(t, scene_.now + latency);
  if (starting.item->members == 0) return;
  for (size_t i = 0; i < transfer(t).parts.size(); ++i) {
    const Player& member = player(transfer(t).parts[i].player);
    add_load(member.pool, member.ranks);
  }
}

void Engine::on_transfer(int32_t t) {
  Transfer& moving = transfer(t);
  if (moving.phase == Phase::kLatency && moving.item->work_s > 0) return begin_flow(t);
  finish_transfer(t);
}

void Engine::begin_flow(int32_t t) {
  Transfer& moving = transfer(t);
  moving.phase = Phase::kTransfer;
  moving.left = 0;
  for (const Part& part : moving.parts) moving.left = std::max(moving.left, part.item->work_s);
  moving.updated = scene_.now;
  moving.rate = 0;
  for (const Part& part : moving.parts) actor(part.player).active.push_back(t);
  for (size_t i = 0; i < moving.parts.size(); ++i) {
    update_links(moving.parts[i].player);
    update_compute(moving.parts[i].player);
  }
}

void Engine::finish_transfer(int32_t t) {
  Transfer& done = transfer(t);
  done.phase = Phase::kDone;
  done.end = scene_.now;
  for (const Part& part : done.parts) {
    Actor& a = actor(part.player);
    slot(part.player, part.slot) = {t, true};
    --a.outstanding;
    if (part.item->kind == ItemKind::kIssue) --a.issued;
    if (is_loud(*done.item)) --a.loud;
    a.last_done = t;
    std::erase(a.active, t);
    count_part(t, part);
  }
  if (done.item->members > 0) {
    for (const Part& part : done.parts)
      add_load(player(part.player).pool, -player(part.player).ranks);
  }
  for (size_t i = 0; i < done.parts.size(); ++i) {
    const Part part = transfer(t).parts[i];
    update_links(part.player);
    update_compute(part.player);
    Actor& a = actor(part.player);
    if (a.state == State::kWaiting && a.slot == part.slot) resume(part.player, t);
    if (a.state == State::kDraining && a.outstanding == 0) schedule_step(part.player, scene_.now);
  }
  for (size_t i = 0; i < transfer(t).parts.size(); ++i) {
    const Part part = transfer(t).parts[i];
    if (!part.queued) continue;
    auto& queue = actor(part.player).queues[static_cast<size_t>(part.item->stream)];
    TESSERA_CHECK(!queue.empty() && queue.front() == t, "transfer {} is not first of its stream",
                  t);
    queue.pop_front();
    if (queue.empty()) continue;
    ++transfer(queue.front()).heads;
    try_start(queue.front());
  }
}

void Engine::count_part(int32_t t, const Part& part) {
  const Transfer& done = transfer(t);
  PlayerResult& result = scene_.result(part.player);
  const double busy = done.end - done.start;
  if (part.queued) result.busy_s[static_cast<size_t>(part.item->lane)] += busy;
  if (part.item->account >= 0) {
    result.accounts[static_cast<size_t>(part.item->account)].busy_s += busy;
  }
  if (scene_.play.rules.events) {
    scene_.trace.push_back({player(part.player).rank, part.item->lane, part.item->stream,
                            part.block, part.item->instruction, done.micro_batch, done.start,
                            done.end, part.item->label, -1, part.item->bytes, t});
  }
}

// ---- rates

double Engine::compute_rate(int32_t p) const {
  double slowdown = 1;
  for (const int32_t t : scene_.actors[static_cast<size_t>(p)].active) {
    const LinkUse& use = scene_.transfers[static_cast<size_t>(t)].item->use;
    if (use.inner > 0) slowdown = std::max(slowdown, scene_.play.rules.inner_slowdown);
    if (use.nic > 0) slowdown = std::max(slowdown, scene_.play.rules.nic_slowdown);
  }
  return 1 / (slowdown * crowd(player(p).pool));
}

// Returns how many times longer all work of a pool takes because more ranks than cores are at work.
double Engine::crowd(int32_t pool) const {
  if (pool < 0) return 1;
  const auto i = static_cast<size_t>(pool);
  return std::max(1.0, scene_.loads[i] / scene_.play.pools[i]);
}

void Engine::add_load(int32_t pool, double ranks) {
  if (pool < 0) return;
  const double before = crowd(pool);
  scene_.loads[static_cast<size_t>(pool)] += ranks;
  if (crowd(pool) == before) return;
  for (size_t q = 0; q < scene_.actors.size(); ++q) {
    const auto other = static_cast<int32_t>(q);
    if (player(other).pool != pool) continue;
    update_compute(other);
    for (const int32_t t : actor(other).active) set_rate(t);
  }
}

// Returns the fraction of its full speed at which a transfer runs because of crowded cores. The
// price of the transfer already includes that the ranks of its own group crowd the cores, so only
// other ranks count here.
double Engine::own_share(const Transfer& moving) const {
  if (moving.item->members == 0) return 1;
  double share = 1;
  for (const Part& part : moving.parts) {
    const int32_t pool = player(part.player).pool;
    if (pool < 0) continue;
    const double alone =
        std::max(1.0, moving.item->members / scene_.play.pools[static_cast<size_t>(pool)]);
    share = std::min(share, alone / crowd(pool));
  }
  return std::min(share, 1.0);
}

void Engine::update_compute(int32_t p) {
  Actor& a = actor(p);
  if (a.state == State::kStretch) return change_rate(p);
  if (a.state != State::kComputing) return;
  const double rate = compute_rate(p);
  if (rate == a.rate) return;
  a.left = std::max(0.0, a.left - (scene_.now - a.updated) * a.rate);
  a.updated = scene_.now;
  a.rate = rate;
  schedule_step(p, scene_.now + a.left / a.rate);
}

// Computes the shares of the player's links anew, and then the rates of the transfers that use
// them.
void Engine::update_links(int32_t p) {
  const Actor& a = actor(p);
  if (a.active.empty()) return update_slowing(p);
  uses_.clear();
  std::vector<Part*>& mine = parts_here_;
  mine.clear();
  for (const int32_t t : a.active) {
    mine.push_back(scene_.part_of(p, t));
    uses_.push_back(directed(*mine.back()));
  }
  if (mine.size() == 1) {
    mine[0]->share = 1;
  } else {
    const std::vector<double> shares = fair_rates(uses_);
    for (size_t i = 0; i < mine.size(); ++i) mine[i]->share = shares[i];
  }
  update_slowing(p);
}

// Updates the rates of the player's transfers when the player begins or ends to compute.
void Engine::update_slowing(int32_t p) {
  Actor& a = actor(p);
  a.links_see_compute = a.state == State::kComputing;
  for (const int32_t t : a.active) {
    Part& mine = *scene_.part_of(p, t);
    const bool slowed = a.links_see_compute && mine.item->use.inner > 0;
    mine.rate = slowed ? mine.share / scene_.play.rules.collective_slowdown : mine.share;
  }
  for (const int32_t t : a.active) set_rate(t);
}

void Engine::set_rate(int32_t t) {
  Transfer& moving = transfer(t);
  double rate = std::numeric_limits<double>::infinity();
  for (const Part& part : moving.parts) rate = std::min(rate, part.rate);
  rate *= own_share(moving);
  if (rate == moving.rate) return;
  moving.left = std::max(0.0, moving.left - (scene_.now - moving.updated) * moving.rate);
  moving.updated = scene_.now;
  moving.rate = rate;
  schedule_transfer(t, scene_.now + moving.left / rate);
}

}  // namespace tessera::engine
