#include "tessera/plan/islands.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

int64_t islands(const Plan& plan) {
  return plan.outer && !plan.mesh.empty() ? plan.mesh.front().second : 1;
}

Result<Plan> plan_of_island(const Plan& plan, int64_t island) {
  Plan out = plan;
  if (!plan.outer) return out;
  out.outer.reset();
  out.mesh.erase(out.mesh.begin());
  TESSERA_TRY(const RankDevices devices, rank_devices(plan));
  const int64_t ranks = out.ranks();
  out.device_order = {};
  if (devices.in_order() && island == 0) return out;
  out.device_order.line = plan.device_order.line;
  for (int64_t rank = 0; rank < ranks; ++rank)
    out.device_order.devices.push_back(devices.device_of(island * ranks + rank));
  return out;
}

namespace {

tl::unexpected<Error> outer_error(const Plan& plan, int line, const std::string& message) {
  return invalid_input(fmt::format("{}:{}: {}", plan.file, line, message));
}

}  // namespace

Error refuse_outer_steps(const Plan& plan) {
  return outer_error(
             plan, plan.outer->line,
             "expected a plan without 'outer' here: train, verify, simulate and inspect take "
             "one with it")
      .value();
}

Status check_outer_steps(const Plan& plan) {
  if (!plan.outer) return {};
  const OuterSteps& outer = *plan.outer;
  if (plan.mesh.empty() || plan.mesh.front().first != outer.axis) {
    return outer_error(
        plan, outer.line,
        fmt::format("expected the axis of 'outer' to be the first of the mesh {}, found "
                    "'{}'",
                    Mesh::row_major(plan.mesh).to_string(), outer.axis));
  }
  if (outer.every % outer.fragments != 0) {
    return outer_error(
        plan, outer.line,
        fmt::format("expected 'every' in 'outer' to be a multiple of 'fragments', found "
                    "{} and {}",
                    outer.every, outer.fragments));
  }
  if (outer.delay >= outer.interval()) {
    return outer_error(
        plan, outer.line,
        fmt::format("expected 'delay' in 'outer' to be less than every / fragments = "
                    "{}, found {}",
                    outer.interval(), outer.delay));
  }
  const auto is_axis = [&](const std::string& name) {
    return name == outer.axis || name == "-" + outer.axis;
  };
  const auto names_axis = [&](const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), is_axis);
  };
  const auto taken = [&](int line, std::string_view entry) {
    return outer_error(plan, line,
                       fmt::format("axis '{}' is that of 'outer', which cuts the batch over it; it "
                                   "cannot be used in [[{}]]",
                                   outer.axis, entry));
  };
  for (const SplitEntry& entry : plan.splits) {
    if (names_axis(entry.over) || names_axis(entry.skew)) return taken(entry.line, "split");
  }
  for (const PinEntry& entry : plan.pins) {
    if (is_axis(entry.axis)) return taken(entry.line, "pin");
  }
  for (const StoreEntry& entry : plan.stores) {
    if ((entry.over && names_axis(*entry.over)) ||
        (entry.keep_over && names_axis(*entry.keep_over)))
      return taken(entry.line, "store");
  }
  for (const StageEntry& entry : plan.stages) {
    if (outer.axis == plan.stage_axis) return taken(entry.line, "stage");
    if (!entry.mesh.empty()) {
      return outer_error(plan, entry.line,
                         "a stage with a mesh of its own cannot be in a plan with 'outer'");
    }
  }
  return {};
}

}  // namespace tessera
