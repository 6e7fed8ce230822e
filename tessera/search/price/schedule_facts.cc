#include "tessera/search/price/schedule_facts.h"

#include <algorithm>
#include <iterator>

namespace tessera {
namespace {

// The most micro-batches that are simulated, as a multiple of the places.
constexpr int64_t kPlayedRounds = 4;

// Returns the shape of the pipeline for make_schedule(). Slice i of a micro-batch at place q is
// stage i * places + q. It needs slice i at the place before, and slice i - 1 at this place.
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

// Returns the number of micro-batches to simulate: at most kPlayedRounds * places, and with the
// given number's remainder modulo the places.
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

}  // namespace

const SliceSchedule* slice_schedule(const std::string& name) {
  const auto* found = std::find_if(std::begin(kSliceSchedules), std::end(kSliceSchedules),
                                   [&](const SliceSchedule& one) { return one.of_slices == name; });
  return found == std::end(kSliceSchedules) ? nullptr : found;
}

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
  const bool splits = known != nullptr && known->splits_backward;
  // The gradients of inputs as a share of the backward pass.
  const double of_input = splits ? .5 : 1;
  const UnitCosts costs{.backward = of_input,
                        .weight = 1 - of_input,
                        .message = times.message_s,
                        .scale = times.forward_s,
                        .backward_scale = times.backward_s};
  const double played_s = makespan(it->second, shape_of(size, m), costs);
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
  // Adds up the slices of each stage, each of which is a part of a micro-batch.
  const auto stages = static_cast<size_t>(size.places * size.chunks);
  for (size_t s = stages; s < out->held.size(); ++s) out->held[s % stages] += out->held[s];
  out->held.resize(stages);
  for (double& held : out->held) held /= static_cast<double>(slices);
  return &*out;
}

}  // namespace tessera
