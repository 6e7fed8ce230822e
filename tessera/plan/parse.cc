// Reads the text of a plan. parse_toml reads the syntax. The functions here check the tables key by
// key; each error has file:line.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/base/toml_reader.h"
#include "tessera/plan/islands.h"
#include "tessera/plan/layout/part.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/resolve/ahead_split.h"

namespace tessera {
namespace {

using Reader = TomlReader;
using Names = std::vector<std::string>;
using NamedSizes = std::vector<std::pair<std::string, int64_t>>;

const Names kPlanKeys{
    "mesh",         "micro_batches", "micro_batch_dim", "stage_axis",     "schedule",
    "bucket_bytes", "split",         "stage",           "store",          "precision",
    "place",        "prefetch",      "outer",           "resharding",     "loop",
    "expand",       "reorder",       "compress",        "resident_bytes", "device_order",
    "pin",          "style",
};
const Names kSplitKeys{"ops", "phase", "dim", "over", "order", "skew", "halo"};
const Names kPinKeys{"ops", "phase", "axis", "at"};
const Names kStageKeys{"ops", "at", "mesh", "devices", "device_order"};
const Names kStoreKeys{"tensors",   "over", "dim",       "tier", "fraction",
                       "recompute", "keep", "keep_over", "cache"};
const Names kRowCacheKeys{"slots", "policy", "window", "counted", "prefetch", "zipf"};
const Names kRowCachePolicies{"lookahead", "dataset", "lfu", "lru"};
const Names kPrefetchKeys{"units", "ahead"};
const Names kKeeps{"block", "micro_batch", "step"};
const Names kLoopKeys{"ops", "dim", "steps", "sizes", "recompute", "stages"};
const Names kReorderKeys{"dim", "as", "pieces"};
const Names kOrderNames{"zigzag", "striped"};
const Names kCompressKeys{"tensors", "on", "with", "error_feedback"};
const Names kPrecisionKeys{"compute", "gradient", "state", "parameter", "loss_scale"};
const Names kLossScaleKeys{"initial", "growth", "interval", "backoff", "hysteresis", "min", "max"};
const Names kReshardings{"auto", "direct", "gather"};
const Names kPhases{"forward", "backward", "update"};
const Names kOrders{"aligned", "rotated", "nested"};
const Names kHalos{"send", "compute"};
const Names kTiers{"device", "host", "disk"};
const Names kDTypes{"float64", "float32", "bfloat16", "float16"};

bool is_identifier(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

// Reads a table of names with positive sizes, in the order of the text.
Status read_sizes(const Reader& reader, std::string_view key, NamedSizes& value) {
  std::optional<Reader> inner;
  TESSERA_TRY_VOID(reader.table(key, "a table like { dp = 2, tp = 2 }", inner));
  if (!inner) return {};
  value.clear();
  int64_t ranks = 1;
  for (const auto& [name, size_node] : inner->in_order()) {
    const std::string axis(name->str());
    if (!is_identifier(axis) || axis == "time") {
      return reader.error(reader.line_of(*size_node),
                          fmt::format("'{}' cannot name a mesh axis", axis));
    }
    int64_t size = 0;
    TESSERA_TRY_VOID(inner->integer(axis, 1, size));
    value.emplace_back(axis, size);
    if (size > kMostRanks / ranks) {
      return reader.error(
          reader.line_of(*size_node),
          fmt::format("expected a mesh of at most {} ranks, found {} = {}{}", kMostRanks, axis,
                      size, ranks == 1 ? "" : fmt::format(" times {}", ranks)));
    }
    ranks *= size;
  }
  return {};
}

// Reads axes (a name or a list of names), or a list of devices.
Status read_device_order(const Reader& reader, DeviceOrder& order) {
  const toml::node* node = reader.find("device_order");
  if (node == nullptr) return {};
  order.line = reader.line_of(*node);
  const auto* list = node->as_array();
  if (list == nullptr && !node->is_string())
    return reader.wrong_type("device_order", "a list of axes or of devices", *node);
  if (list != nullptr && list->empty()) {
    return reader.error(order.line, "'device_order' is an empty list: expected axes or devices");
  }
  if (list == nullptr || !list->front().is_integer())
    return reader.strings("device_order", order.axes);
  for (const toml::node& item : *list) {
    if (!item.is_integer())
      return reader.wrong_type("device_order", "the number of a device", item);
    order.devices.push_back(item.as_integer()->get());
  }
  return {};
}

std::string mesh_text(const NamedSizes& mesh) { return Mesh::row_major(mesh).to_string(); }

// Returns all axis names that an entry may use, which are those of the plan's mesh and of the
// stages' own meshes.
Names axis_names(const Plan& plan) {
  Names names;
  const auto add = [&](const NamedSizes& mesh) {
    for (const auto& [name, size] : mesh) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  };
  add(plan.mesh);
  for (const StageEntry& entry : plan.stages) add(entry.mesh);
  return names;
}

Status check_axes(const Reader& reader, std::string_view key, const Names& axes, const Plan& plan) {
  const Names known = axis_names(plan);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int line = reader.line_of(key);
    if (std::find(known.begin(), known.end(), axes[i]) == known.end()) {
      return reader.error(line, fmt::format("axis '{}' is not in the mesh {}{}", axes[i],
                                            mesh_text(plan.mesh), did_you_mean(axes[i], known)));
    }
    if (std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) !=
        axes.begin() + static_cast<std::ptrdiff_t>(i)) {
      return reader.error(line, fmt::format("axis '{}' is named twice in '{}'", axes[i], key));
    }
    if (axes[i] == plan.stage_axis && !plan.stages.empty()) {
      return reader.error(line,
                          fmt::format("axis '{}' is the stage axis; it places stages and cannot be "
                                      "used in '{}'",
                                      axes[i], key));
    }
  }
  return {};
}

// Removes "time:4" or "time:rims" from the end of `over` and sets `steps` and `rims` by it.
Status take_steps(const Reader& reader, Names& over, int64_t& steps, bool& rims) {
  for (size_t i = 0; i < over.size(); ++i) {
    if (over[i] != "time" && !over[i].starts_with("time:")) continue;
    const int line = reader.line_of("over");
    if (i + 1 != over.size()) {
      return reader.error(
          line,
          fmt::format("'{}' must be the last item of 'over' (a time loop is innermost)", over[i]));
    }
    rims = over[i] == "time:rims";
    const auto number = over[i] == "time" ? parse_int("") : parse_int(over[i].substr(5));
    if (!rims && (!number || *number < 1)) {
      return reader.error(line, fmt::format("expected 'time:N' with N >= 1 steps, or 'time:rims', "
                                            "in 'over', found '{}'",
                                            over[i]));
    }
    steps = rims ? 1 : *number;
    over.pop_back();
    return {};
  }
  return {};
}

Status check_skew(const Reader& reader, const SplitEntry& entry, const Plan& plan) {
  Names axes;
  size_t falling = 0;
  for (const std::string& name : entry.skew) {
    const bool falls = name.starts_with("-");
    falling += falls ? 1 : 0;
    axes.push_back(name.substr(falls ? 1 : 0));
  }
  TESSERA_TRY_VOID(check_axes(reader, "skew", axes, plan));
  if (!axes.empty() && entry.order == StepOrder::kAligned) {
    return reader.error(reader.line_of("skew"),
                        "'skew' needs order = \"rotated\" or order = \"nested\"");
  }
  if (axes.empty() && entry.order == StepOrder::kNested) {
    return reader.error(reader.line_of("order"),
                        "order = \"nested\" needs 'skew', the axes of its rings, outermost first");
  }
  if (entry.order == StepOrder::kRotated && falling > 0 && falling < axes.size()) {
    return reader.error(reader.line_of("skew"),
                        "expected a minus on all axes of a rotated loop or on none");
  }
  return {};
}

Status read_phase(const Reader& reader, std::optional<Phase>& out) {
  std::string phase;
  TESSERA_TRY_VOID(reader.string("phase", phase));
  if (phase.empty()) return {};
  const auto it = std::find(kPhases.begin(), kPhases.end(), phase);
  if (it == kPhases.end()) return reader.not_one_of("phase", "phase", phase, kPhases);
  out = static_cast<Phase>(it - kPhases.begin());
  return {};
}

Result<PinEntry> read_pin(const Reader& reader, const Plan& plan) {
  PinEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kPinKeys));
  for (std::string_view key : {"ops", "axis", "at"}) TESSERA_TRY_VOID(reader.require(key));
  TESSERA_TRY_VOID(reader.string("ops", entry.ops));
  TESSERA_TRY_VOID(read_phase(reader, entry.phase));
  TESSERA_TRY_VOID(reader.string("axis", entry.axis));
  TESSERA_TRY_VOID(check_axes(reader, "axis", {entry.axis}, plan));
  TESSERA_TRY_VOID(reader.integer("at", 0, entry.at));
  return entry;
}

Result<SplitEntry> read_split(const Reader& reader, const Plan& plan) {
  SplitEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kSplitKeys));
  for (std::string_view key : {"ops", "dim", "over"}) TESSERA_TRY_VOID(reader.require(key));
  TESSERA_TRY_VOID(reader.string("ops", entry.ops));
  TESSERA_TRY_VOID(reader.string("dim", entry.dim));
  TESSERA_TRY_VOID(reader.strings("over", entry.over));
  if (is_ahead(entry)) {
    if (entry.over != Names{std::string(kAhead)} && entry.over != Names{std::string(kStale)}) {
      return reader.error(reader.line_of("over"),
                          fmt::format("dim \"{}\": expected over = \"{}\" or \"{}\", found \"{}\"",
                                      kStepDim, kAhead, kStale, join(entry.over, ", ")));
    }
    for (const std::string_view key : {"phase", "order", "skew"}) {
      if (reader.has(key)) {
        return reader.error(reader.line_of(key),
                            fmt::format("'{}' says nothing of dim \"{}\"", key, kStepDim));
      }
    }
    return entry;
  }
  TESSERA_TRY_VOID(take_steps(reader, entry.over, entry.steps, entry.rims));
  TESSERA_TRY_VOID(check_axes(reader, "over", entry.over, plan));
  TESSERA_TRY_VOID(read_phase(reader, entry.phase));
  std::string order = "aligned";
  TESSERA_TRY_VOID(reader.string("order", order));
  const auto it = std::find(kOrders.begin(), kOrders.end(), order);
  if (it == kOrders.end()) return reader.not_one_of("order", "order", order, kOrders);
  entry.order = static_cast<StepOrder>(it - kOrders.begin());
  if (reader.has("order") && entry.steps == 1) {
    return reader.error(reader.line_of("order"),
                        "'order' needs a time loop ('over' with \"time:N\")");
  }
  TESSERA_TRY_VOID(reader.strings("skew", entry.skew));
  TESSERA_TRY_VOID(check_skew(reader, entry, plan));
  std::string halo = "send";
  TESSERA_TRY_VOID(reader.string("halo", halo));
  const auto way = std::find(kHalos.begin(), kHalos.end(), halo);
  if (way == kHalos.end()) return reader.not_one_of("halo", "halo", halo, kHalos);
  entry.computes_halo = halo == "compute";
  if (entry.computes_halo && entry.steps > 1) {
    return reader.error(reader.line_of("halo"),
                        "halo = \"compute\" needs a dim that is not cut into steps");
  }
  return entry;
}

Result<StageEntry> read_stage(const Reader& reader) {
  StageEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kStageKeys));
  for (std::string_view key : {"ops", "at"}) TESSERA_TRY_VOID(reader.require(key));
  TESSERA_TRY_VOID(reader.string("ops", entry.ops));
  TESSERA_TRY_VOID(reader.integer("at", 0, entry.at));
  TESSERA_TRY_VOID(read_sizes(reader, "mesh", entry.mesh));
  if (reader.has("devices")) {
    int64_t devices = 0;
    TESSERA_TRY_VOID(reader.integer("devices", 0, devices));
    if (entry.mesh.empty()) {
      return reader.error(reader.line_of("devices"), "'devices' needs a 'mesh' of the stage's own");
    }
    if (devices >= kMostRanks) {
      return reader.error(
          reader.line_of("devices"),
          fmt::format("expected 'devices' to be below {}, the most ranks of a plan, "
                      "found {}",
                      kMostRanks, devices));
    }
    entry.devices = devices;
  }
  TESSERA_TRY_VOID(read_device_order(reader, entry.device_order));
  if (entry.device_order.empty()) return entry;
  if (entry.mesh.empty()) {
    return reader.error(entry.device_order.line,
                        "'device_order' in [[stage]] needs a 'mesh' of the stage's own");
  }
  if (!entry.device_order.devices.empty()) {
    return reader.error(entry.device_order.line,
                        "expected axes in the 'device_order' of a stage, found devices; a list of "
                        "devices is given for all ranks, beside 'mesh'");
  }
  return entry;
}

// Reads a number that is at least `least`.
Status read_number(const Reader& reader, std::string_view key, double least, double& value) {
  const toml::node* node = reader.find(key);
  if (node == nullptr) return {};
  const auto number = node->value<double>();
  if (!node->is_number() || !number) {
    return reader.error(reader.line_of(*node), fmt::format("expected {} = a number, found {}", key,
                                                           type_text(node->type())));
  }
  value = *number;
  if (std::isfinite(value) && value >= least) return {};
  return reader.error(reader.line_of(*node),
                      fmt::format("expected {} of {} or more, found {}", key, least, value));
}

Result<RowCacheRule> read_cache(const Reader& reader) {
  RowCacheRule rule;
  TESSERA_TRY_VOID(reader.allow(kRowCacheKeys));
  TESSERA_TRY_VOID(reader.require("slots"));
  TESSERA_TRY_VOID(read_number(reader, "slots", 0, rule.slots));
  const bool whole = rule.slots == std::floor(rule.slots);
  if (rule.slots <= 0 || (rule.slots > 1 && !whole)) {
    return reader.error(reader.line_of("slots"),
                        fmt::format("expected slots = a number of rows, or a share of them between "
                                    "0 and 1, found {}",
                                    rule.slots));
  }
  if (reader.has("policy")) {
    TESSERA_TRY_VOID(reader.string("policy", rule.policy));
    if (std::find(kRowCachePolicies.begin(), kRowCachePolicies.end(), rule.policy) ==
        kRowCachePolicies.end())
      return reader.not_one_of("policy", "policy", rule.policy, kRowCachePolicies);
  }
  TESSERA_TRY_VOID(reader.integer("window", 0, rule.window));
  TESSERA_TRY_VOID(reader.integer("counted", 0, rule.counted));
  TESSERA_TRY_VOID(reader.boolean("prefetch", rule.prefetch));
  TESSERA_TRY_VOID(read_number(reader, "zipf", 0, rule.zipf));
  return rule;
}

Result<StoreEntry> read_store(const Reader& reader, const Plan& plan) {
  StoreEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kStoreKeys));
  TESSERA_TRY_VOID(reader.require("tensors"));
  TESSERA_TRY_VOID(reader.string("tensors", entry.tensors));
  if (reader.has("over")) {
    Names over;
    TESSERA_TRY_VOID(reader.strings("over", over));
    TESSERA_TRY_VOID(check_axes(reader, "over", over, plan));
    entry.over = std::move(over);
  }
  if (reader.has("dim")) {
    std::string dim;
    TESSERA_TRY_VOID(reader.string("dim", dim));
    if (!entry.over) return reader.error(reader.line_of("dim"), "'dim' in [[store]] needs 'over'");
    entry.dim = std::move(dim);
  }
  if (reader.has("tier")) {
    std::string tier;
    TESSERA_TRY_VOID(reader.string("tier", tier));
    const auto it = std::find(kTiers.begin(), kTiers.end(), tier);
    if (it == kTiers.end()) return reader.not_one_of("tier", "tier", tier, kTiers);
    entry.tier = static_cast<Tier>(it - kTiers.begin());
  }
  if (const toml::node* node = reader.find("fraction")) {
    const auto fraction = node->value<double>();
    if (!node->is_number() || !fraction || !(*fraction >= 0 && *fraction <= 1)) {
      return reader.error(
          reader.line_of(*node),
          fmt::format("expected fraction = a number from 0 to 1, found {}",
                      fraction && node->is_number() ? fmt::format("{}", *fraction)
                                                    : std::string(type_text(node->type()))));
    }
    if (!entry.tier)
      return reader.error(reader.line_of(*node), "'fraction' in [[store]] needs 'tier'");
    entry.fraction = *fraction;
  }
  if (reader.has("recompute")) {
    bool recompute = false;
    TESSERA_TRY_VOID(reader.boolean("recompute", recompute));
    entry.recompute = recompute;
  }
  if (reader.has("keep")) {
    std::string keep;
    TESSERA_TRY_VOID(reader.string("keep", keep));
    const auto it = std::find(kKeeps.begin(), kKeeps.end(), keep);
    if (it == kKeeps.end()) return reader.not_one_of("keep", "keep", keep, kKeeps);
    entry.keep = static_cast<Keep>(it - kKeeps.begin());
  }
  if (reader.has("keep_over")) {
    Names over;
    TESSERA_TRY_VOID(reader.strings("keep_over", over));
    TESSERA_TRY_VOID(check_axes(reader, "keep_over", over, plan));
    if (entry.keep == Keep::kBlock) {
      return reader.error(reader.line_of("keep_over"),
                          "'keep_over' needs keep = \"micro_batch\" or keep = \"step\"");
    }
    entry.keep_over = std::move(over);
  }
  if (reader.has("cache")) {
    std::optional<Reader> cache;
    TESSERA_TRY_VOID(reader.table("cache", "{ slots = 10000, policy = \"lookahead\" }", cache));
    if (!entry.tier || *entry.tier == Tier::kDevice) {
      return reader.error(reader.line_of("cache"),
                          "'cache' in [[store]] needs tier = \"host\" or tier = \"disk\"");
    }
    TESSERA_TRY(entry.cache, read_cache(*cache));
  }
  if (!entry.over && !entry.tier && !entry.recompute && !entry.keep && !entry.keep_over) {
    return reader.error(
        entry.line,
        "[[store]] needs at least one of 'over', 'tier', 'recompute', 'keep', 'keep_over'");
  }
  return entry;
}

Result<LoopEntry> read_loop(const Reader& reader) {
  LoopEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kLoopKeys));
  for (std::string_view key : {"ops", "dim"}) TESSERA_TRY_VOID(reader.require(key));
  TESSERA_TRY_VOID(reader.string("ops", entry.ops));
  TESSERA_TRY_VOID(reader.string("dim", entry.dim));
  if (reader.has("steps") == reader.has("sizes")) {
    return reader.error(entry.line, "[[loop]] needs one of 'steps' and 'sizes'");
  }
  TESSERA_TRY_VOID(reader.integer("steps", 1, entry.steps));
  TESSERA_TRY_VOID(reader.integers("sizes", entry.sizes));
  if (reader.has("sizes") && entry.sizes.empty()) {
    return reader.error(reader.line_of("sizes"), "'sizes' in [[loop]] is empty");
  }
  // Most elements of a step, so that sums of sizes do not overflow.
  constexpr int64_t kMostSize = int64_t{1} << 40;
  for (const int64_t size : entry.sizes) {
    if (size <= kMostSize) continue;
    return reader.error(
        reader.line_of("sizes"),
        fmt::format("expected 'sizes' in [[loop]] of at most {}, found {}", kMostSize, size));
  }
  TESSERA_TRY_VOID(reader.boolean("recompute", entry.recompute));
  TESSERA_TRY_VOID(reader.boolean("stages", entry.stages));
  return entry;
}

Result<ReorderEntry> read_reorder(const Reader& reader) {
  ReorderEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kReorderKeys));
  for (std::string_view key : kReorderKeys) TESSERA_TRY_VOID(reader.require(key));
  TESSERA_TRY_VOID(reader.string("dim", entry.dim));
  TESSERA_TRY_VOID(reader.string("as", entry.as));
  if (std::find(kOrderNames.begin(), kOrderNames.end(), entry.as) == kOrderNames.end())
    return reader.not_one_of("as", "order", entry.as, kOrderNames);
  TESSERA_TRY_VOID(reader.integer("pieces", 1, entry.pieces));
  if (entry.as == "zigzag" && entry.pieces % 2 != 0) {
    return reader.error(reader.line_of("pieces"),
                        fmt::format("expected an even number of pieces in a zigzag (two for each "
                                    "cut), found {}",
                                    entry.pieces));
  }
  return entry;
}

Result<CompressEntry> read_compress(const Reader& reader) {
  CompressEntry entry;
  entry.line = reader.line();
  TESSERA_TRY_VOID(reader.allow(kCompressKeys));
  for (std::string_view key : {"tensors", "with"}) TESSERA_TRY_VOID(reader.require(key));
  TESSERA_TRY_VOID(reader.string("tensors", entry.tensors));
  entry.on = "*";
  TESSERA_TRY_VOID(reader.string("on", entry.on));
  Names edges{"*"};
  for (size_t edge = 0; edge < kEdges; ++edge) edges.emplace_back(edge_name(edge));
  if (std::find(edges.begin(), edges.end(), entry.on) == edges.end())
    return reader.not_one_of("on", "edge", entry.on, edges);
  std::string with;
  TESSERA_TRY_VOID(reader.string("with", with));
  const auto codec = parse_codec(with);
  if (!codec) return reader.error(reader.line_of("with"), codec.error().message);
  entry.with.codec = *codec;
  if (const toml::node* node = reader.find("error_feedback")) {
    if (!node->is_boolean()) return reader.wrong_type("error_feedback", "true or false", *node);
    entry.with.error_feedback = node->as_boolean()->get();
  }
  return entry;
}

// Returns a reader for each table in the list at `key`.
Result<std::vector<Reader>> read_entries(const Reader& top, std::string_view key) {
  std::vector<Reader> readers;
  const toml::node* node = top.find(key);
  if (node == nullptr) return readers;
  const auto* list = node->as_array();
  if (list == nullptr) return top.wrong_type(key, "a list of tables", *node);
  for (const toml::node& item : *list) {
    if (!item.is_table()) return top.wrong_type(key, "a list of tables", item);
    readers.emplace_back(*item.as_table(), fmt::format("[[{}]]", key), top.file(),
                         top.line_of(*node));
  }
  return readers;
}

Status read_schedule(const Reader& top, Plan& plan) {
  const toml::node* node = top.find("schedule");
  if (node == nullptr) return {};
  const auto* table = node->as_array();
  if (table == nullptr) {
    if (!node->is_string()) {
      return top.wrong_type("schedule", "a name or a list of lists of blocks", *node);
    }
    TESSERA_TRY_VOID(top.string("schedule", plan.schedule));
    const Names names = schedule_names();
    if (std::find(names.begin(), names.end(), plan.schedule) == names.end()) {
      return top.not_one_of("schedule", "schedule", plan.schedule, names);
    }
    return {};
  }
  for (const toml::node& row : *table) {
    if (!row.is_array()) return top.wrong_type("schedule", "one list of blocks a place", row);
    std::vector<BlockRun>& runs = plan.schedule_table.emplace_back();
    for (const toml::node& item : *row.as_array()) {
      if (!item.is_string()) return top.wrong_type("schedule", "blocks like \"F0\"", item);
      const auto run = parse_block_run(item.as_string()->get());
      if (!run) return top.error(top.line_of(item), run.error().message);
      runs.push_back(*run);
    }
  }
  if (plan.schedule_table.empty()) {
    return top.error(top.line_of(*node),
                     "'schedule' is an empty list: expected one list of blocks a place");
  }
  // The stages at each place are known only with the graph, so a table that names stages is checked
  // later. A table that names none has one stage at each place and is checked here.
  const auto names_stage = [](const BlockRun& run) { return run.stage != kOnlyStage; };
  PipelineShape shape{.places = static_cast<int64_t>(plan.schedule_table.size()),
                      .micro_batches = plan.micro_batches};
  for (const std::vector<BlockRun>& row : plan.schedule_table) {
    if (std::any_of(row.begin(), row.end(), names_stage)) return {};
    shape.at.push_back({shape.stages()});
  }
  const auto schedule = plan_schedule(plan, shape);
  if (!schedule) return tl::unexpected(schedule.error());
  return {};
}

Status read_loss_scale(const Reader& reader, Precision& precision) {
  const toml::node* node = reader.find("loss_scale");
  if (node == nullptr) return {};
  LossScale scale;
  if (node->is_number()) {
    scale.dynamic = false;
    TESSERA_TRY_VOID(reader.positive("loss_scale", scale.initial));
  } else if (const auto* table = node->as_table()) {
    const Reader inner(*table, "loss_scale", reader.file(), reader.line_of(*node));
    TESSERA_TRY_VOID(inner.allow(kLossScaleKeys));
    for (const auto& [key, value] : {std::pair{"initial", &scale.initial},
                                     {"growth", &scale.growth},
                                     {"backoff", &scale.backoff},
                                     {"min", &scale.min},
                                     {"max", &scale.max}}) {
      TESSERA_TRY_VOID(inner.positive(key, *value));
    }
    TESSERA_TRY_VOID(inner.integer("interval", 1, scale.interval));
    TESSERA_TRY_VOID(inner.integer("hysteresis", 1, scale.hysteresis));
    if (scale.growth < 1 || scale.backoff > 1 || scale.min > scale.initial ||
        scale.initial > scale.max) {
      return reader.error(
          inner.line(),
          fmt::format("loss_scale: expected growth >= 1, backoff <= 1, min <= initial <= max, "
                      "found {:g}, {:g}, {:g}, {:g}, {:g}",
                      scale.growth, scale.backoff, scale.min, scale.initial, scale.max));
    }
  } else if (!node->is_string() || node->as_string()->get() != "dynamic") {
    return reader.error(
        reader.line_of(*node),
        fmt::format("expected loss_scale to be \"dynamic\", a number or a table, found {}",
                    node->is_string() ? fmt::format("'{}'", node->as_string()->get())
                                      : std::string(type_text(node->type()))));
  }
  precision.loss_scale = scale;
  return {};
}

Status read_precision(const Reader& top, Plan& plan) {
  const toml::node* node = top.find("precision");
  if (node == nullptr) return {};
  if (!node->is_table())
    return top.wrong_type("precision", "a table like { compute = \"bfloat16\" }", *node);
  const Reader reader(*node->as_table(), "[precision]", top.file(), top.line_of(*node));
  TESSERA_TRY_VOID(reader.allow(kPrecisionKeys));
  Precision& precision = plan.precision;
  for (const auto& [key, dtype] : {std::pair{"compute", &precision.compute},
                                   {"gradient", &precision.gradient},
                                   {"state", &precision.state},
                                   {"parameter", &precision.parameter}}) {
    std::string name;
    TESSERA_TRY_VOID(reader.string(key, name));
    if (name.empty()) continue;
    const auto parsed = parse_dtype(name);
    if (!parsed || !is_floating(*parsed)) return reader.not_one_of(key, "dtype", name, kDTypes);
    *dtype = *parsed;
  }
  return read_loss_scale(reader, precision);
}

Status read_prefetch(const Reader& top, Plan& plan) {
  const toml::node* node = top.find("prefetch");
  if (node == nullptr) return {};
  if (!node->is_table()) {
    return top.wrong_type("prefetch", "a table like { units = \"blocks.*\", ahead = 1 }", *node);
  }
  const Reader reader(*node->as_table(), "[prefetch]", top.file(), top.line_of(*node));
  TESSERA_TRY_VOID(reader.allow(kPrefetchKeys));
  TESSERA_TRY_VOID(reader.require("units"));
  Prefetch prefetch;
  TESSERA_TRY_VOID(reader.string("units", prefetch.units));
  TESSERA_TRY_VOID(reader.integer("ahead", 0, prefetch.ahead));
  plan.prefetch = std::move(prefetch);
  return {};
}

Status read_outer(const Reader& top, Plan& plan) {
  std::optional<Reader> reader;
  TESSERA_TRY_VOID(top.table("outer", "a table like { axis = \"site\", every = 50 }", reader));
  if (!reader) return {};
  TESSERA_TRY(plan.outer, read_outer_steps(*reader));
  return {};
}

Status read_place(const Reader& top, Plan& plan) {
  const toml::node* node = top.find("place");
  if (node == nullptr) return {};
  plan.place_line = top.line_of(*node);
  if (!node->is_array()) return top.wrong_type("place", "a list of numbers, one a stage", *node);
  for (const toml::node& item : *node->as_array()) {
    if (!item.is_integer())
      return top.wrong_type("place", "the coordinate of a stage on the stage axis", item);
    plan.place.push_back(item.as_integer()->get());
  }
  return {};
}

// Reads the plan. `axes`: axes that entries may name in addition to those of the mesh in the text.
Result<Plan> read_plan(const Reader& top, const Names& axes = {}) {
  Plan plan;
  plan.file = top.file();
  TESSERA_TRY_VOID(top.allow(kPlanKeys));
  TESSERA_TRY_VOID(read_sizes(top, "mesh", plan.mesh));
  const NamedSizes mesh = plan.mesh;
  for (const std::string& axis : axes) {
    const Names known = axis_names(plan);
    if (std::find(known.begin(), known.end(), axis) == known.end()) plan.mesh.emplace_back(axis, 1);
  }
  TESSERA_TRY_VOID(read_device_order(top, plan.device_order));
  TESSERA_TRY_VOID(top.integer("micro_batches", 1, plan.micro_batches));
  if (top.has("micro_batches")) plan.micro_batches_line = top.line_of("micro_batches");
  if (top.has("schedule")) plan.schedule_line = top.line_of("schedule");
  TESSERA_TRY_VOID(top.string("micro_batch_dim", plan.micro_batch_dim));
  TESSERA_TRY_VOID(top.string("stage_axis", plan.stage_axis));
  TESSERA_TRY_VOID(read_place(top, plan));
  TESSERA_TRY_VOID(read_prefetch(top, plan));
  TESSERA_TRY_VOID(read_outer(top, plan));
  TESSERA_TRY_VOID(top.integer("bucket_bytes", 0, plan.bucket_bytes));
  TESSERA_TRY_VOID(top.integer("resident_bytes", 0, plan.resident_bytes));
  TESSERA_TRY_VOID(top.string("resharding", plan.resharding));
  if (std::find(kReshardings.begin(), kReshardings.end(), plan.resharding) == kReshardings.end())
    return top.not_one_of("resharding", "resharding", plan.resharding, kReshardings);
  TESSERA_TRY_VOID(top.string("style", plan.style));
  TESSERA_TRY_VOID(read_schedule(top, plan));
  TESSERA_TRY_VOID(read_precision(top, plan));
  TESSERA_TRY(const auto stages, read_entries(top, "stage"));
  for (const Reader& reader : stages) {
    TESSERA_TRY(StageEntry entry, read_stage(reader));
    plan.stages.push_back(std::move(entry));
  }
  TESSERA_TRY_VOID(top.strings("expand", plan.expand));
  if (top.has("expand")) plan.expand_line = top.line_of("expand");
  TESSERA_TRY(const auto reorders, read_entries(top, "reorder"));
  for (const Reader& reader : reorders) {
    TESSERA_TRY(ReorderEntry entry, read_reorder(reader));
    plan.reorders.push_back(std::move(entry));
  }
  TESSERA_TRY(const auto splits, read_entries(top, "split"));
  for (const Reader& reader : splits) {
    TESSERA_TRY(SplitEntry entry, read_split(reader, plan));
    plan.splits.push_back(std::move(entry));
  }
  TESSERA_TRY(const auto pins, read_entries(top, "pin"));
  for (const Reader& reader : pins) {
    TESSERA_TRY(PinEntry entry, read_pin(reader, plan));
    plan.pins.push_back(std::move(entry));
  }
  TESSERA_TRY(const auto stores, read_entries(top, "store"));
  for (const Reader& reader : stores) {
    TESSERA_TRY(StoreEntry entry, read_store(reader, plan));
    plan.stores.push_back(std::move(entry));
  }
  TESSERA_TRY(const auto compress, read_entries(top, "compress"));
  for (const Reader& reader : compress) {
    TESSERA_TRY(CompressEntry entry, read_compress(reader));
    plan.compress.push_back(std::move(entry));
  }
  TESSERA_TRY(const auto loops, read_entries(top, "loop"));
  for (const Reader& reader : loops) {
    TESSERA_TRY(LoopEntry entry, read_loop(reader));
    for (const LoopEntry& other : plan.loops) {
      if (!entry.stages || !other.stages) continue;
      return reader.error(entry.line,
                          fmt::format("the loop of line {} has stages = true already", other.line));
    }
    plan.loops.push_back(std::move(entry));
  }
  plan.mesh = mesh;
  return plan;
}

// Returns a hint if a line has the header of a table and then keys; else "". This is a common
// mistake, because TOML wants a line break after a header.
std::string syntax_hint(std::string_view text) {
  for (const std::string& line : split_text(text, '\n')) {
    const std::string_view content = trim(line);
    for (std::string_view key : {"split", "stage", "store", "loop", "reorder", "compress"}) {
      const std::string header = fmt::format("[[{}]]", key);
      if (!content.starts_with(header)) continue;
      const std::string_view rest = trim(content.substr(header.size()));
      if (rest.empty() || rest.front() == '#') continue;
      return fmt::format("; to write an entry on one line: {} = [ {{ ... }}, ]", key);
    }
  }
  return "";
}

}  // namespace

Result<Plan> parse_plan(std::string_view text, std::string_view file) {
  const std::string file_name(file);
  auto table = parse_toml(text, file);
  if (!table) return invalid_input(table.error().message + syntax_hint(text));
  TESSERA_TRY(Plan plan, read_plan(Reader(*table, "the plan", file_name, 1)));
  TESSERA_TRY_VOID(write_out_micro_batches(plan));
  TESSERA_TRY_VOID(check_outer_steps(plan));
  return plan;
}

Result<PlanPart> parse_part(std::string_view text, std::string_view file, const Names& axes) {
  const std::string file_name(file);
  auto table = parse_toml(text, file);
  if (!table) return invalid_input(table.error().message + syntax_hint(text));
  const Reader top(*table, "the part of a plan", file_name, 1);
  PlanPart part;
  TESSERA_TRY(part.plan, read_plan(top, axes));
  for (const std::string& key : kPlanKeys) {
    if (top.has(key)) part.keys.push_back(key);
  }
  if (top.has("mesh")) part.mesh_line = top.line_of("mesh");
  return part;
}

const std::vector<std::string>& row_cache_policies() { return kRowCachePolicies; }
std::string_view keep_name(Keep keep) { return kKeeps[static_cast<size_t>(keep)]; }

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kDevice: return "device";
    case Tier::kHost: return "host";
    case Tier::kDisk: return "disk";
  }
  return "device";
}

}  // namespace tessera
