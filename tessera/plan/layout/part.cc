#include "tessera/plan/layout/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "tessera/base/text.h"
#include "tessera/plan/resolve/ahead_split.h"

namespace tessera {
namespace {

using NamedSizes = std::vector<std::pair<std::string, int64_t>>;

bool has_name(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_axis(const NamedSizes& mesh, std::string_view name) {
  return std::any_of(mesh.begin(), mesh.end(),
                     [&](const auto& axis) { return axis.first == name; });
}

bool has_axis(const Plan& plan, std::string_view name) {
  return has_axis(plan.mesh, name) ||
         std::any_of(plan.stages.begin(), plan.stages.end(),
                     [&](const StageEntry& stage) { return has_axis(stage.mesh, name); });
}

// Returns whether the entry `later` decides everything that the entry `earlier` says, so that
// `earlier` has no effect.
bool overrides(const SplitEntry& later, const SplitEntry& earlier) {
  return later.ops == earlier.ops && later.dim == earlier.dim && later.phase == earlier.phase;
}
bool overrides(const PinEntry& later, const PinEntry& earlier) {
  return later.ops == earlier.ops && later.axis == earlier.axis && later.phase == earlier.phase;
}
bool overrides(const StageEntry& later, const StageEntry& earlier) {
  return later.ops == earlier.ops;
}
bool overrides(const StoreEntry& later, const StoreEntry& earlier) {
  return later.tensors == earlier.tensors && (later.over || !earlier.over) &&
         (later.tier || !earlier.tier) && (later.recompute || !earlier.recompute) &&
         (later.keep || !earlier.keep) && (later.keep_over || !earlier.keep_over) &&
         (later.tier || !earlier.cache);
}
bool overrides(const CompressEntry& later, const CompressEntry& earlier) {
  return later.tensors == earlier.tensors && later.on == earlier.on;
}
// Returns false, because loops and reorders are all applied, one after the other.
bool overrides(const LoopEntry&, const LoopEntry&) { return false; }
bool overrides(const ReorderEntry&, const ReorderEntry&) { return false; }

template <typename Entry>
void add(std::vector<Entry>& own, const std::vector<Entry>& more) {
  std::erase_if(own, [&](const Entry& earlier) {
    return std::any_of(more.begin(), more.end(),
                       [&](const Entry& later) { return overrides(later, earlier); });
  });
  own.insert(own.end(), more.begin(), more.end());
}

void add_precision(Precision& own, const Precision& part) {
  if (part.compute) own.compute = part.compute;
  if (part.gradient) own.gradient = part.gradient;
  if (part.state) own.state = part.state;
  if (part.parameter) own.parameter = part.parameter;
  if (part.loss_scale) own.loss_scale = part.loss_scale;
}

void add_keys(Plan& plan, const PlanPart& part) {
  const Plan& from = part.plan;
  for (const auto& [name, size] : from.mesh) {
    const auto own = std::find_if(plan.mesh.begin(), plan.mesh.end(),
                                  [&](const auto& axis) { return axis.first == name; });
    if (own == plan.mesh.end()) {
      plan.mesh.emplace_back(name, size);
    } else {
      own->second = size;
    }
  }
  if (part.has("device_order")) plan.device_order = from.device_order;
  if (part.has("micro_batches")) plan.micro_batches = from.micro_batches;
  if (part.has("micro_batch_dim")) plan.micro_batch_dim = from.micro_batch_dim;
  if (part.has("stage_axis")) plan.stage_axis = from.stage_axis;
  if (part.has("place")) plan.place = from.place;
  if (part.has("schedule")) {
    plan.schedule = from.schedule;
    plan.schedule_table = from.schedule_table;
  }
  if (part.has("bucket_bytes")) plan.bucket_bytes = from.bucket_bytes;
  if (part.has("prefetch")) plan.prefetch = from.prefetch;
  if (part.has("outer")) plan.outer = from.outer;
  if (part.has("resident_bytes")) plan.resident_bytes = from.resident_bytes;
  if (part.has("resharding")) plan.resharding = from.resharding;
  if (part.has("style")) plan.style = from.style;
  add_precision(plan.precision, from.precision);
}

std::string without_sign(const std::string& name) { return name.substr(name[0] == '-' ? 1 : 0); }

}  // namespace

bool PlanPart::has(std::string_view key) const { return has_name(keys, key); }

std::vector<std::pair<std::string, int>> PlanPart::missing_axes() const {
  std::vector<std::pair<std::string, int>> out;
  const auto name = [&](const std::string& axis, int line) {
    const bool is_known =
        std::any_of(out.begin(), out.end(), [&](const auto& known) { return known.first == axis; });
    if (!is_known && !has_axis(plan, axis)) out.emplace_back(axis, line);
  };
  for (const std::string& item : plan.device_order.axes)
    name(item.substr(0, item.find(':')), plan.device_order.line);
  for (const SplitEntry& entry : plan.splits) {
    if (is_ahead(entry)) continue;
    for (const std::string& axis : entry.over) name(axis, entry.line);
    for (const std::string& axis : entry.skew) name(without_sign(axis), entry.line);
  }
  for (const PinEntry& entry : plan.pins) name(entry.axis, entry.line);
  for (const StoreEntry& entry : plan.stores) {
    for (const auto* axes : {&entry.over, &entry.keep_over}) {
      if (!*axes) continue;
      for (const std::string& axis : **axes) name(axis, entry.line);
    }
  }
  return out;
}

Result<Plan> add_part(Plan plan, const PlanPart& part) {
  add_keys(plan, part);
  add(plan.stages, part.plan.stages);
  for (const auto& [axis, line] : part.missing_axes()) {
    if (has_axis(plan, axis)) continue;
    return invalid_input(fmt::format("{}:{}: axis '{}' is not in the mesh {} of {}", part.plan.file,
                                     line, axis, Mesh::row_major(plan.mesh).to_string(),
                                     plan.file));
  }
  add(plan.splits, part.plan.splits);
  add(plan.pins, part.plan.pins);
  add(plan.stores, part.plan.stores);
  add(plan.compress, part.plan.compress);
  add(plan.loops, part.plan.loops);
  add(plan.reorders, part.plan.reorders);
  for (const std::string& pattern : part.plan.expand) {
    if (!has_name(plan.expand, pattern)) plan.expand.push_back(pattern);
  }
  return plan;
}

std::vector<std::pair<int, PlanPart>> growing_parts(const PlanPart& part) {
  PlanPart now = part;
  now.plan.expand.clear();
  const auto each_list = [](Plan& a, const Plan& b, auto&& act) {
    act(a.stages, b.stages);
    act(a.splits, b.splits);
    act(a.pins, b.pins);
    act(a.stores, b.stores);
    act(a.compress, b.compress);
    act(a.loops, b.loops);
    act(a.reorders, b.reorders);
  };
  each_list(now.plan, part.plan, [](auto& list, const auto&) { list.clear(); });
  const Plan& keys = part.plan;
  int line = part.mesh_line;
  for (const int other : {keys.schedule_line, keys.micro_batches_line, keys.device_order.line}) {
    if (line == 0) line = other;
  }
  std::vector<std::pair<int, PlanPart>> out = {{std::max(line, 1), now}};
  if (!keys.expand.empty()) {
    now.plan.expand = keys.expand;
    out.emplace_back(keys.expand_line, now);
  }
  each_list(now.plan, part.plan, [&](auto& list, const auto& all) {
    for (const auto& entry : all) {
      list.push_back(entry);
      out.emplace_back(entry.line, now);
    }
  });
  return out;
}

}  // namespace tessera
