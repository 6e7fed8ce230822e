#include "tessera/simulate/engine_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::engine {

int32_t Slots::at(int32_t player, int32_t handle, int64_t micro_batch) {
  const auto p = static_cast<size_t>(player);
  const bool each = play_.players[p].handles[static_cast<size_t>(handle)].each_micro_batch;
  std::vector<int32_t>& bases = bases_[p][static_cast<size_t>(handle)];
  const auto chunk = static_cast<size_t>(each ? micro_batch / kTogether : 0);
  if (chunk >= bases.size()) bases.resize(chunk + 1, -1);
  if (bases[chunk] < 0) {
    bases[chunk] = static_cast<int32_t>(slots_[p].size());
    slots_[p].resize(slots_[p].size() + static_cast<size_t>(each ? kTogether : 1));
  }
  return bases[chunk] + static_cast<int32_t>(each ? micro_batch % kTogether : 0);
}

Scene::Scene(const Play& played, RunItemsTable& table)
    : play(played),
      run_items(table),
      timetable(played),
      actors(played.players.size()),
      slots(played),
      loads(played.pools.size(), 0),
      results(played.players.size()),
      stretches(table) {
  for (size_t p = 0; p < actors.size(); ++p) {
    const Player& player = played.players[p];
    actors[p].queues.resize(static_cast<size_t>(player.streams));
    actors[p].past.resize(player.blocks.size());
    results[p].accounts.resize(static_cast<size_t>(player.accounts));
  }
  if (played.rules.path) history.emplace(actors.size());
}

Part* Scene::part_of(int32_t p, int32_t t) {
  for (Part& part : transfer(t).parts) {
    if (part.player == p) return &part;
  }
  return nullptr;
}

const Part* Scene::part_of(int32_t p, int32_t t) const {
  for (const Part& part : transfer(t).parts) {
    if (part.player == p) return &part;
  }
  return nullptr;
}

double Scene::head_rate(int32_t p) const {
  const RunItems& of_run = items_of(p);
  const Item& head = of_run.items[static_cast<size_t>(actor(p).stretch.head)];
  return head.kind == ItemKind::kCompute ? 1 / of_run.slowed(actor(p).stretch.manner.beside) : 1;
}

namespace {

// Returns the critical path, which ends with the player that ends last; if several end together,
// with the first of these.
std::vector<PathPart> path_of(const Scene& scene) {
  if (scene.actors.empty()) return {};
  const double end = std::ranges::max(scene.actors, {}, &Actor::d).d;
  const auto last = std::ranges::find_if(
      scene.actors, [end](const Actor& a) { return a.d >= end - kSameTime * end; });
  return critical_path(*scene.history, scene.run_items,
                       static_cast<int32_t>(last - scene.actors.begin()),
                       last->d + scene.left_out_s);
}

// Returns the first transfer in the queue of the stream that the part joins; -1: the queue is
// empty.
int32_t first_in_stream(const Scene& scene, int32_t player, const Part& part) {
  const auto& queue =
      scene.actors[static_cast<size_t>(player)].queues[static_cast<size_t>(part.item->stream)];
  return queue.empty() ? -1 : queue.front();
}

// Returns a text that says what an unfinished player waits for. Sets `next` to the player that must
// act first; -1: there is none.
std::string waits_text(const Scene& scene, int32_t p, int32_t& next) {
  const Actor& a = scene.actors[static_cast<size_t>(p)];
  next = -1;
  int32_t t = -1;
  if (a.slot >= 0) {
    t = scene.slots(p, a.slot).transfer;
  } else {
    for (const auto& queue : a.queues) {
      if (t < 0 && !queue.empty()) t = queue.front();
    }
    // The player has ended but has unfinished transfers. The first of them by number is named.
    for (size_t open = 0; open < scene.transfers.size(); ++open) {
      const Transfer& gathering = scene.transfers[open];
      if (gathering.item->match < 0 || gathering.phase == Phase::kDone) continue;
      const bool mine = std::any_of(gathering.parts.begin(), gathering.parts.end(),
                                    [&](const Part& part) { return part.player == p; });
      if (!mine) continue;
      if (t < 0 || static_cast<int32_t>(open) < t) t = static_cast<int32_t>(open);
      break;
    }
  }
  const std::string me = fmt::format("rank {}", scene.play.players[static_cast<size_t>(p)].rank);
  if (t < 0) return me + " waits for what nobody issued";
  // The transfer may wait for an earlier transfer in its stream, which is then looked at instead.
  for (size_t depth = 0; depth < scene.transfers.size(); ++depth) {
    const Transfer& open = scene.transfers[static_cast<size_t>(t)];
    int32_t before = -1;
    for (const Part& part : open.parts) {
      if (!part.queued || part.player != p) continue;
      before = first_in_stream(scene, p, part);
    }
    if (before < 0 || before == t) break;
    t = before;
  }
  const Transfer& open = scene.transfers[static_cast<size_t>(t)];
  const std::string what =
      scene.play.labels.empty() ? "" : scene.play.labels[static_cast<size_t>(open.item->label)];
  const int32_t match = open.item->match;
  for (size_t q = 0; q < scene.play.players.size() && next < 0; ++q) {
    if (static_cast<int32_t>(q) == p) continue;
    const auto part = std::find_if(open.parts.begin(), open.parts.end(), [&](const Part& x) {
      return x.player == static_cast<int32_t>(q);
    });
    if (part != open.parts.end()) {
      if (!part->queued) continue;
      const int32_t before = first_in_stream(scene, static_cast<int32_t>(q), *part);
      if (before >= 0 && before != t) next = static_cast<int32_t>(q);  // another is first there
      continue;
    }
    for (const Block& block : scene.play.players[q].blocks) {
      for (const Item& item : block.items) {
        if (match >= 0 && item.match == match) next = static_cast<int32_t>(q);
      }
    }
  }
  if (next < 0) return fmt::format("{} waits for {}, which has no other side", me, what);
  return fmt::format("{} waits for {} with rank {}", me, what,
                     scene.play.players[static_cast<size_t>(next)].rank);
}

}  // namespace

Outcome outcome_of(Scene& scene) {
  Outcome out;
  for (const Actor& a : scene.actors) out.end_s = std::max(out.end_s, a.d);
  for (size_t p = 0; p < scene.actors.size(); ++p) {
    scene.results[p].end_s = scene.actors[p].d + scene.left_out_s;
    scene.results[p].spent_s[static_cast<size_t>(Spent::kBubble)] += out.end_s - scene.actors[p].d;
  }
  out.end_s += scene.left_out_s;
  if (scene.history) out.critical_path = path_of(scene);
  out.players = std::move(scene.results);
  out.events = std::move(scene.trace);
  std::stable_sort(out.events.begin(), out.events.end(), [](const auto& x, const auto& y) {
    return std::tie(x.rank, x.start_s) < std::tie(y.rank, y.start_s);
  });
  number_matches(out.events);
  out.played_events = scene.events;
  return out;
}

tl::unexpected<Error> deadlock(const Scene& scene) {
  int32_t p = 0;
  while (scene.actors[static_cast<size_t>(p)].state == State::kFinished) ++p;
  std::vector<int32_t> path;
  std::vector<std::string> of_run;
  while (p >= 0 && std::find(path.begin(), path.end(), p) == path.end()) {
    path.push_back(p);
    int32_t next = -1;
    of_run.push_back(waits_text(scene, p, next));
    p = next;
  }
  const auto first = std::find(path.begin(), path.end(), p);
  std::string message;
  for (auto it = p < 0 ? path.end() - 1 : first; it != path.end(); ++it) {
    message += (message.empty() ? "" : ", ") + of_run[static_cast<size_t>(it - path.begin())];
  }
  return check_failed("deadlock: " + message);
}

}  // namespace tessera::engine
