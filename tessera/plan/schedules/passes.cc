// Schedules in which a micro-batch goes through the places several times, or in two directions:
// Chimera, nF1B, and slices of tokens.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/plan/schedules/generators.h"
#include "tessera/plan/schedules/slots.h"

namespace tessera::schedules {
namespace {

// Returns the number of token slices of a shape in which stage i*n + k is slice i at place k of n.
Result<int64_t> slices_of(std::string_view name, const PipelineShape& shape) {
  TESSERA_TRY_VOID(round_robin(name, shape));
  return shape.stages() / shape.places;
}

}  // namespace

// Makes the Chimera schedule (docs/theory/superscaler.md section 8; Li and Hoefler 2021). Two
// pipelines of n stages run in opposite directions. Time is cut into slots of one block. The
// micro-batches of a direction are grouped in units of n/2. For micro-batch j of unit u, stage s of
// its direction runs its forward block in slot 2nu + 2j + s and its backward block in slot 2nu + n
// + 2j + (n-1-s). One of the two stages of a place always has even slots and the other odd slots,
// so they never collide. The units follow each other without a gap.
Result<Schedule> chimera(const PipelineShape& shape) {
  const int64_t n = shape.places;
  if (n % 2 != 0) return wrong_shape("chimera", "an even number of places", fmt::format("{}", n));
  if (shape.stages() != 2 * n) {
    return wrong_shape("chimera", fmt::format("{} stages, one chain down and one up", 2 * n),
                       fmt::format("{} stages", shape.stages()));
  }
  Slots slots(n);
  for (int64_t stage = 0; stage < 2 * n; ++stage) {
    const int64_t place = stage < n ? stage : 2 * n - 1 - stage;
    TESSERA_TRY_VOID(stage_at("chimera", shape, stage, place));
    const int64_t depth = stage % n;
    for (int64_t m = 0; m < shape.micro_batches; ++m) {
      const int64_t start = 2 * n * (m / (n / 2)) + 2 * (m % (n / 2));
      slots.put(place, start + depth, {BlockRun::kForward, m, stage});
      slots.put(place, start + 2 * n - 1 - depth, {BlockRun::kBackward, m, stage});
    }
  }
  return slots.schedule();
}

// Makes the schedule nF1B (docs/theory/superscaler.md section 8). Passes 0 to r-1 have no gradient;
// pass r is the training pass. In round q, place i of n runs for each pass p the forward block of
// micro-batch q + (r-p)d, and then the backward block of micro-batch q - (n-1-i). With d = 1 this
// is the published form. Here d is the least number with n <= d(r+2) + 1. For blocks of equal time,
// a pass of a micro-batch has then left the last place before the next pass starts at the first
// place. The op from which all passes start (an embedding) is in stage 0; its backward block
// follows that of the training pass.
Result<Schedule> n_forward_one_backward(const PipelineShape& shape) {
  TESSERA_TRY_VOID(round_robin("nf1b", shape));
  const int64_t n = shape.places;
  const int64_t passes = shape.stages() / n;  // r + 1
  for (int64_t s = 1; s < (passes - 1) * n; ++s) {
    if (!shape.has_backward(s)) continue;
    return wrong_shape("nf1b", fmt::format("stages 1..{} without backward", (passes - 1) * n - 1),
                       fmt::format("a backward of stage {}", s));
  }
  const bool shared_start = passes > 1 && shape.has_backward(0);
  const int64_t skew = std::max<int64_t>(1, (n - 1 + passes) / (passes + 1));
  Slots slots(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t m = 0; m < shape.micro_batches; ++m) {
      const auto slot = [&](int64_t round, int64_t entry) { return round * (passes + 1) + entry; };
      for (int64_t p = 0; p < passes; ++p) {
        slots.put(i, slot(m - (passes - 1 - p) * skew, p), {BlockRun::kForward, m, p * n + i});
      }
      slots.put(i, slot(m + n - 1 - i, passes), {BlockRun::kBackward, m, (passes - 1) * n + i});
      if (i == 0 && shared_start)
        slots.put(i, slot(m + n - 1, passes), {BlockRun::kBackward, m, 0});
    }
  }
  return slots.schedule();
}

// Makes the schedule of TeraPipe (docs/strategies/terapipe.md section 2): all forward blocks in the
// order (micro-batch, slice), then all backward blocks in reverse order.
Result<Schedule> token(const PipelineShape& shape) {
  TESSERA_TRY(const int64_t slices, slices_of("token", shape));
  const int64_t units = slices * shape.micro_batches;
  Schedule rows(static_cast<size_t>(shape.places));
  for (int64_t k = 0; k < shape.places; ++k) {
    auto& row = rows[static_cast<size_t>(k)];
    const auto add = [&](BlockRun::Kind kind, int64_t unit) {
      row.push_back({kind, unit / slices, unit % slices * shape.places + k});
    };
    for (int64_t u = 0; u < units; ++u) add(BlockRun::kForward, u);
    for (int64_t u = units; u-- > 0;) add(BlockRun::kBackward, u);
  }
  return rows;
}

// Makes 1F1B on slices (Seq1F1B, Sun et al. 2024). The backward blocks of a micro-batch run from
// its last slice to its first. So place k of n runs n-1-k + slices-1 forward blocks first, which is
// slices-1 more than in 1F1B.
Result<Schedule> token_one_f_one_b(const PipelineShape& shape) {
  TESSERA_TRY(const int64_t slices, slices_of("token_1f1b", shape));
  const int64_t units = slices * shape.micro_batches;
  Schedule rows(static_cast<size_t>(shape.places));
  for (int64_t k = 0; k < shape.places; ++k) {
    auto& row = rows[static_cast<size_t>(k)];
    const int64_t warm_up = std::min(units, shape.places - 1 - k + slices - 1);
    const auto add = [&](BlockRun::Kind kind, int64_t micro_batch, int64_t slice) {
      row.push_back({kind, micro_batch, slice * shape.places + k});
    };
    for (int64_t u = 0; u < warm_up; ++u) add(BlockRun::kForward, u / slices, u % slices);
    for (int64_t u = 0; u < units; ++u) {
      const int64_t ahead = u + warm_up;
      if (ahead < units) add(BlockRun::kForward, ahead / slices, ahead % slices);
      add(BlockRun::kBackward, u / slices, slices - 1 - u % slices);
    }
  }
  return rows;
}

}  // namespace tessera::schedules
