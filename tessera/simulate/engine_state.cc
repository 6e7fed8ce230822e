#include "tessera/simulate/engine_state.h"

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

}  // namespace tessera::engine
