#include "tessera/runtime/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <numbers>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// A value and where it stands, for messages.
struct Place {
  std::string key;
  std::string where;  // "run.toml:3" or "--set optimizer.lr=x"
  std::string folder; // that paths are relative to
};

tl::unexpected<Error> wrong(const Place& place, std::string_view expected, const toml::node& found) {
  std::string text = "another type";
  if (const auto* value = found.as_string()) text = fmt::format("'{}'", value->get());
  if (const auto* value = found.as_integer()) text = fmt::format("{}", value->get());
  if (const auto* value = found.as_floating_point()) text = fmt::format("{}", value->get());
  if (const auto* value = found.as_boolean()) text = value->get() ? "true" : "false";
  if (found.is_table()) text = "a table";
  if (found.is_array()) text = "a list";
  return invalid_input(fmt::format("{}: {}: expected {}, found {}", place.where, place.key, expected, text));
}

using Setter = std::function<Status(const Place&, const toml::node&)>;

Setter integer(int64_t& target, int64_t least) {
  return [&target, least](const Place& place, const toml::node& node) -> Status {
    const auto* value = node.as_integer();
    if (value == nullptr || value->get() < least) return wrong(place, fmt::format("an integer of at least {}", least), node);
    target = value->get();
    return {};
  };
}

Setter number(double& target, double least, double most) {
  return [&target, least, most](const Place& place, const toml::node& node) -> Status {
    const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !(*value >= least && *value <= most)) {
      return wrong(place, std::isinf(most) ? fmt::format("a number of at least {}", least) : fmt::format("a number from {} to {}", least, most), node);
    }
    target = *value;
    return {};
  };
}
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

template <class T, class Inner>
Setter optional_of(std::optional<T>& target, Inner inner) {
  return [&target, inner](const Place& place, const toml::node& node) -> Status {
    T value{};
    TESSERA_TRY_VOID(inner(value)(place, node));
    target = value;
    return {};
  };
}

Setter text(std::string& target) {
  return [&target](const Place& place, const toml::node& node) -> Status {
    const auto* value = node.as_string();
    if (value == nullptr || value->get().empty()) return wrong(place, "a text", node);
    target = value->get();
    return {};
  };
}

std::string in_folder(const Place& place, const std::string& path) {
  return place.folder.empty() || path.starts_with('/') ? path : place.folder + "/" + path;
}

Setter paths(std::vector<std::string>& target) {
  return [&target](const Place& place, const toml::node& node) -> Status {
    target.clear();
    const auto add = [&](const std::string& text) {
      // A comma separated list stays one text for open_text, its parts relative to the folder.
      std::string all;
      int depth = 0;
      bool begin = true;
      for (const char c : text) {
        if (begin && c != ' ' && c != ',') {
          if (c != '/' && !place.folder.empty()) all += place.folder + "/";
          begin = false;
        }
        depth += c == '{' ? 1 : c == '}' ? -1 : 0;
        if (c == ',' && depth == 0) begin = true;
        all += c;
      }
      target.push_back(all);
    };
    if (const auto* one = node.as_string()) add(one->get());
    if (const auto* list = node.as_array()) {
      for (const toml::node& item : *list) {
        if (!item.is_string()) return wrong(place, "a list of texts", item);
        add(item.as_string()->get());
      }
    }
    if (target.empty()) return wrong(place, "a glob or a list of globs", node);
    return {};
  };
}

// A recipe call is kept, a file's path is made relative to the working folder.
Setter plan_of(std::string& target) {
  return [&target](const Place& place, const toml::node& node) -> Status {
    TESSERA_TRY_VOID(text(target)(place, node));
    if (target.ends_with(".toml")) target = in_folder(place, target);
    return {};
  };
}

Setter betas(OptimizerSpec& target) {
  return [&target](const Place& place, const toml::node& node) -> Status {
    const auto* list = node.as_array();
    if (list == nullptr || list->size() != 2) return wrong(place, "two numbers", node);
    TESSERA_TRY_VOID(number(target.beta1, 0, 1)(place, *list->get(0)));
    return number(target.beta2, 0, 1)(place, *list->get(1));
  };
}

Setter choice(std::string& target, std::vector<std::string> names) {
  return [&target, names](const Place& place, const toml::node& node) -> Status {
    const auto* value = node.as_string();
    if (value == nullptr || std::find(names.begin(), names.end(), value->get()) == names.end()) {
      return wrong(place, "one of " + join(names, ", "), node);
    }
    target = value->get();
    return {};
  };
}

Setter precision_of(DType& target) {
  return [&target](const Place& place, const toml::node& node) -> Status {
    std::string name;
    TESSERA_TRY_VOID(choice(name, {"float64", "float32", "bfloat16"})(place, node));
    TESSERA_TRY(target, parse_dtype(name));
    return {};
  };
}

std::map<std::string, Setter> setters(RunConfig& c) {
  return {
      {"model", [&c](const Place& place, const toml::node& node) -> Status {
         TESSERA_TRY_VOID(text(c.model)(place, node));
         if (c.model.find(".json") != std::string::npos) c.model = in_folder(place, c.model);
         return {};
       }},
      {"data", paths(c.data)},
      {"batch", integer(c.batch, 1)},
      {"steps", integer(c.steps, 1)},
      {"precision", precision_of(c.precision)},
      {"plan", plan_of(c.plan)},
      {"seed", integer(c.seed, 0)},
      {"ranks", optional_of(c.ranks, [](int64_t& value) { return integer(value, 1); })},
      {"timeout_s", number(c.timeout_s, 0.001, kUnlimited)},
      {"log_every", integer(c.log_every, 1)},
      {"optimizer.kind", choice(c.optimizer.kind, {"adamw", "sgd"})},
      {"optimizer.lr", number(c.lr, 0, kUnlimited)},
      {"optimizer.min_lr", optional_of(c.min_lr, [](double& value) { return number(value, 0, kUnlimited); })},
      {"optimizer.warmup", integer(c.warmup, 0)},
      {"optimizer.betas", betas(c.optimizer)},
      {"optimizer.eps", number(c.optimizer.eps, 0, kUnlimited)},
      {"optimizer.weight_decay", number(c.optimizer.weight_decay, 0, kUnlimited)},
      {"optimizer.momentum", number(c.optimizer.momentum, 0, 1)},
      {"optimizer.clip", number(c.optimizer.clip_norm, 0, kUnlimited)},
  };
}

Status unknown_key(const Place& place, const std::map<std::string, Setter>& known) {
  std::vector<std::string> names;
  for (const auto& [name, setter] : known) names.push_back(name);
  return invalid_input(fmt::format("{}: unknown key '{}', did you mean '{}'?", place.where, place.key, nearest(place.key, names)));
}

// Applies a table; `prefix` is the path of keys to it. `where_of` names the place of a node.
Status apply(const toml::table& table, const std::string& prefix, const std::map<std::string, Setter>& known,
             const std::function<Place(const std::string&, const toml::node&)>& place_of) {
  for (const auto& [key, node] : table) {
    const std::string path = prefix + std::string(key.str());
    const Place place = place_of(path, node);
    if (const auto found = known.find(path); found != known.end()) {
      TESSERA_TRY_VOID(found->second(place, node));
    } else if (path == "optimizer" && node.is_string()) {
      TESSERA_TRY_VOID(known.at("optimizer.kind")(place, node));
    } else if (path == "optimizer" && node.is_table()) {
      TESSERA_TRY_VOID(apply(*node.as_table(), "optimizer.", known, place_of));
    } else {
      return unknown_key(place, known);
    }
  }
  return {};
}

Result<toml::table> parse_table(const std::string& text, std::string_view file) {
  try {
    return toml::parse(text, std::string(file));
  } catch (const toml::parse_error& error) {
    return invalid_input(fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
}

// The value as TOML if it is that, else as a text.
Status apply_setting(const Setting& setting, const std::map<std::string, Setter>& known) {
  const std::string where = fmt::format("--set {}={}", setting.key, setting.value);
  const auto place_of = [&](const std::string& path, const toml::node&) { return Place{path, where, ""}; };
  std::string quoted = setting.value;
  for (size_t at = 0; (at = quoted.find_first_of("\\\"", at)) != std::string::npos; at += 2) quoted.insert(at, 1, '\\');
  auto table = parse_table(fmt::format("{} = {}", setting.key, setting.value), where);
  if (!table) table = parse_table(fmt::format("{} = \"{}\"", setting.key, quoted), where);
  if (!table) return invalid_input(fmt::format("{}: expected key=value", where));
  return apply(*table, "", known, place_of);
}

}  // namespace

Result<Setting> parse_setting(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return invalid_input(fmt::format("--set {}: expected key=value", text));
  }
  return Setting{std::string(trim(text.substr(0, equals))), std::string(trim(text.substr(equals + 1)))};
}

Result<RunConfig> parse_run_config(std::string_view toml, std::string_view file, const std::vector<Setting>& settings) {
  RunConfig config;
  config.file = std::string(file);
  const std::map<std::string, Setter> known = setters(config);
  TESSERA_TRY(const toml::table table, parse_table(std::string(toml), file));
  const std::string folder = std::filesystem::path(file).parent_path().generic_string();
  TESSERA_TRY_VOID(apply(table, "", known, [&](const std::string& path, const toml::node& node) {
    return Place{path, fmt::format("{}:{}", file, node.source().begin.line), folder};
  }));
  for (const Setting& setting : settings) TESSERA_TRY_VOID(apply_setting(setting, known));
  if (config.model.empty()) return invalid_input(fmt::format("{}: expected the key 'model', found none", file));
  return config;
}

Result<RunConfig> load_run_config(const std::string& path, const std::vector<Setting>& settings) {
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_run_config(text, path, settings);
}

double learning_rate(const RunConfig& config, int64_t step) {
  if (step <= config.warmup) return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup);
  const double low = config.min_lr.value_or(config.lr / 10);
  const int64_t span = config.steps - config.warmup;
  if (span <= 0) return low;
  const double done = std::min(1.0, static_cast<double>(step - config.warmup) / static_cast<double>(span));
  return low + 0.5 * (config.lr - low) * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace tessera
