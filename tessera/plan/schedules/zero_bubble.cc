// Zero-bubble schedules (docs/strategies/pipelines.md section 6; Qi et al. 2023). They split the
// backward pass into B (gradient of the input) and W (gradients of the weights), and move W into
// times at which the place would otherwise wait.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/plan/schedules/generators.h"

namespace tessera::schedules {
namespace {

// Returns `warm_up` F runs, then F and B in turn. The W of a micro-batch comes after the B of the
// micro-batch `lag` later.
std::vector<BlockRun> with_late_weights(int64_t stage, int64_t warm_up, int64_t lag, int64_t m) {
  std::vector<BlockRun> runs;
  for (int64_t x = 0; x < warm_up; ++x) runs.push_back({BlockRun::kForward, x, stage});
  for (int64_t x = 0; x < m + lag; ++x) {
    if (x + warm_up < m) runs.push_back({BlockRun::kForward, x + warm_up, stage});
    if (x < m) runs.push_back({BlockRun::kBackward, x, stage});
    if (x >= lag) runs.push_back({BlockRun::kWeight, x - lag, stage});
  }
  return runs;
}

// Makes the schedules H1 (depth = 1) and H2 (depth = 2). Stage i of n runs depth*(n-1-i) F blocks
// first, and runs each W depth*i micro-batches after the B. So each stage has at most depth*(n-1) +
// 1 micro-batches in flight.
Result<Schedule> h(std::string_view name, int64_t depth, const PipelineShape& shape) {
  TESSERA_TRY_VOID(one_stage_a_place(name, shape));
  const int64_t n = shape.places;
  const int64_t m = shape.micro_batches;
  // Micro-batches in flight at each stage; at most max(m, n), because a small number of
  // micro-batches cannot fill the warm-up of H2.
  const int64_t held = std::min(depth * (n - 1) + 1, std::max(m, n));
  Schedule rows(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t warm_up = std::min(depth * (n - 1 - i), held - 1);
    rows[static_cast<size_t>(shape.at[static_cast<size_t>(i)][0])] =
        with_late_weights(i, std::min(warm_up, m), std::min(held - 1 - warm_up, m), m);
  }
  return rows;
}

// `VShape` makes the V-shaped zero-bubble schedule. There are 2n half-size stages; place i has the
// stages i and 2n-1-i and keeps the activations of at most 2n micro-batches of half-size stages.
// List scheduling chooses the blocks, each of which takes one step.
class VShape {
 public:
  explicit VShape(const PipelineShape& shape)
      : n_(shape.places),
        m_(shape.micro_batches),
        places_(static_cast<size_t>(n_)),
        forward_end_(static_cast<size_t>(2 * n_ * m_), kNever),
        backward_end_(static_cast<size_t>(2 * n_ * m_), kNever) {}

  Schedule order() {
    for (int64_t left = 6 * n_ * m_; left > 0;) {
      ++now_;
      std::vector<std::pair<size_t, BlockRun>> step;
      for (size_t i = 0; i < places_.size(); ++i) {
        if (const auto run = choose(i)) step.emplace_back(i, *run);
      }
      TESSERA_CHECK(!step.empty(), "zb_v: nothing can run in step {}", now_);
      for (const auto& [place, run] : step) apply(place, run);
      left -= static_cast<int64_t>(step.size());
    }
    Schedule rows;
    for (Place& place : places_) rows.push_back(std::move(place.row));
    return rows;
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  struct Place {
    std::vector<BlockRun> row;
    // By half of the V: number of F and B runs done.
    std::array<int64_t, 2> forwards{}, backwards{};
    std::vector<BlockRun> weights;  // W runs whose B has run
    size_t next_weight = 0;
    int64_t held = 0;
  };
  enum Choice { kF0, kF1, kB0, kB1, kW };  // 0: stages 0 to n-1, 1: stages n to 2n-1

  size_t index(int64_t stage, int64_t m) const { return static_cast<size_t>(stage * m_ + m); }

  // Returns the choices of the place for its next run, the best one first. Before the first B of
  // its later stage, F runs come first. Then the order repeats B, its W, F, so that an activation
  // is freed before the next one is made. When all F are done, B runs come before W runs.
  std::vector<Choice> wishes(const Place& place) const {
    if (place.forwards[0] == m_ && place.forwards[1] == m_) return {kB0, kB1, kW};
    if (place.backwards[1] == 0) return {kF1, kF0, kB1};
    switch (place.row.back().kind) {
      case BlockRun::kBackward: return {kW, kF1, kF0, kB0, kB1};
      case BlockRun::kWeight: return {kF1, kF0, kB0, kB1, kW};
      case BlockRun::kForward: return {kB0, kB1, kF1, kF0, kW};
    }
    return {};
  }

  std::optional<BlockRun> choose(size_t i) const {
    for (const Choice choice : wishes(places_[i])) {
      if (const auto run = ready(i, choice)) return run;
    }
    return std::nullopt;
  }

  std::optional<BlockRun> ready(size_t i, Choice choice) const {
    const Place& place = places_[i];
    if (choice == kW) {
      if (place.next_weight == place.weights.size()) return std::nullopt;
      return place.weights[place.next_weight];
    }
    const bool forward = choice == kF0 || choice == kF1;
    const size_t half = choice == kF0 || choice == kB0 ? 0 : 1;
    const int64_t stage =
        half == 0 ? static_cast<int64_t>(i) : 2 * n_ - 1 - static_cast<int64_t>(i);
    const int64_t m = forward ? place.forwards[half] : place.backwards[half];
    if (m == m_) return std::nullopt;
    if (forward) {
      if (place.held == 2 * n_) return std::nullopt;
      if (stage > 0 && forward_end_[index(stage - 1, m)] >= now_) return std::nullopt;
      return BlockRun{BlockRun::kForward, m, stage};
    }
    if (forward_end_[index(stage, m)] >= now_) return std::nullopt;
    if (stage + 1 < 2 * n_ && backward_end_[index(stage + 1, m)] >= now_) return std::nullopt;
    return BlockRun{BlockRun::kBackward, m, stage};
  }

  void apply(size_t i, const BlockRun& run) {
    Place& place = places_[i];
    place.row.push_back(run);
    const size_t half = run.stage < n_ ? 0 : 1;
    switch (run.kind) {
      case BlockRun::kForward:
        ++place.forwards[half];
        ++place.held;
        forward_end_[index(run.stage, run.micro_batch)] = now_;
        break;
      case BlockRun::kBackward:
        ++place.backwards[half];
        place.weights.push_back({BlockRun::kWeight, run.micro_batch, run.stage});
        backward_end_[index(run.stage, run.micro_batch)] = now_;
        break;
      case BlockRun::kWeight:
        ++place.next_weight;
        --place.held;
        break;
    }
  }

  int64_t n_, m_;
  int64_t now_ = 0;
  std::vector<Place> places_;
  // By index(): the step in which F or B ran; kNever: not yet.
  std::vector<int64_t> forward_end_, backward_end_;
};

}  // namespace

Result<Schedule> zero_bubble_h1(const PipelineShape& shape) { return h("zb_h1", 1, shape); }
Result<Schedule> zero_bubble_h2(const PipelineShape& shape) { return h("zb_h2", 2, shape); }

Result<Schedule> zero_bubble_v(const PipelineShape& shape) {
  const int64_t n = shape.places;
  if (shape.stages() != 2 * n) {
    return wrong_shape("zb_v", fmt::format("{} stages, two a place", 2 * n),
                       fmt::format("{} stages", shape.stages()));
  }
  for (int64_t s = 0; s < 2 * n; ++s) {
    TESSERA_TRY_VOID(stage_at("zb_v", shape, s, std::min(s, 2 * n - 1 - s)));
  }
  return VShape(shape).order();
}

}  // namespace tessera::schedules
