#include "tessera/search/question/with_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <type_traits>

#include "tessera/base/text.h"

namespace tessera {
namespace {

bool is_planned(const std::string& axis) {
  const auto& axes = planned_axes();
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

tl::unexpected<Error> error_at(const PlanPart& part, int line, const std::string& message) {
  return invalid_input(fmt::format("{}:{}: {}", part.plan.file, std::max(line, 1), message));
}

// Returns the size that the part gives the axis; 0 if the part does not name it.
int64_t size_in(const PlanPart& part, const std::string& axis) {
  for (const auto& [name, size] : part.plan.mesh) {
    if (name == axis) return size;
  }
  return 0;
}

// Returns the largest size of an axis in any stage of the choice's plans; 1 if they lack the axis.
int64_t size_of(const Choice& choice, const std::string& name) {
  if (name == planned_axes().front()) return choice.stages;
  int64_t most = 1;
  for (size_t a = 0; a < choice.axes.size(); ++a) {
    if (choice.axes[a].name != name) continue;
    for (size_t s = 0; s < std::max<size_t>(choice.stage_axes.size(), 1); ++s)
      most = std::max(most, choice.axes_of_stage(s)[a].size);
  }
  return most;
}

Status fix(PlanQuestion& question, const std::string& key, const std::string& value, int line) {
  const auto [known, is_new] = question.fixed.try_emplace(key, value);
  if (is_new || known->second == value) return {};
  return error_at(
      *question.part, line,
      fmt::format("the part says {} = {}, but --fix says {}={}", key, value, key, known->second));
}

}  // namespace

const std::vector<std::string>& planned_axes() {
  static const std::vector<std::string> axes = {"pp", "dp", "tp_outer", "tp"};
  return axes;
}

bool goes_with_recipes(const PlanPart& part) {
  const std::set<std::string_view> neither = {"bucket_bytes", "expand", "precision", "prefetch"};
  return std::all_of(part.keys.begin(), part.keys.end(),
                     [&](const std::string& key) { return neither.contains(key); });
}

Result<PlanQuestion> with_more(const PlanQuestion& question, std::string_view text,
                               const std::string& name) {
  TESSERA_TRY(PlanPart more, parse_part(text, name, planned_axes()));
  PlanQuestion out = question;
  if (!question.part) {
    out.part = std::move(more);
    return out;
  }
  const auto in_front = [](auto& own, auto& others) {
    own.insert(own.begin(), std::make_move_iterator(others.begin()),
               std::make_move_iterator(others.end()));
  };
  Plan& plan = out.part->plan;
  in_front(plan.splits, more.plan.splits);
  in_front(plan.pins, more.plan.pins);
  in_front(plan.stores, more.plan.stores);
  in_front(plan.compress, more.plan.compress);
  in_front(plan.loops, more.plan.loops);
  in_front(plan.reorders, more.plan.reorders);
  in_front(plan.expand, more.plan.expand);
  for (std::string& key : more.keys) {
    if (!out.part->has(key)) out.part->keys.push_back(std::move(key));
  }
  return out;
}

Result<PlanQuestion> fixed_by_part(PlanQuestion question) {
  if (!question.part) return question;
  const PlanPart part = *question.part;
  const int line = part.mesh_line;
  int64_t own = 1;  // product of the sizes of axes that planners do not write
  for (const auto& [axis, size] : part.plan.mesh) own *= is_planned(axis) ? 1 : size;
  for (const char* axis : {"pp", "dp"}) {
    if (size_in(part, axis) > 0)
      TESSERA_TRY_VOID(fix(question, axis, std::to_string(size_in(part, axis)), line));
  }
  if (size_in(part, "tp") > 0) {
    const int64_t inner = size_in(part, "tp") * std::max<int64_t>(size_in(part, "tp_outer"), 1);
    TESSERA_TRY_VOID(fix(question, "tp", std::to_string(inner), line));
  }
  if (part.has("micro_batches")) {
    TESSERA_TRY_VOID(fix(question, "micro_batches", std::to_string(part.plan.micro_batches),
                         part.plan.micro_batches_line));
  }
  if (part.has("schedule") && part.plan.schedule_table.empty())
    TESSERA_TRY_VOID(fix(question, "schedule", part.plan.schedule, part.plan.schedule_line));
  if (own == 1) return question;
  const auto fixed = question.fixed.find("devices");
  const int64_t devices = fixed == question.fixed.end()
                              ? question.cluster->devices()
                              : parse_int(fixed->second).value_or(question.cluster->devices());
  if (devices < own) {
    return error_at(part, line,
                    fmt::format("the part's axes have {} devices, found {}", own, devices));
  }
  question.fixed["devices"] = std::to_string(devices / own);
  return question;
}

Status check_part(const PlanPart& part, const std::shared_ptr<const Graph>& forward,
                  Compiler& compiler, const OptimizerSpec& optimizer) {
  // Checks the part in a plan with one stage and with devices for the part's own axes only, so that
  // every error is one of the part.
  Plan plan = part.plan;
  for (auto& [axis, size] : plan.mesh) {
    if (axis == plan.stage_axis) size = 1;
  }
  for (const auto& [axis, line] : part.missing_axes()) plan.mesh.emplace_back(axis, 1);
  plan.device_order = {};
  plan.place.clear();
  plan.schedule = Plan().schedule;
  plan.schedule_table.clear();
  for (StageEntry& stage : plan.stages) {
    stage.at = 0;
    stage.mesh.clear();
    stage.devices.reset();
    stage.device_order = {};
  }
  for (LoopEntry& loop : plan.loops) loop.stages = false;
  const auto lowering = compiler.lower(forward, plan, {optimizer});
  if (!lowering) return tl::unexpected(lowering.error());
  return {};
}

Status goes_with(const PlanPart& part, const Choice& choice) {
  for (const auto& [axis, size] : part.plan.mesh) {
    if (!is_planned(axis) || size_of(choice, axis) == size) continue;
    return error_at(part, part.mesh_line,
                    fmt::format("expected plans with {} = {}, found {}", axis, size, choice.str()));
  }
  for (const auto& [axis, line] : part.missing_axes()) {
    if (size_of(choice, axis) > 1) continue;
    return error_at(part, line,
                    fmt::format("expected plans with the axis '{}', found {}", axis, choice.str()));
  }
  for (const StageEntry& stage : part.plan.stages) {
    if (stage.at < choice.stages * choice.chunks) continue;
    return error_at(
        part, stage.line,
        fmt::format("expected plans with a stage {}, found {}", stage.at, choice.str()));
  }
  return {};
}

PlanPart part_for_units(const PlanPart& part, const Plan& plan) {
  PlanPart out = part;
  std::erase_if(out.plan.mesh, [](const auto& axis) { return is_planned(axis.first); });
  for (const char* key : {"device_order", "micro_batches", "place", "schedule", "stage_axis"})
    std::erase(out.keys, key);
  out.plan.device_order = {};
  out.plan.stages.clear();
  std::erase_if(out.plan.loops, [](const LoopEntry& loop) { return loop.stages; });
  const auto lacks = [&](const auto& entry) {
    PlanPart one;
    one.plan.mesh = out.plan.mesh;
    if constexpr (std::is_same_v<std::decay_t<decltype(entry)>, SplitEntry>) {
      one.plan.splits = {entry};
    } else {
      one.plan.stores = {entry};
    }
    const auto missing = one.missing_axes();
    return std::any_of(missing.begin(), missing.end(), [&](const auto& axis) {
      return std::none_of(plan.mesh.begin(), plan.mesh.end(),
                          [&](const auto& own) { return own.first == axis.first; });
    });
  };
  std::erase_if(out.plan.splits, lacks);
  std::erase_if(out.plan.stores, lacks);
  return out;
}

}  // namespace tessera
