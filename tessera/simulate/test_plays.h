// Plays made by hand, for tests of the engine.
#pragma once

#include <map>
#include <string>

#include "tessera/plan/schedules/schedule.h"
#include "tessera/simulate/engine.h"

namespace tessera::engine {

inline Item compute(double seconds, Spent spent = Spent::kCompute) {
  Item item;
  item.work_s = seconds;
  item.spent = spent;
  return item;
}
inline Item issue(int32_t handle, double seconds, int32_t match = -1, int32_t parties = 1,
                  int32_t stream = 0) {
  Item item;
  item.kind = ItemKind::kIssue;
  item.spent = Spent::kCollective;
  item.lane = Lane::kCollective;
  item.handle = handle;
  item.stream = stream;
  item.match = match;
  item.parties = parties;
  item.work_s = seconds;
  return item;
}
inline Item wait(int32_t handle) {
  Item item;
  item.kind = ItemKind::kWait;
  item.handle = handle;
  return item;
}
inline Item send(int32_t handle, int32_t match, double seconds, int32_t stream,
                 bool rendezvous = false) {
  Item item = issue(handle, seconds, match, 2, stream);
  item.kind = ItemKind::kSend;
  item.spent = Spent::kMessage;
  item.lane = Lane::kMessage;
  item.rendezvous = rendezvous;
  return item;
}
inline Item receive(int32_t handle, int32_t match) {
  Item item = issue(handle, 0, match, 2);
  item.kind = ItemKind::kReceive;
  item.spent = Spent::kMessage;
  item.lane = Lane::kMessage;
  return item;
}

// Makes one player with one block that runs once.
inline Player one_block(int32_t rank, std::vector<Item> items, int32_t handles,
                        int32_t streams = 1) {
  Player player;
  player.rank = rank;
  player.blocks.push_back({{}, std::move(items)});
  player.schedule = {{0, 0}};
  player.handles.assign(static_cast<size_t>(handles), {false});
  player.streams = streams;
  return player;
}

// Makes a play of a schedule: a player for each place, a block for each stage and kind of run,
// eager messages between places, and a meeting of all places of a stage.
class SchedulePlay {
 public:
  SchedulePlay(const Schedule& schedule, const PipelineShape& shape, const UnitCosts& costs)
      : shape_(shape), costs_(costs) {
    play_.micro_batches = shape.micro_batches;
    for (int64_t place = 0; place < shape.places; ++place) {
      Player player;
      player.rank = static_cast<int32_t>(place);
      player.streams = static_cast<int32_t>(shape.places) + 1;  // the last: meetings
      play_.players.push_back(player);
      std::map<std::pair<int64_t, int>, int32_t> blocks;
      for (const BlockRun& run : schedule[static_cast<size_t>(place)]) {
        const auto [it, fresh] =
            blocks.try_emplace({run.stage, run.kind}, static_cast<int32_t>(blocks.size()));
        if (fresh) add_block(place, run);
        play_.players.back().schedule.push_back({it->second, run.micro_batch});
      }
    }
  }
  Play play() const { return play_; }

 private:
  int32_t match(const std::vector<int64_t>& key) {
    return matches_.try_emplace(key, static_cast<int32_t>(matches_.size())).first->second;
  }
  int32_t handle() {
    play_.players.back().handles.push_back({true});
    return static_cast<int32_t>(play_.players.back().handles.size()) - 1;
  }
  // Returns the stages whose run of this kind must have run before that of `stage`.
  std::vector<int64_t> before(int64_t stage, BlockRun::Kind kind) const {
    if (kind == BlockRun::kForward) return shape_.before(stage);
    std::vector<int64_t> out;
    for (int64_t s = 0; kind == BlockRun::kBackward && s < shape_.stages(); ++s) {
      if (!shape_.has_backward(s)) continue;
      for (const int64_t b : shape_.before(s)) {
        if (b == stage) out.push_back(s);
      }
    }
    return out;
  }

  void add_block(int64_t place, const BlockRun& run) {
    Block block;
    const auto& places = shape_.at[static_cast<size_t>(run.stage)];
    for (const int64_t s : before(run.stage, run.kind)) {
      if (shape_.runs_at(s, place)) continue;
      const int32_t h = handle();
      block.items.push_back(receive(h, match({run.kind, s, run.stage, place})));
      block.items.push_back(wait(h));
    }
    if (places.size() > 1) {
      const int32_t h = handle();
      block.items.push_back(issue(h, 0, match({9, run.kind, run.stage}),
                                  static_cast<int32_t>(places.size()),
                                  static_cast<int32_t>(shape_.places)));
      block.items.push_back(wait(h));
    }
    const double unit = run.kind == BlockRun::kForward    ? costs_.forward
                        : run.kind == BlockRun::kBackward ? costs_.backward
                                                          : costs_.weight;
    const double scale = costs_.scale.empty() ? 1 : costs_.scale[static_cast<size_t>(run.stage)];
    block.items.push_back(compute(unit * scale / 2));
    block.items.push_back(compute(unit * scale / 2));
    if (place == places[0]) add_sends(block, run);
    play_.players.back().blocks.push_back(std::move(block));
  }

  void add_sends(Block& block, const BlockRun& run) {
    for (int64_t s = 0; s < shape_.stages(); ++s) {
      for (const int64_t b : before(s, run.kind)) {
        if (b != run.stage || (run.kind == BlockRun::kBackward && !shape_.has_backward(s)))
          continue;
        for (const int64_t target : shape_.at[static_cast<size_t>(s)]) {
          if (shape_.runs_at(run.stage, target)) continue;
          block.items.push_back(send(handle(), match({run.kind, run.stage, s, target}),
                                     costs_.message, static_cast<int32_t>(target)));
        }
      }
    }
  }

  const PipelineShape& shape_;
  const UnitCosts& costs_;
  Play play_;
  std::map<std::vector<int64_t>, int32_t> matches_;
};

}  // namespace tessera::engine
