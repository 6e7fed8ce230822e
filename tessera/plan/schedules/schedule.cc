// Functions for the text of a block run and the shape of a pipeline, and the table of
// named schedules.
#include "tessera/plan/schedules/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/plan/schedules/generators.h"

namespace tessera {
namespace {

constexpr std::string_view kKindLetters = "FBW";

struct NamedSchedule {
  std::string_view name;
  Result<Schedule> (*make)(const PipelineShape&);
};
const std::array kSchedules{
    NamedSchedule{"1f1b", schedules::one_f_one_b},
    NamedSchedule{"eager_1f1b", schedules::eager_one_f_one_b},
    NamedSchedule{"gpipe", schedules::gpipe},
    NamedSchedule{"interleaved", schedules::interleaved},
    NamedSchedule{"zb_h1", schedules::zero_bubble_h1},
    NamedSchedule{"zb_h2", schedules::zero_bubble_h2},
    NamedSchedule{"zb_v", schedules::zero_bubble_v},
    NamedSchedule{"chimera", schedules::chimera},
    NamedSchedule{"nf1b", schedules::n_forward_one_backward},
    NamedSchedule{"interlaced", schedules::interlaced},
    NamedSchedule{"token", schedules::token},
    NamedSchedule{"token_1f1b", schedules::token_one_f_one_b},
};

Status check_list(std::string_view what, size_t size, const PipelineShape& shape) {
  if (size == 0 || size == shape.at.size()) return {};
  return invalid_input(fmt::format("pipeline: expected '{}' for each of {} stages, found {}", what,
                                   shape.at.size(), size));
}

Status check_shape(const PipelineShape& shape) {
  if (shape.micro_batches < 1) {
    return invalid_input(fmt::format("expected micro_batches >= 1, found {}", shape.micro_batches));
  }
  if (shape.places < 1) {
    return invalid_input(fmt::format("pipeline: expected places >= 1, found {}", shape.places));
  }
  TESSERA_TRY_VOID(check_list("backward", shape.backward.size(), shape));
  TESSERA_TRY_VOID(check_list("after", shape.after.size(), shape));
  for (int64_t s = 0; s < shape.stages(); ++s) {
    const auto& at = shape.at[static_cast<size_t>(s)];
    if (at.empty()) return invalid_input(fmt::format("pipeline: stage {} has no place", s));
    for (const int64_t place : at) {
      if (place >= 0 && place < shape.places) continue;
      return invalid_input(fmt::format("pipeline: stage {}: expected a place of 0..{}, found {}", s,
                                       shape.places - 1, place));
    }
    for (const int64_t before : shape.before(s)) {
      if (before >= 0 && before < shape.stages()) continue;
      return invalid_input(
          fmt::format("pipeline: stage {}: expected to be after a stage of "
                      "0..{}, found {}",
                      s, shape.stages() - 1, before));
    }
  }
  return {};
}

}  // namespace

bool PipelineShape::has_backward(int64_t stage) const {
  return backward.empty() || backward[static_cast<size_t>(stage)];
}

std::vector<int64_t> PipelineShape::before(int64_t stage) const {
  if (!after.empty()) return after[static_cast<size_t>(stage)];
  return stage == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{stage - 1};
}

bool PipelineShape::runs_at(int64_t stage, int64_t place) const {
  const auto& places_of = at[static_cast<size_t>(stage)];
  return std::find(places_of.begin(), places_of.end(), place) != places_of.end();
}

std::vector<int64_t> PipelineShape::stages_of(int64_t place) const {
  std::vector<int64_t> out;
  for (int64_t s = 0; s < stages(); ++s) {
    if (runs_at(s, place)) out.push_back(s);
  }
  return out;
}

std::string to_string(const BlockRun& run) {
  const char letter = kKindLetters[run.kind];
  if (run.stage == kOnlyStage) return fmt::format("{}{}", letter, run.micro_batch);
  return fmt::format("{}{}@{}", letter, run.micro_batch, run.stage);
}

Result<BlockRun> parse_block_run(std::string_view text) {
  const auto number = [](std::string_view digits) {
    const auto value = parse_int(digits);
    return value && *value >= 0 ? *value : -1;
  };
  const size_t letter = text.empty() ? std::string_view::npos : kKindLetters.find(text[0]);
  if (letter != std::string_view::npos) {
    const size_t at = text.find('@');
    BlockRun run{static_cast<BlockRun::Kind>(letter), number(text.substr(1, at - 1)), kOnlyStage};
    if (at != std::string_view::npos) run.stage = number(text.substr(at + 1));
    if (run.micro_batch >= 0 && (run.stage >= 0 || at == std::string_view::npos)) return run;
  }
  return invalid_input(
      fmt::format("expected a block like 'F0', 'B3' or 'W3@1' (F, B or W, a "
                  "micro-batch, and @stage where a place has several), found '{}'",
                  text));
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const NamedSchedule& schedule : kSchedules) names.emplace_back(schedule.name);
  return names;
}

// Removes the backward runs (B and W) of stages that have no backward pass.
static void leave_out_missing(Schedule& schedule, const PipelineShape& shape) {
  for (std::vector<BlockRun>& row : schedule) {
    std::erase_if(row, [&](const BlockRun& run) {
      const bool known = run.stage >= 0 && run.stage < shape.stages();
      return known && run.kind != BlockRun::kForward && !shape.has_backward(run.stage);
    });
  }
}

Result<Schedule> make_schedule(std::string_view name, const PipelineShape& shape) {
  const auto* found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                   [&](const NamedSchedule& s) { return s.name == name; });
  if (found == kSchedules.end()) {
    return invalid_input(fmt::format("unknown schedule '{}', did you mean '{}'?", name,
                                     nearest(name, schedule_names())));
  }
  TESSERA_TRY_VOID(check_shape(shape));
  TESSERA_TRY(Schedule schedule, found->make(shape));
  leave_out_missing(schedule, shape);
  TESSERA_TRY_VOID(check_schedule_finishes(schedule, shape));
  return schedule;
}

Result<Schedule> complete_stages(Schedule schedule, const PipelineShape& shape) {
  for (size_t place = 0; place < schedule.size(); ++place) {
    for (BlockRun& run : schedule[place]) {
      if (run.stage != kOnlyStage) continue;
      const auto stages = shape.stages_of(static_cast<int64_t>(place));
      if (stages.size() != 1) {
        std::vector<std::string> names;
        for (const int64_t stage : stages) names.push_back(fmt::format("@{}", stage));
        return invalid_input(fmt::format(
            "schedule of place {}: {} names no stage: expected one of {}", place, to_string(run),
            names.empty() ? "none (no stage is at this place)" : join(names, ", ")));
      }
      run.stage = stages[0];
    }
  }
  leave_out_missing(schedule, shape);
  return schedule;
}

}  // namespace tessera
