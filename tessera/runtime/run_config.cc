#include "tessera/runtime/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <variant>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/precision.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

struct Key {
  std::string name;  // "optimizer.lr"
  std::variant<int64_t*, double*, std::string*> target;
  double minimum = 0;                     // for numbers
  Texts choices = {};                     // for texts; empty: any text
  std::optional<NumberRange> range = {};  // for numbers, in place of the minimum
};

// Returns the key of a number of the optimizer, with the range that the update kinds allow for it.
Key optimizer_key(std::string name, double* target) {
  Key key{std::move(name), target};
  key.range = optimizer_range(std::string_view(key.name).substr(key.name.rfind('.') + 1));
  return key;
}

const Texts kRoundings = {"nearest", "stochastic"};

// Returns all keys. Both the parser of run files and `--set` use this list.
std::vector<Key> keys_of(RunConfig& c) {
  OptimizerConfig& o = c.optimizer;
  return {{"model", &c.model},
          {"batch", &c.batch, 1},
          {"steps", &c.steps, 1},
          {"plan", &c.plan},
          {"precision", &c.precision, 0, Texts(kRunDtypes.begin(), kRunDtypes.end())},
          {"seed", &c.seed, 0},
          {"ranks", &c.ranks, 0},
          {"threads", &c.threads, 0},
          {"timeout_s", &c.timeout_s, 0.001},
          {"device", &c.device},
          {"memory_limit_bytes", &c.memory_limit_bytes, 0},
          {"folder", &c.folder},
          {"watch", &c.watch, 0},
          {"eval.every", &c.eval.every, 1},
          {"eval.batches", &c.eval.batches, 1},
          {"weights", &c.weights},
          {"weights_of", &c.weights_of},
          {"checkpoint.dir", &c.checkpoint.dir},
          {"checkpoint.every", &c.checkpoint.every, 1},
          {"checkpoint.keep", &c.checkpoint.keep, 1},
          {"checkpoint.asynchronous", &c.checkpoint.asynchronous, 0},
          {"checkpoint.fast.dir", &c.checkpoint.fast.dir},
          {"checkpoint.fast.every", &c.checkpoint.fast.every, 1},
          {"checkpoint.fast.keep", &c.checkpoint.fast.keep, 1},
          {"checkpoint.fast.asynchronous", &c.checkpoint.fast.asynchronous, 0},
          {"optimizer.kind", &o.kind, 0, optimizer_names()},
          optimizer_key("optimizer.lr", &o.lr),
          optimizer_key("optimizer.min_lr", &o.min_lr),
          {"optimizer.warmup", &o.warmup, 0},
          optimizer_key("optimizer.beta1", &o.beta1),
          optimizer_key("optimizer.beta2", &o.beta2),
          optimizer_key("optimizer.eps", &o.eps),
          optimizer_key("optimizer.weight_decay", &o.weight_decay),
          optimizer_key("optimizer.momentum", &o.momentum),
          optimizer_key("optimizer.nesterov", &o.nesterov),
          {"optimizer.rounding", &o.rounding, 0, kRoundings},
          optimizer_key("optimizer.clip", &o.clip)};
}

std::string found_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("'{}'", text->get());
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date";
}

// Reads a value into the target of its key. The text of an error does not say where the value is;
// the caller adds the place.
struct SetValue {
  const Key& key;
  const toml::node& node;

  tl::unexpected<Error> expected(std::string_view what) const {
    return invalid_input(
        fmt::format("expected {} to be {}, found {}", key.name, what, found_text(node)));
  }
  Status operator()(int64_t* target) const {
    const auto* number = node.as_integer();
    if (number == nullptr || static_cast<double>(number->get()) < key.minimum) {
      return expected(fmt::format("an integer of at least {}", key.minimum));
    }
    *target = number->get();
    return {};
  }
  Status operator()(double* target) const {
    const auto number = node.value<double>();
    const NumberRange range = key.range.value_or(NumberRange{.least = key.minimum});
    if (!node.is_number() || !number || !range.holds(*number)) return expected(range.words());
    *target = *number;
    return {};
  }
  Status operator()(std::string* target) const {
    const auto* text = node.as_string();
    if (text == nullptr || text->get().empty()) return expected("a string");
    const auto is_choice = [&](std::string_view word) {
      return key.choices.empty() ||
             std::find(key.choices.begin(), key.choices.end(), word) != key.choices.end();
    };
    *target = text->get();
    if (is_choice(*target)) return {};
    // People write dtypes in other words, too: "bf16".
    if (const auto dtype = parse_dtype(*target)) *target = dtype_name(*dtype);
    if (!is_choice(*target)) return expected("one of " + join(key.choices, ", "));
    return {};
  }
};

// Returns the names that the key `kind` of a group may have: the optimizers, and "none" for a group
// whose parameters are not trained.
std::vector<std::string> kinds_of_a_group() {
  std::vector<std::string> kinds = optimizer_names();
  kinds.emplace_back(kNoOptimizer);
  return kinds;
}

std::vector<Key> keys_of(OptimizerGroup& group, double& decay) {
  return {{"parameters", &group.parameters},
          optimizer_key("rate", &group.rate),
          optimizer_key("weight_decay", &decay),
          {"kind", &group.kind, 0, kinds_of_a_group()},
          {"rounding", &group.rounding, 0, kRoundings}};
}

// Reads an element of the list `optimizer.group`: { parameters = "embed", rate = 0.1, weight_decay
// = 0, kind = "adamw" }.
Result<OptimizerGroup> read_group(const toml::node& node) {
  OptimizerGroup group;
  double decay = 0;
  const std::vector<Key> keys = keys_of(group, decay);
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return invalid_input(
        fmt::format("expected optimizer.group to be a list of tables, found {}", found_text(node)));
  }
  for (const auto& [name, value] : *table) {
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&, &n = name](const Key& one) { return one.name == n.str(); });
    if (key == keys.end()) {
      return invalid_input(fmt::format(
          "optimizer.group: expected parameters, rate, weight_decay, kind or rounding, found '{}'",
          name.str()));
    }
    TESSERA_TRY_VOID(std::visit(SetValue{*key, value}, key->target));
    if (key->name == "weight_decay") group.weight_decay = decay;
  }
  if (group.parameters.empty()) {
    return invalid_input(
        "optimizer.group: expected the key 'parameters', for example parameters = \"embed\"");
  }
  return group;
}

Status read_groups(RunConfig& config, const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr) {
    return invalid_input(
        fmt::format("expected optimizer.group to be a list of tables, found {}", found_text(node)));
  }
  config.optimizer.groups.clear();
  for (const toml::node& item : *list) {
    TESSERA_TRY(OptimizerGroup group, read_group(item));
    config.optimizer.groups.push_back(std::move(group));
  }
  return {};
}

// Reads `change = [{ after = 50, plan = "data_parallel(2)" }, ...]`.
Status read_changes(RunConfig& config, const toml::node& node) {
  const toml::array* list = node.as_array();
  std::vector<PlanChange> changes;
  if (list == nullptr) {
    return invalid_input(
        fmt::format("expected change to be a list of tables, found {}", found_text(node)));
  }
  for (const toml::node& item : *list) {
    PlanChange& change = changes.emplace_back();
    const std::vector<Key> keys{{"after", &change.after, 1}, {"plan", &change.plan}};
    const toml::table* table = item.as_table();
    if (table == nullptr || !table->contains("after") || !table->contains("plan")) {
      return invalid_input(
          "change: expected tables with the keys after and plan, for example { after = 50, plan = "
          "\"data_parallel(2)\" }");
    }
    for (const auto& [name, value] : *table) {
      const auto key = std::find_if(keys.begin(), keys.end(),
                                    [&, &n = name](const Key& one) { return one.name == n.str(); });
      if (key == keys.end())
        return invalid_input(fmt::format("change: expected after or plan, found '{}'", name.str()));
      TESSERA_TRY_VOID(std::visit(SetValue{*key, value}, key->target));
    }
  }
  config.changes = std::move(changes);
  return {};
}

Status set_key(RunConfig& config, const std::string& name, const toml::node& node) {
  // `optimizer = "sgd"` is short for `optimizer.kind = "sgd"`.
  const std::string full = name == "optimizer" ? "optimizer.kind" : name;
  if (full == "optimizer.group") return read_groups(config, node);
  if (full == "change") return read_changes(config, node);
  if (full == "data" || full == "eval.data") {
    TESSERA_TRY((full == "data" ? config.data : config.eval.data), read_data_config(node));
    return {};
  }
  Texts names{"change", "data", "eval.data"};
  for (const Key& key : keys_of(config)) {
    if (key.name == full) return std::visit(SetValue{key, node}, key.target);
    names.push_back(key.name);
  }
  const std::string best = nearest(name, names);
  return invalid_input(fmt::format("unknown key '{}'{}", name,
                                   best.empty() ? "" : fmt::format(", did you mean '{}'?", best)));
}

Status read_table(RunConfig& config, const toml::table& table, const std::string& prefix) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    constexpr std::array kTables{"optimizer", "eval", "checkpoint", "checkpoint.fast"};
    if (std::find(kTables.begin(), kTables.end(), name) != kTables.end() && node.is_table()) {
      TESSERA_TRY_VOID(read_table(config, *node.as_table(), name + "."));
      continue;
    }
    const auto line = static_cast<int>(key.source().begin.line);
    if (auto status = set_key(config, name, node); !status) {
      return invalid_input(fmt::format("{}:{}: {}", config.file, line, status.error().message));
    }
    if (name == "data") config.data_line = line;
    if (name == "eval.data") config.eval.data_line = line;
  }
  return {};
}

}  // namespace

Result<RunConfig> parse_run_config(std::string_view text, std::string_view file) {
  RunConfig config;
  config.file = std::string(file);
  TESSERA_TRY(const toml::table table, parse_toml(text, config.file));
  TESSERA_TRY_VOID(read_table(config, table, ""));
  return config;
}

Result<RunConfig> load_run_config(const std::string& path) {
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_run_config(text, path);
}

Status set_run_key(RunConfig& config, std::string_view assignment) {
  const auto failed = [&](std::string_view message) {
    return invalid_input(fmt::format("--set {}: {}", assignment, message));
  };
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) return failed("expected key=value");
  const std::string name(trim(assignment.substr(0, equals)));
  const std::string value(trim(assignment.substr(equals + 1)));
  auto table = parse_toml(fmt::format("value = {}", value), "");
  if (!table) table = toml::table{{"value", value}};  // a bare string
  if (auto status = set_key(config, name, *table->get("value")); !status) {
    return failed(status.error().message);
  }
  if (name == "data") config.data_line = 0;
  if (name == "eval.data") config.eval.data_line = 0;
  return {};
}

namespace {

std::string toml_text(const std::string& text) { return dumped(nlohmann::json(text)); }

struct ValueText {
  std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const {
    const std::string text = fmt::format("{}", *value);  // the shortest text that parses to the
                                                         // same number
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  std::string operator()(const std::string* value) const { return toml_text(*value); }
  std::string operator()(const Texts* values) const {
    std::string text;
    for (const std::string& value : *values) text += (text.empty() ? "" : ", ") + toml_text(value);
    return "[" + text + "]";
  }
};

bool is_unset(const Key& key) {
  const auto* const* text = std::get_if<std::string*>(&key.target);
  return text != nullptr && (*text)->empty();
}

}  // namespace

std::string to_text(const RunConfig& config) {
  RunConfig copy = config;  // a copy, because keys have pointers that may be written to
  std::string text;
  for (const Key& key : keys_of(copy)) {
    if (!is_unset(key))
      text += fmt::format("{} = {}\n", key.name, std::visit(ValueText{}, key.target));
  }
  std::string groups;
  for (OptimizerGroup& group : copy.optimizer.groups) {
    double decay = group.weight_decay.value_or(0);
    std::string members;
    for (const Key& key : keys_of(group, decay)) {
      if (is_unset(key) || (key.name == "weight_decay" && !group.weight_decay)) continue;
      members += fmt::format("{}{} = {}", members.empty() ? "" : ", ", key.name,
                             std::visit(ValueText{}, key.target));
    }
    groups += fmt::format("{}{{ {} }}", groups.empty() ? "" : ", ", members);
  }
  if (!groups.empty()) text += fmt::format("optimizer.group = [{}]\n", groups);
  std::string changes;
  for (const PlanChange& change : config.changes) {
    changes += fmt::format("{}{{ after = {}, plan = {} }}", changes.empty() ? "" : ", ",
                           change.after, toml_text(change.plan));
  }
  if (!changes.empty()) text += fmt::format("change = [{}]\n", changes);
  if (config.data.given()) text += fmt::format("data = {}\n", to_text(config.data));
  if (config.eval.data.given()) text += fmt::format("eval.data = {}\n", to_text(config.eval.data));
  return text;
}

Status check_run_config(const RunConfig& config) {
  const auto missing = [&](std::string_view key, std::string_view example) {
    return invalid_input(fmt::format("{}: expected the key '{}', for example {} = {}", config.file,
                                     key, key, example));
  };
  if (config.model.empty()) {
    return missing("model", "\"gpt:layers=4,hidden=128,heads=4,seq=128,vocab=256\"");
  }
  if (!config.data.given()) return missing("data", "[\"docs/**/*.md\"]");
  if (auto device = device::open(config.device); !device) {
    if (config.device.empty()) return tl::unexpected(device.error());
    return invalid_input(fmt::format("{}: {}", config.file, device.error().message));
  }
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.fast.dir.empty() && checkpoint.dir.empty()) {
    return invalid_input(fmt::format(
        "{}: checkpoint.fast.dir: expected the key 'checkpoint.dir' too, for what a memory file "
        "system loses, found none",
        config.file));
  }
  if (!checkpoint.dir.empty() && checkpoint.fast.dir == checkpoint.dir) {
    return invalid_input(
        fmt::format("{}: checkpoint.fast.dir: expected another folder than checkpoint.dir, found "
                    "'{}' for both",
                    config.file, checkpoint.dir));
  }
  if (config.watch > 0 && config.folder.empty()) {
    return invalid_input(fmt::format(
        "{}: watch: expected the key 'folder' too, where the times of the ranks go, found none",
        config.file));
  }
  return {};
}

std::string folder_of_run(const RunConfig& config) {
  return std::filesystem::path(config.file).parent_path().string();
}

std::string place_of_key(const RunConfig& config, std::string_view key, int line) {
  if (line > 0) return fmt::format(" ({}:{})", config.file, line);
  return config.file.empty() ? "" : fmt::format(" (--set {})", key);
}

double learning_rate(const OptimizerConfig& optimizer, int64_t step, int64_t steps) {
  const double lr = optimizer.lr;
  const double end = std::min(lr, optimizer.min_lr);
  if (step < optimizer.warmup) {
    return lr * static_cast<double>(step) / static_cast<double>(optimizer.warmup);
  }
  if (steps <= optimizer.warmup) return lr;
  const double done = static_cast<double>(std::min(step, steps) - optimizer.warmup) /
                      static_cast<double>(steps - optimizer.warmup);
  return end + 0.5 * (lr - end) * (1 + std::cos(std::numbers::pi * done));
}

OptimizerSpec specification(const OptimizerConfig& config) {
  OptimizerSpec spec;
  spec.kind = config.kind;
  spec.beta1 = config.beta1;
  spec.beta2 = config.beta2;
  spec.eps = config.eps;
  spec.weight_decay = config.weight_decay;
  spec.momentum = config.momentum;
  spec.nesterov = config.nesterov;
  spec.rounding = config.rounding;
  spec.groups = config.groups;
  spec.clip_norm = config.clip;
  return spec;
}

}  // namespace tessera
