// The functions of a Plan as a value: equality, canonical text, and the meshes and schedules of
// its stages.
#include "tessera/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace tessera {
namespace {

using NamedSizes = std::vector<std::pair<std::string, int64_t>>;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Writes a single name as a string, and none or several names as a list.
std::string names_text(const std::vector<std::string>& names) {
  if (names.size() == 1) return quoted(names[0]);
  std::string out = "[";
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : ", ") + quoted(names[i]);
  return out + "]";
}

std::string mesh_toml(const NamedSizes& mesh) {
  if (mesh.empty()) return "{}";
  std::string out = "{ ";
  for (size_t i = 0; i < mesh.size(); ++i) {
    out += fmt::format("{}{} = {}", i == 0 ? "" : ", ", mesh[i].first, mesh[i].second);
  }
  return out + " }";
}

std::string entry_toml(const SplitEntry& entry) {
  std::vector<std::string> over = entry.over;
  if (entry.steps > 1) over.push_back(fmt::format("time:{}", entry.steps));
  if (entry.rims) over.emplace_back("time:rims");
  std::string out = fmt::format("ops = {}", quoted(entry.ops));
  if (entry.phase) out += fmt::format(", phase = {}", quoted(phase_name(*entry.phase)));
  out += fmt::format(", dim = {}, over = {}", quoted(entry.dim), names_text(over));
  if (entry.order == StepOrder::kRotated) out += ", order = \"rotated\"";
  if (entry.order == StepOrder::kNested) out += ", order = \"nested\"";
  if (!entry.skew.empty()) out += ", skew = " + names_text(entry.skew);
  if (entry.computes_halo) out += ", halo = \"compute\"";
  return out;
}

std::string entry_toml(const PinEntry& entry) {
  std::string out = fmt::format("ops = {}", quoted(entry.ops));
  if (entry.phase) out += fmt::format(", phase = {}", quoted(phase_name(*entry.phase)));
  return out + fmt::format(", axis = {}, at = {}", quoted(entry.axis), entry.at);
}

std::string entry_toml(const StageEntry& entry) {
  std::string out = fmt::format("ops = {}, at = {}", quoted(entry.ops), entry.at);
  if (!entry.mesh.empty()) out += ", mesh = " + mesh_toml(entry.mesh);
  if (entry.devices) out += fmt::format(", devices = {}", *entry.devices);
  if (!entry.device_order.empty()) out += ", device_order = " + to_toml(entry.device_order);
  return out;
}

std::string entry_toml(const ReorderEntry& entry) {
  return fmt::format("dim = {}, as = {}, pieces = {}", quoted(entry.dim), quoted(entry.as),
                     entry.pieces);
}

// Writes the rule. Values that equal the defaults are left out, except `policy`.
std::string cache_toml(const RowCacheRule& rule) {
  const RowCacheRule usual;
  std::string out = fmt::format("{{ slots = {}, policy = {}", rule.slots, quoted(rule.policy));
  if (rule.window != usual.window) out += fmt::format(", window = {}", rule.window);
  if (rule.counted != usual.counted) out += fmt::format(", counted = {}", rule.counted);
  if (rule.prefetch != usual.prefetch) out += fmt::format(", prefetch = {}", rule.prefetch);
  if (rule.zipf != usual.zipf) out += fmt::format(", zipf = {}", rule.zipf);
  return out + " }";
}

std::string entry_toml(const StoreEntry& entry) {
  std::string out = fmt::format("tensors = {}", quoted(entry.tensors));
  if (entry.over) out += ", over = " + names_text(*entry.over);
  if (entry.dim) out += ", dim = " + quoted(*entry.dim);
  if (entry.tier) out += ", tier = " + quoted(tier_name(*entry.tier));
  if (entry.fraction) {
    const std::string number = fmt::format("{}", *entry.fraction);
    out += ", fraction = " + number + (number.find_first_of(".e") == std::string::npos ? ".0" : "");
  }
  if (entry.recompute) out += fmt::format(", recompute = {}", *entry.recompute);
  if (entry.keep) out += ", keep = " + quoted(keep_name(*entry.keep));
  if (entry.keep_over) out += ", keep_over = " + names_text(*entry.keep_over);
  if (entry.cache) out += ", cache = " + cache_toml(*entry.cache);
  return out;
}

std::string entry_toml(const LoopEntry& entry) {
  std::string out = fmt::format("ops = {}, dim = {}", quoted(entry.ops), quoted(entry.dim));
  if (entry.steps > 0) out += fmt::format(", steps = {}", entry.steps);
  if (entry.steps == 0) out += fmt::format(", sizes = [{}]", fmt::join(entry.sizes, ", "));
  if (entry.recompute) out += ", recompute = true";
  if (entry.stages) out += ", stages = true";
  return out;
}

std::string entry_toml(const CompressEntry& entry) {
  std::string out = fmt::format("tensors = {}, on = {}, with = {}", quoted(entry.tensors),
                                quoted(entry.on), quoted(codec_text(entry.with.codec)));
  if (entry.with.error_feedback) out += ", error_feedback = true";
  return out;
}

std::string number_toml(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// Writes a fixed scale as a number, the default dynamic scale as "dynamic", and any other dynamic
// scale as a table of all its values.
std::string loss_scale_toml(const LossScale& scale) {
  if (!scale.dynamic) return number_toml(scale.initial);
  if (scale == LossScale{}) return "\"dynamic\"";
  return fmt::format(
      "{{ initial = {}, growth = {}, interval = {}, backoff = {}, hysteresis = {}, min = {}, max = "
      "{} }}",
      number_toml(scale.initial), number_toml(scale.growth), scale.interval,
      number_toml(scale.backoff), scale.hysteresis, number_toml(scale.min), number_toml(scale.max));
}

std::string precision_toml(const Precision& precision) {
  std::vector<std::string> items;
  const auto add = [&](std::string_view key, const std::optional<DType>& dtype) {
    if (dtype) items.push_back(fmt::format("{} = {}", key, quoted(dtype_name(*dtype))));
  };
  add("compute", precision.compute);
  add("gradient", precision.gradient);
  add("state", precision.state);
  add("parameter", precision.parameter);
  if (precision.loss_scale)
    items.push_back("loss_scale = " + loss_scale_toml(*precision.loss_scale));
  return fmt::format("{{ {} }}", fmt::join(items, ", "));
}

template <class Entry>
std::string entries_toml(std::string_view key, const std::vector<Entry>& entries) {
  if (entries.empty()) return "";
  std::string out = fmt::format("{} = [\n", key);
  for (const Entry& entry : entries) out += fmt::format("  {{ {} }},\n", entry_toml(entry));
  return out + "]\n";
}

std::string schedule_toml(const Plan& plan) {
  if (plan.schedule_table.empty()) return fmt::format("schedule = {}\n", quoted(plan.schedule));
  std::string out = "schedule = [\n";
  for (const auto& row : plan.schedule_table) {
    std::vector<std::string> names;
    for (const BlockRun& run : row) names.push_back(to_string(run));
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + quoted(name);
    out += fmt::format("  [{}],\n", list);
  }
  return out + "]\n";
}

tl::unexpected<Error> error_at(const Plan& plan, int line, const std::string& message) {
  return invalid_input(line > 0 ? fmt::format("{}:{}: {}", plan.file, line, message)
                                : fmt::format("{}: {}", plan.file, message));
}

// Returns `named` repeated once for each step of the loop with `stages`; without such a loop,
// `named` itself.
Result<std::vector<const StageEntry*>> once_a_step(const Plan& plan,
                                                   std::vector<const StageEntry*> named) {
  const int64_t steps = plan.stage_steps();
  std::vector<const StageEntry*> all = named;
  for (int64_t step = 1; step < steps; ++step) all.insert(all.end(), named.begin(), named.end());
  for (const StageEntry* entry : named) {
    if (steps == 1 || entry == nullptr) continue;
    return error_at(plan, entry->line,
                    "a stage with a mesh of its own cannot be in a loop with stages = true");
  }
  return all;
}

// Returns for each stage the entry that gives the stage a mesh of its own, or null if none does.
Result<std::vector<const StageEntry*>> own_meshes(const Plan& plan) {
  if (plan.stages.empty()) return once_a_step(plan, {nullptr});
  std::set<int64_t> used;
  for (const StageEntry& entry : plan.stages) used.insert(entry.at);
  int64_t count = 0;
  while (used.contains(count)) ++count;
  if (count <= *used.rbegin()) {
    return error_at(
        plan, plan.stages.back().line,
        fmt::format("stages must be numbered 0..{} without a gap, but no entry has at = {}",
                    *used.rbegin(), count));
  }
  std::vector<const StageEntry*> own(static_cast<size_t>(count), nullptr);
  for (const StageEntry& entry : plan.stages) {
    const StageEntry*& of_stage = own[static_cast<size_t>(entry.at)];
    if (entry.mesh.empty()) continue;
    if (of_stage != nullptr &&
        std::tie(of_stage->mesh, of_stage->devices, of_stage->device_order) !=
            std::tie(entry.mesh, entry.devices, entry.device_order)) {
      return error_at(
          plan, entry.line,
          fmt::format("stage {} already has a mesh of its own (line {}), and this is another",
                      entry.at, of_stage->line));
    }
    of_stage = &entry;
  }
  return once_a_step(plan, std::move(own));
}

bool nested(const Mesh& a, const Mesh& b) {
  const auto ranks = [](const Mesh& mesh) {
    Axes all;
    for (size_t i = 0; i < mesh.axes.size(); ++i) all.emplace_back(i);
    std::vector<int> out = mesh.group(std::vector<int64_t>(all.size(), 0), all);
    std::sort(out.begin(), out.end());
    return out;
  };
  if (a == b) return true;
  const std::vector<int> x = ranks(a), y = ranks(b);
  return std::includes(x.begin(), x.end(), y.begin(), y.end()) ||
         std::includes(y.begin(), y.end(), x.begin(), x.end());
}

// Checks that every device belongs to a stage. A device may belong to two stages only if one of
// them has all devices of the other.
Status check_devices(const Plan& plan, const std::vector<Mesh>& meshes,
                     const std::vector<const StageEntry*>& own) {
  int64_t devices = 0;
  int64_t places = 0;
  for (const Mesh& mesh : meshes) {
    int64_t last = mesh.first_device;
    for (const MeshAxis& axis : mesh.axes) last += (axis.size - 1) * axis.stride;
    devices = std::max(devices, last + 1);
    places += mesh.size();
  }
  const auto line_of = [&](size_t s) { return own[s] != nullptr ? own[s]->line : 0; };
  if (devices > 2 * places + 1024) {
    return error_at(plan, line_of(0),
                    fmt::format("the stages have {} ranks but use devices up to {}: "
                                "some device belongs to no stage",
                                places, devices - 1));
  }
  std::vector<int> stage_of(static_cast<size_t>(devices), -1);
  for (size_t s = 0; s < meshes.size(); ++s) {
    Axes all;
    for (size_t a = 0; a < meshes[s].axes.size(); ++a) all.emplace_back(a);
    for (int rank : meshes[s].group(std::vector<int64_t>(all.size(), 0), all)) {
      int& stage = stage_of[static_cast<size_t>(rank)];
      if (stage >= 0 && !nested(meshes[s], meshes[static_cast<size_t>(stage)])) {
        return error_at(plan, line_of(s),
                        fmt::format("stages {} and {} share device {}", stage, s, rank));
      }
      stage = static_cast<int>(s);
    }
  }
  const auto idle = std::find(stage_of.begin(), stage_of.end(), -1);
  if (idle == stage_of.end()) return {};
  return error_at(plan, line_of(0),
                  fmt::format("device {} belongs to no stage", idle - stage_of.begin()));
}

// Returns for each stage its coordinate on the stage axis: as `place` says, or the number of the
// stage mod the size of the axis.
Result<std::vector<int64_t>> place_coordinates(const Plan& plan, const Mesh& whole, AxisId axis,
                                               int64_t count) {
  const int64_t size = whole.axis(axis).size;
  const auto axis_text =
      fmt::format("axis '{}' of the mesh {}", plan.stage_axis, whole.to_string());
  if (plan.place.empty()) {
    if (count % size != 0) {
      return error_at(plan, plan.stages.empty() ? 0 : plan.stages.back().line,
                      fmt::format("expected {} stages ({}), or a multiple of it, found {}; 'place' "
                                  "puts them otherwise",
                                  size, axis_text, count));
    }
    std::vector<int64_t> out;
    for (int64_t s = 0; s < count; ++s) out.push_back(s % size);
    return out;
  }
  if (static_cast<int64_t>(plan.place.size()) != count) {
    return error_at(plan, plan.place_line,
                    fmt::format("expected {} numbers in 'place' (one a stage), found {}", count,
                                plan.place.size()));
  }
  for (int64_t coordinate : plan.place) {
    if (coordinate >= 0 && coordinate < size) continue;
    return error_at(
        plan, plan.place_line,
        fmt::format("'place' says {}, expected 0..{} ({})", coordinate, size - 1, axis_text));
  }
  return plan.place;
}

Result<std::vector<Mesh>> meshes_of_stage_axis(const Plan& plan, int64_t count) {
  const Mesh whole = Mesh::row_major(plan.mesh);
  const AxisId axis = whole.find(plan.stage_axis);
  if (!axis.valid() && count == 1) return std::vector<Mesh>{whole};
  const int line = plan.stages.empty() ? 0 : plan.stages.back().line;
  if (!axis.valid()) {
    return error_at(
        plan, line,
        fmt::format("{} stages need the stage axis '{}' in the mesh {}, or a mesh of their own",
                    count, plan.stage_axis, whole.to_string()));
  }
  TESSERA_TRY(const auto coordinates, place_coordinates(plan, whole, axis, count));
  std::vector<Mesh> meshes;
  for (int64_t coordinate : coordinates) meshes.push_back(whole.fix(axis, coordinate));
  return meshes;
}

}  // namespace

std::string to_toml(const DeviceOrder& order) {
  if (order.devices.empty()) return names_text(order.axes);
  return fmt::format("[{}]", fmt::join(order.devices, ", "));
}

bool operator==(const SplitEntry& a, const SplitEntry& b) {
  return std::tie(a.ops, a.phase, a.dim, a.over, a.steps, a.order, a.skew, a.rims,
                  a.computes_halo) ==
         std::tie(b.ops, b.phase, b.dim, b.over, b.steps, b.order, b.skew, b.rims, b.computes_halo);
}

bool operator==(const PinEntry& a, const PinEntry& b) {
  return std::tie(a.ops, a.phase, a.axis, a.at) == std::tie(b.ops, b.phase, b.axis, b.at);
}

bool OpPlan::computes_at(const std::vector<int64_t>& coordinates) const {
  return std::ranges::all_of(
      at, [&](const AxisPin& pin) { return coordinates[pin.axis.index()] == pin.coordinate; });
}

bool OpPlan::named() const {
  return !at.empty() ||
         std::ranges::any_of(dims, [](const DimSplit& split) { return split.entry >= 0; });
}

std::string ReorderEntry::order() const { return fmt::format("{}:{}", as, pieces); }

bool operator==(const ReorderEntry& a, const ReorderEntry& b) {
  return std::tie(a.dim, a.as, a.pieces) == std::tie(b.dim, b.as, b.pieces);
}

bool operator==(const StageEntry& a, const StageEntry& b) {
  return std::tie(a.ops, a.at, a.mesh, a.devices, a.device_order) ==
         std::tie(b.ops, b.at, b.mesh, b.devices, b.device_order);
}

bool operator==(const StoreEntry& a, const StoreEntry& b) {
  return std::tie(a.tensors, a.over, a.dim, a.tier, a.fraction, a.recompute, a.keep, a.keep_over,
                  a.cache) == std::tie(b.tensors, b.over, b.dim, b.tier, b.fraction, b.recompute,
                                       b.keep, b.keep_over, b.cache);
}

bool operator==(const CompressEntry& a, const CompressEntry& b) {
  return std::tie(a.tensors, a.on, a.with) == std::tie(b.tensors, b.on, b.with);
}

std::string_view edge_name(size_t edge) {
  return edge == kSendEdge ? "send" : collective_name(static_cast<CollectiveKind>(edge));
}

bool operator==(const LoopEntry& a, const LoopEntry& b) {
  return std::tie(a.ops, a.dim, a.steps, a.sizes, a.recompute, a.stages) ==
         std::tie(b.ops, b.dim, b.steps, b.sizes, b.recompute, b.stages);
}
bool operator==(const Plan& a, const Plan& b) { return to_toml(a) == to_toml(b); }

std::string to_toml(const Plan& plan) {
  const Plan defaults;
  std::string out = fmt::format("mesh = {}\n", mesh_toml(plan.mesh));
  if (!plan.device_order.empty()) {
    out += fmt::format("device_order = {}\n", to_toml(plan.device_order));
  }
  if (plan.micro_batches != defaults.micro_batches) {
    out += fmt::format("micro_batches = {}\n", plan.micro_batches);
  }
  if (plan.micro_batch_dim != defaults.micro_batch_dim) {
    out += fmt::format("micro_batch_dim = {}\n", quoted(plan.micro_batch_dim));
  }
  if (plan.stage_axis != defaults.stage_axis) {
    out += fmt::format("stage_axis = {}\n", quoted(plan.stage_axis));
  }
  if (!plan.place.empty()) out += fmt::format("place = [{}]\n", fmt::join(plan.place, ", "));
  if (plan.schedule != defaults.schedule || !plan.schedule_table.empty())
    out += schedule_toml(plan);
  if (plan.resident_bytes != defaults.resident_bytes) {
    out += fmt::format("resident_bytes = {}\n", plan.resident_bytes);
  }
  if (plan.bucket_bytes != defaults.bucket_bytes) {
    out += fmt::format("bucket_bytes = {}\n", plan.bucket_bytes);
  }
  if (plan.prefetch) {
    out += fmt::format("prefetch = {{ units = {}, ahead = {} }}\n", quoted(plan.prefetch->units),
                       plan.prefetch->ahead);
  }
  if (plan.outer) out += fmt::format("outer = {}\n", to_toml(*plan.outer));
  if (plan.resharding != defaults.resharding) {
    out += fmt::format("resharding = \"{}\"\n", plan.resharding);
  }
  if (!plan.style.empty()) out += fmt::format("style = {}\n", quoted(plan.style));
  if (plan.precision != defaults.precision) {
    out += fmt::format("precision = {}\n", precision_toml(plan.precision));
  }
  if (!plan.expand.empty()) out += fmt::format("expand = {}\n", names_text(plan.expand));
  out += entries_toml("reorder", plan.reorders);
  out += entries_toml("split", plan.splits);
  out += entries_toml("pin", plan.pins);
  out += entries_toml("stage", plan.stages);
  out += entries_toml("store", plan.stores);
  out += entries_toml("compress", plan.compress);
  out += entries_toml("loop", plan.loops);
  return out;
}

Result<std::vector<Mesh>> stage_meshes(const Plan& plan) {
  TESSERA_TRY(const auto own, own_meshes(plan));
  const auto count = static_cast<int64_t>(own.size());
  if (std::all_of(own.begin(), own.end(), [](const auto* e) { return e == nullptr; })) {
    return meshes_of_stage_axis(plan, count);
  }
  const Mesh whole = Mesh::row_major(plan.mesh);
  const AxisId axis = whole.find(plan.stage_axis);
  const auto on_axis = std::count(own.begin(), own.end(), nullptr);
  std::vector<int64_t> coordinates;  // coordinates of the stages without a mesh of their own
  if (axis.valid() && on_axis > 0) {
    Plan rest = plan;
    rest.place.clear();
    for (size_t s = 0; s < own.size() && s < plan.place.size(); ++s) {
      if (own[s] == nullptr) rest.place.push_back(plan.place[s]);
    }
    TESSERA_TRY(coordinates, place_coordinates(rest, whole, axis, on_axis));
  }
  NamedSizes shared;  // mesh of stages without a mesh of their own, if there is no stage axis
  for (const auto& [name, size] : plan.mesh) {
    if (name != plan.stage_axis) shared.emplace_back(name, size);
  }
  std::vector<Mesh> meshes;
  int64_t next_device = 0;
  size_t next_on_axis = 0;
  for (const StageEntry* entry : own) {
    if (entry == nullptr && !coordinates.empty()) {
      meshes.push_back(whole.fix(axis, coordinates[next_on_axis++]));
      continue;
    }
    const int64_t first = entry != nullptr ? entry->devices.value_or(next_device) : next_device;
    meshes.push_back(Mesh::row_major(entry != nullptr ? entry->mesh : shared, first));
    next_device = first + meshes.back().size();
  }
  TESSERA_TRY_VOID(check_devices(plan, meshes, own));
  return meshes;
}

int64_t Plan::stage_steps() const {
  for (const LoopEntry& loop : loops) {
    if (!loop.stages) continue;
    return loop.steps > 0 ? loop.steps : static_cast<int64_t>(loop.sizes.size());
  }
  return 1;
}

int64_t Plan::named_stages() const {
  int64_t count = 1;
  for (const StageEntry& entry : stages) count = std::max(count, entry.at + 1);
  return count;
}

int64_t Plan::ranks() const {
  const auto meshes = stage_meshes(*this);
  if (!meshes) return Mesh::row_major(mesh).size();
  int64_t end = 0;  // every device below the last belongs to a stage
  for (const Mesh& m : *meshes) {
    int64_t last = m.first_device;
    for (const MeshAxis& axis : m.axes) last += (axis.size - 1) * axis.stride;
    end = std::max(end, last + 1);
  }
  return end;
}

Result<Schedule> plan_schedule(const Plan& plan, const PipelineShape& shape) {
  const auto placed = [&](const Error& error) {
    return invalid_input(plan.schedule_line > 0 ? fmt::format("{}:{}: {}", plan.file,
                                                              plan.schedule_line, error.message)
                                                : fmt::format("{}: {}", plan.file, error.message));
  };
  const auto rows = static_cast<int64_t>(plan.schedule_table.size());
  if (rows > 0 && rows != shape.places) {
    return placed({ErrorCode::kInvalidInput,
                   fmt::format("expected {} lists in 'schedule' (one a place), found {}",
                               shape.places, rows)});
  }
  const bool named = plan.schedule_table.empty();
  auto schedule =
      named ? make_schedule(plan.schedule, shape) : complete_stages(plan.schedule_table, shape);
  if (!schedule) return placed(schedule.error());
  if (named) return schedule;  // make_schedule has checked it
  if (auto status = check_schedule_finishes(*schedule, shape); !status) {
    return placed(status.error());
  }
  return schedule;
}

}  // namespace tessera
