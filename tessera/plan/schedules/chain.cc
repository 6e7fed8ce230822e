// Schedules for a chain of stages: GPipe, 1F1B and eager 1F1B with one stage at each place, and
// interleaved 1F1B with several (chunks).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/plan/schedules/generators.h"

namespace tessera::schedules {
namespace {

// Returns the runs of a stage: `warm_up` forward blocks, then forward and backward blocks in turn,
// then the remaining backward blocks.
std::vector<BlockRun> in_turn(int64_t stage, int64_t warm_up, int64_t micro_batches) {
  std::vector<BlockRun> runs;
  runs.reserve(2 * static_cast<size_t>(micro_batches));
  for (int64_t m = 0; m < warm_up; ++m) runs.push_back({BlockRun::kForward, m, stage});
  for (int64_t m = 0; m < micro_batches; ++m) {
    if (m + warm_up < micro_batches) {
      runs.push_back({BlockRun::kForward, m + warm_up, stage});
    }
    runs.push_back({BlockRun::kBackward, m, stage});
  }
  return runs;
}

// Returns the runs of all places, each of which has one stage. warm_up(n) is the number of first
// forward blocks of a stage that n stages follow.
template <class WarmUp>
Schedule in_turn_everywhere(const PipelineShape& shape, WarmUp warm_up) {
  Schedule rows(static_cast<size_t>(shape.places));
  for (int64_t s = 0; s < shape.stages(); ++s) {
    const auto place = static_cast<size_t>(shape.at[static_cast<size_t>(s)][0]);
    rows[place] = in_turn(s, std::min(shape.micro_batches, warm_up(shape.stages() - 1 - s)),
                          shape.micro_batches);
  }
  return rows;
}

}  // namespace

tl::unexpected<Error> wrong_shape(std::string_view name, std::string_view expected,
                                  std::string_view found) {
  return invalid_input(fmt::format("schedule '{}': expected {}, found {}", name, expected, found));
}

Status one_stage_a_place(std::string_view name, const PipelineShape& shape) {
  for (int64_t place = 0; place < shape.places; ++place) {
    const size_t count = shape.stages_of(place).size();
    if (count == 1) continue;
    return wrong_shape(name, "one stage at each place",
                       fmt::format("{} at place {}", count, place));
  }
  for (size_t s = 0; s < shape.at.size(); ++s) {
    if (shape.at[s].size() == 1) continue;
    return wrong_shape(name, "one place for each stage",
                       fmt::format("stage {} at {} places", s, shape.at[s].size()));
  }
  return {};
}

Status stage_at(std::string_view name, const PipelineShape& shape, int64_t stage, int64_t place) {
  const auto& at = shape.at[static_cast<size_t>(stage)];
  if (at.size() == 1 && at[0] == place) return {};
  return wrong_shape(
      name, fmt::format("stage {} at place {}", stage, place),
      at.size() == 1 ? fmt::format("place {}", at[0]) : fmt::format("{} places", at.size()));
}

Status round_robin(std::string_view name, const PipelineShape& shape) {
  const int64_t n = shape.places;
  if (shape.stages() % n != 0) {
    return wrong_shape(name, fmt::format("a multiple of {} stages, one chunk a place", n),
                       fmt::format("{} stages", shape.stages()));
  }
  for (int64_t s = 0; s < shape.stages(); ++s) {
    TESSERA_TRY_VOID(stage_at(name, shape, s, s % n));
  }
  return {};
}

Result<Schedule> gpipe(const PipelineShape& shape) {
  TESSERA_TRY_VOID(one_stage_a_place("gpipe", shape));
  return in_turn_everywhere(shape, [&](int64_t) { return shape.micro_batches; });
}

Result<Schedule> one_f_one_b(const PipelineShape& shape) {
  TESSERA_TRY_VOID(one_stage_a_place("1f1b", shape));
  return in_turn_everywhere(shape, [](int64_t behind) { return behind; });
}

// Makes eager 1F1B: stage i of n runs min(m, 2(n-i)-1) forward blocks before its first backward
// block (docs/strategies/pipelines.md section 4).
Result<Schedule> eager_one_f_one_b(const PipelineShape& shape) {
  TESSERA_TRY_VOID(one_stage_a_place("eager_1f1b", shape));
  return in_turn_everywhere(shape, [](int64_t behind) { return 2 * behind; });
}

// Makes interleaved 1F1B with k chunks at each of n places and m micro-batches
// (docs/theory/superscaler.md section 8, docs/strategies/pipelines.md section 5). The t-th forward
// block of a place is of chunk (t mod nk) div n; backward blocks take the chunks in reverse order.
// Place i runs min(n(k-1) + 2(n-1-i), mk) forward blocks first.
Result<Schedule> interleaved(const PipelineShape& shape) {
  TESSERA_TRY_VOID(round_robin("interleaved", shape));
  const int64_t n = shape.places;
  const int64_t m = shape.micro_batches;
  const int64_t chunks = shape.stages() / n;
  if (m % n != 0) {
    return wrong_shape("interleaved",
                       fmt::format("micro_batches of {0}, {1}, {2}, ... (a multiple of the {0} "
                                   "places)",
                                   n, 2 * n, 3 * n),
                       fmt::format("{}", m));
  }
  Schedule rows(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto micro_step = [&](BlockRun::Kind kind, int64_t t) {
      const int64_t chunk = t % (n * chunks) / n;
      const int64_t micro_batch = t / (n * chunks) * n + t % n;
      const int64_t from = kind == BlockRun::kForward ? chunk : chunks - 1 - chunk;
      rows[static_cast<size_t>(i)].push_back({kind, micro_batch, from * n + i});
    };
    const int64_t warm_up = std::min(n * (chunks - 1) + 2 * (n - 1 - i), m * chunks);
    for (int64_t t = 0; t < warm_up; ++t) micro_step(BlockRun::kForward, t);
    for (int64_t t = 0; t < m * chunks; ++t) {
      if (t + warm_up < m * chunks) micro_step(BlockRun::kForward, t + warm_up);
      micro_step(BlockRun::kBackward, t);
    }
  }
  return rows;
}

}  // namespace tessera::schedules
