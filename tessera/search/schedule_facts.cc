#include "tessera/search/schedule_facts.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kPlayedRounds = 4;  // of as many micro-batches as there are places, at the most

// Slice i of a micro-batch at place q is stage i * places + q: it needs the slice at the place before
// and the slice before at this place.
PipelineShape shape_of(const PipelineSize& size, int64_t micro_batches) {
  const int64_t rounds = std::max<int64_t>(size.slices, 1) * size.chunks;
  PipelineShape shape{.places = size.places, .micro_batches = micro_batches};
  for (int64_t s = 0; s < size.places * rounds; ++s) {
    shape.at.push_back({s % size.places});
    if (size.slices == 0) continue;
    std::vector<int64_t> before;
    if (s % size.places > 0) before.push_back(s - 1);
    if (s >= size.places) before.push_back(s - size.places);
    shape.after.push_back(std::move(before));
  }
  return shape;
}

// As many as the schedule is played with: few, and the same remainder over the places.
int64_t played(int64_t places, int64_t micro_batches) {
  if (micro_batches <= kPlayedRounds * places) return micro_batches;
  return (kPlayedRounds - 1) * places + micro_batches % places;
}

bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.begin(), schedule.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(),
                       [](const BlockRun& run) { return run.kind == BlockRun::kWeight; });
  });
}

// Plays a schedule whose stages have one place each.
class Player {
 public:
  Player(const Schedule& schedule, int64_t places, int64_t micro_batches, const StageTimes& times)
      : schedule_(schedule),
        times_(times),
        places_(static_cast<size_t>(places)),
        micro_batches_(static_cast<size_t>(micro_batches)),
        forward_end_(times.forward_s.size() * micro_batches_, -1),
        backward_end_(forward_end_),
        next_(places_),
        now_(places_) {}

  double run(bool splits_backward) {
    // B and W of a schedule that has both.
    const double of_input = splits_backward ? .5 : 1;
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t place = 0; place < places_; ++place) {
        const std::vector<BlockRun>& row = schedule_[place];
        for (; next_[place] < row.size(); ++next_[place], moves = true) {
          const BlockRun& run = row[next_[place]];
          const double ready = ready_at(run, place);
          if (ready < 0) break;
          const auto stage = static_cast<size_t>(run.stage);
          const double spent = run.kind == BlockRun::kForward ? times_.forward_s[stage]
                               : run.kind == BlockRun::kBackward
                                   ? of_input * times_.backward_s[stage]
                                   : (1 - of_input) * times_.backward_s[stage];
          now_[place] = std::max(now_[place], ready) + spent;
          if (run.kind == BlockRun::kForward) forward_end_[at(stage, run)] = now_[place];
          if (run.kind == BlockRun::kBackward) backward_end_[at(stage, run)] = now_[place];
        }
      }
    }
    return *std::max_element(now_.begin(), now_.end());
  }

 private:
  size_t at(size_t stage, const BlockRun& run) const {
    return stage * micro_batches_ + static_cast<size_t>(run.micro_batch);
  }
  double arrives(double end, size_t from_stage, size_t place) const {
    if (end < 0) return -1;
    return from_stage % places_ == place ? end : end + times_.message_s;
  }
  // -1: what the run needs was not made yet.
  double ready_at(const BlockRun& run, size_t place) const {
    const auto stage = static_cast<size_t>(run.stage);
    const bool is_last = stage + 1 == times_.forward_s.size();
    switch (run.kind) {
      case BlockRun::kForward:
        return stage == 0 ? 0 : arrives(forward_end_[at(stage - 1, run)], stage - 1, place);
      case BlockRun::kBackward:
        return is_last ? forward_end_[at(stage, run)]
                       : arrives(backward_end_[at(stage + 1, run)], stage + 1, place);
      case BlockRun::kWeight: return backward_end_[at(stage, run)];
    }
    return -1;
  }

  const Schedule& schedule_;
  const StageTimes& times_;
  size_t places_, micro_batches_;
  std::vector<double> forward_end_, backward_end_;  // by stage and micro-batch; -1: not yet
  std::vector<size_t> next_;                        // by place: in its row
  std::vector<double> now_;                         // by place
};

}  // namespace

double ScheduleTable::play(const std::string& schedule, const PipelineSize& size,
                           int64_t micro_batches, const StageTimes& times) {
  const int64_t m = played(size.places, micro_batches);
  const Question question{schedule, size, m};
  auto it = made_.find(question);
  if (it == made_.end()) {
    auto made = make_schedule(schedule, shape_of(size, m));
    it =
        made_
            .emplace(question, made ? *std::move(made) : Schedule(static_cast<size_t>(size.places)))
            .first;
  }
  const ScheduleFacts* known = facts(schedule, size, micro_batches);
  const double played_s =
      Player(it->second, size.places, m, times).run(known != nullptr && known->splits_backward);
  const auto places = static_cast<size_t>(size.places);
  double slowest = 0;
  for (size_t place = 0; place < places; ++place) {
    double load = 0;
    for (size_t s = place; s < times.forward_s.size(); s += places)
      load += times.forward_s[s] + times.backward_s[s];
    slowest = std::max(slowest, load);
  }
  return played_s + static_cast<double>(micro_batches - m) * slowest;
}

const ScheduleFacts* ScheduleTable::facts(const std::string& schedule, const PipelineSize& size,
                                          int64_t micro_batches) {
  const int64_t m = played(size.places, micro_batches);
  const auto [it, is_new] = known_.try_emplace({schedule, size, m});
  std::optional<ScheduleFacts>& out = it->second;
  if (!is_new) return out ? &*out : nullptr;
  const PipelineShape shape = shape_of(size, m);
  const auto made = make_schedule(schedule, shape);
  if (!made || !check_schedule_finishes(*made, shape)) return nullptr;
  const bool splits = splits_backward(*made);
  const UnitCosts costs{.forward = 1, .backward = splits ? 1.0 : 2.0, .weight = 1};
  out.emplace();
  out->splits_backward = splits;
  const int64_t slices = std::max<int64_t>(size.slices, 1);
  out->bubble = makespan(*made, shape, costs) / static_cast<double>(3 * size.chunks * slices) -
                static_cast<double>(m);
  out->held.assign(static_cast<size_t>(shape.stages()), 0);
  std::vector<double> now(out->held.size());
  for (const auto& row : *made) {
    for (const BlockRun& run : row) {
      double& holds = now[static_cast<size_t>(run.stage)];
      if (run.kind == BlockRun::kForward) {
        holds += 1;
      } else {
        holds -= splits ? .5 : 1;
      }
      double& most = out->held[static_cast<size_t>(run.stage)];
      most = std::max(most, holds);
    }
  }
  // The slices of a stage hold their parts of it.
  const auto stages = static_cast<size_t>(size.places * size.chunks);
  for (size_t s = stages; s < out->held.size(); ++s) out->held[s % stages] += out->held[s];
  out->held.resize(stages);
  for (double& held : out->held) held /= static_cast<double>(slices);
  return &*out;
}

}  // namespace tessera
