#include "tessera/cost/style.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/cost/style_data.h"

namespace tessera {
namespace {

struct Option {
  std::string_view key;
  std::variant<double Style::*, bool Style::*, std::string Style::*, Style::Allocator Style::*,
               Style::Transport Style::*, Style::Host Style::*>
      field;
  bool seconds = false;
  double most = 1e9;  // largest value of a number; the least is 0
};
const std::vector<Option>& options() {
  static const std::vector<Option> table = {
      {"host_forward_s", &Style::host_forward_s, true},
      {"host_backward_s", &Style::host_backward_s, true},
      {"host_update_s", &Style::host_update_s, true},
      {"host_collective_s", &Style::host_collective_s, true},
      {"host", &Style::host},
      {"kernel_gap_s", &Style::kernel_gap_s, true},
      {"collective_gap_s", &Style::collective_gap_s, true},
      {"pads_products", &Style::pads_products},
      {"host_crowd_s", &Style::host_crowd_s, true},
      {"loss_overhead_s", &Style::loss_overhead_s, true},
      {"lookup_gradient_passes", &Style::lookup_gradient_passes},
      {"elementwise_passes", &Style::elementwise_passes},
      {"fused_attention", &Style::fused_attention},
      {"fused_update", &Style::fused_update},
      {"kernel_an_expert", &Style::kernel_an_expert},
      {"matmul_arithmetic", &Style::matmul_arithmetic},
      {"cast_bytes", &Style::cast_bytes},
      {"attention_passes", &Style::attention_passes},
      {"loss_passes", &Style::loss_passes},
      {"attention_saved_bytes", &Style::attention_saved_bytes},
      {"loss_saved", &Style::loss_saved},
      {"loss_workspace", &Style::loss_workspace},
      {"loss_chunks", &Style::loss_chunks},
      {"placeholder_gradients", &Style::placeholder_gradients},
      {"library_bytes", &Style::library_bytes, false, 1e12},
      {"norm_passes", &Style::norm_passes},
      {"copy_views", &Style::copy_views},
      {"matmul_efficiency", &Style::matmul_efficiency},
      {"attention_efficiency", &Style::attention_efficiency},
      {"memory_efficiency", &Style::memory_efficiency},
      {"overlap_gradients", &Style::overlap_gradients},
      {"overlap_parameters", &Style::overlap_parameters},
      {"overlap_messages", &Style::overlap_messages},
      {"activation_overlap", &Style::activation_overlap, false, 1},
      {"routing_overlap", &Style::routing_overlap, false, 1},
      {"tokens_once_a_node", &Style::tokens_once_a_node},
      {"inner_efficiency", &Style::inner_efficiency},
      {"network_efficiency", &Style::network_efficiency},
      {"compute_slowdown", &Style::compute_slowdown},
      {"network_slowdown", &Style::network_slowdown},
      {"collective_slowdown", &Style::collective_slowdown},
      {"gradient_buffers", &Style::gradient_buffers},
      {"allocator", &Style::allocator},
      {"transport", &Style::transport},
      {"step_overhead_s", &Style::step_overhead_s, true},
      {"jitter", &Style::jitter, false, 1},
  };
  return table;
}

constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};
constexpr std::array<std::string_view, 3> kAllocators = {"planned", "caching", "expandable"};
constexpr std::array<std::string_view, 4> kTransports = {"any", "threads", "mpi", "nccl"};
constexpr std::array<std::string_view, 3> kHosts = {"ops", "launches", "graph"};
constexpr std::array<std::string_view, 4> kArithmetics = {"dtype", "tf32", "fp8", "fp4"};

template <size_t N>
tl::unexpected<Error> expected_one_of(std::string_view key,
                                      const std::array<std::string_view, N>& choices,
                                      std::string_view found) {
  const std::vector<std::string> names(choices.begin(), choices.end());
  return invalid_input(
      fmt::format("style option '{}': expected one of {}, found '{}'; nearest: "
                  "'{}'",
                  key, join(names, ", "), found, nearest(found, names)));
}

Result<double> parse_seconds(std::string_view key, std::string_view text) {
  for (const auto& [unit, factor] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = parse_double(trim(text.substr(0, text.size() - unit.size())));
    if (number && *number >= 0 && std::isfinite(*number)) return *number * factor;
  }
  return invalid_input(fmt::format(
      "style option '{}': expected a time with its unit (ns, us, ms, s), like 20us, found '{}'",
      key, text));
}

std::string print_seconds(double seconds) {
  for (const auto& [unit, factor] : kUnits) {
    const double number = seconds / factor;
    if (number >= 1 && number < 1000 && number * factor == seconds)
      return fmt::format("{}{}", number, unit);
  }
  return fmt::format("{}s", seconds);
}

struct Setter {
  Style& style;
  const Option& option;
  std::string_view text;
  Status operator()(double Style::*field) const {
    if (option.seconds) {
      TESSERA_TRY(style.*field, parse_seconds(option.key, text));
      return {};
    }
    const auto number = parse_double(text);
    if (!number || !(*number >= 0 && *number <= option.most)) {
      return invalid_input(
          fmt::format("style option '{}': expected a number from 0 to {:g}, found "
                      "'{}'",
                      option.key, option.most, text));
    }
    style.*field = *number;
    return {};
  }
  Status operator()(bool Style::*field) const {
    if (text != "true" && text != "false") {
      return invalid_input(
          fmt::format("style option '{}': expected true or false, found '{}'", option.key, text));
    }
    style.*field = text == "true";
    return {};
  }
  Status operator()(std::string Style::*field) const {
    if (std::find(kArithmetics.begin(), kArithmetics.end(), text) == kArithmetics.end())
      return expected_one_of(option.key, kArithmetics, text);
    style.*field = text == kArithmetics[0] ? "" : std::string(text);
    return {};
  }
  Status operator()(Style::Allocator Style::*field) const {
    const auto* found = std::find(kAllocators.begin(), kAllocators.end(), text);
    if (found == kAllocators.end()) return expected_one_of(option.key, kAllocators, text);
    style.*field = static_cast<Style::Allocator>(found - kAllocators.begin());
    return {};
  }
  Status operator()(Style::Transport Style::*field) const {
    const auto* found = std::find(kTransports.begin(), kTransports.end(), text);
    if (found == kTransports.end()) return expected_one_of(option.key, kTransports, text);
    style.*field = static_cast<Style::Transport>(found - kTransports.begin());
    return {};
  }
  Status operator()(Style::Host Style::*field) const {
    const auto* found = std::find(kHosts.begin(), kHosts.end(), text);
    if (found == kHosts.end()) return expected_one_of(option.key, kHosts, text);
    style.*field = static_cast<Style::Host>(found - kHosts.begin());
    return {};
  }
};

struct Printer {
  const Style& style;
  const Option& option;
  std::string operator()(double Style::*field) const {
    return option.seconds ? print_seconds(style.*field) : fmt::format("{}", style.*field);
  }
  std::string operator()(bool Style::*field) const { return style.*field ? "true" : "false"; }
  std::string operator()(std::string Style::*field) const {
    return (style.*field).empty() ? std::string(kArithmetics[0]) : style.*field;
  }
  std::string operator()(Style::Allocator Style::*field) const {
    return std::string(kAllocators[static_cast<size_t>(style.*field)]);
  }
  std::string operator()(Style::Transport Style::*field) const {
    return std::string(kTransports[static_cast<size_t>(style.*field)]);
  }
  std::string operator()(Style::Host Style::*field) const {
    return std::string(kHosts[static_cast<size_t>(style.*field)]);
  }
};

Status set_option(Style& style, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return invalid_input(
        fmt::format("expected a style option key=value, found '{}'", trim(assignment)));
  }
  const std::string_view key = trim(assignment.substr(0, equals));
  const auto found = std::find_if(options().begin(), options().end(),
                                  [key](const Option& option) { return option.key == key; });
  if (found == options().end()) {
    return invalid_input(
        fmt::format("expected a style option (docs/reference/styles.md), found '{}'; nearest: '{}'",
                    key, nearest(key, style_keys())));
  }
  return std::visit(Setter{style, *found, trim(assignment.substr(equals + 1))}, found->field);
}

bool is_called(const StylePreset& preset, std::string_view name) {
  return preset.name == name ||
         std::find(preset.also.begin(), preset.also.end(), name) != preset.also.end();
}

const StylePreset* find_preset(std::string_view name) {
  const auto& all = style_presets();
  const auto found = std::find_if(all.begin(), all.end(), [name](const StylePreset& preset) {
    return is_called(preset, name);
  });
  return found == all.end() ? nullptr : &*found;
}

Status set_options(Style& style, std::string_view text) {
  for (const std::string& assignment : split_text(text, ','))
    TESSERA_TRY_VOID(set_option(style, assignment));
  return {};
}

Result<StyleValues> read_values(const DataTable& table, Style& style) {
  StyleValues out;
  TESSERA_TRY(out.origin, table.origin());
  TESSERA_TRY(const auto settings, table.settings());
  for (const auto& [key, value] : settings) {
    std::string option = key;
    out.options.push_back(option.append("=").append(value));
    if (auto set = set_option(style, out.options.back()); !set) {
      return table.error(set.error().message);
    }
  }
  return out;
}

Result<StylePreset> read_preset(const DataTable& table) {
  StylePreset out;
  for (const char* key : {"name", "summary", "years"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.text("name", out.name));
  TESSERA_TRY_VOID(table.text("summary", out.summary));
  TESSERA_TRY_VOID(table.text("years", out.years));
  TESSERA_TRY_VOID(table.texts("also", out.also));
  out.style.name = out.name;
  TESSERA_TRY(const auto blocks, table.tables("set"));
  for (const DataTable& block : blocks) {
    TESSERA_TRY(StyleValues values, read_values(block, out.style));
    out.values.push_back(std::move(values));
  }
  TESSERA_TRY_VOID(table.done());
  return out;
}

}  // namespace

Result<Style> parse_style(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string_view name = trim(text.substr(0, comma));
  const StylePreset* preset = find_preset(name);
  if (preset == nullptr) {
    std::vector<std::string> names = style_names();
    for (const StylePreset& known : style_presets())
      names.insert(names.end(), known.also.begin(), known.also.end());
    return invalid_input(
        fmt::format("expected an execution style ({}; --list-styles), found '{}'; nearest: '{}'",
                    join(style_names(), ", "), name, nearest(name, names)));
  }
  Style style = preset->style;
  if (comma != std::string_view::npos) TESSERA_TRY_VOID(set_options(style, text.substr(comma + 1)));
  return style;
}

std::string to_string(const Style& style) {
  const StylePreset* preset = find_preset(style.name);
  TESSERA_CHECK(preset != nullptr, "style '{}' is no preset", style.name);
  const Style& plain = preset->style;
  std::string text = style.name;
  for (const Option& option : options()) {
    const std::string value = std::visit(Printer{style, option}, option.field);
    if (value != std::visit(Printer{plain, option}, option.field))
      text += fmt::format(",{}={}", option.key, value);
  }
  return text;
}

std::vector<std::string> style_names() {
  std::vector<std::string> names;
  for (const StylePreset& preset : style_presets()) names.push_back(preset.name);
  return names;
}

Result<std::vector<StylePreset>> parse_styles(std::string_view toml, std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto tables, root.tables("style"));
  std::vector<StylePreset> all;
  for (const DataTable& table : tables) {
    TESSERA_TRY(StylePreset preset, read_preset(table));
    std::vector<std::string> named = preset.also;
    named.push_back(preset.name);
    for (const StylePreset& known : all) {
      for (const std::string& name : named) {
        if (is_called(known, name))
          return table.error(fmt::format("the style '{}' is there twice", name));
      }
    }
    all.push_back(std::move(preset));
  }
  TESSERA_TRY_VOID(root.done());
  return all;
}

const std::vector<StylePreset>& style_presets() {
  static const std::vector<StylePreset> all = [] {
    auto parsed = parse_styles(text_of(cost_data(), "styles"), "styles.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return all;
}

std::vector<std::string> style_keys() {
  std::vector<std::string> keys;
  for (const Option& option : options()) keys.emplace_back(option.key);
  return keys;
}

}  // namespace tessera
