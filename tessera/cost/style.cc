#include "tessera/cost/style.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

// ---- presets
// -------------------------------------------------------------------------------------
// Start values of docs/theory/cost-model.md sections 3.4, 5.3 and 10.2: the floor that published
// runs of Megatron-DeepSpeed show (.73 ms a layer forward, 2.9 times that backward with its
// recompute) is about 45 us an op; collective calls 20 to 60 us. docs/reference/styles.md says what
// each stands for.
struct Preset {
  std::string_view name, summary, options;
};
constexpr std::array<Preset, 11> kPresets = {{
    {"tessera", "this project's runtime: compiled instructions, fused attention and update", ""},
    {"eager", "PyTorch in eager mode, fused attention kernels",
     "host_forward_s=15us,host_backward_s=12us,host_update_s=10us,host_collective_s=35us,"
     "loss_passes=4,loss_saved=1,loss_workspace=2,copy_views=false,allocator=caching,step_overhead_"
     "s=2ms"},
    {"compiled", "PyTorch with torch.compile: neighbouring element-wise ops are one kernel",
     "host_forward_s=4us,host_backward_s=4us,host_update_s=8us,host_collective_s=30us,"
     "elementwise_passes=0.5,loss_passes=1.5,copy_views=false,allocator=caching,"
     "step_overhead_s=2ms"},
    {"megatron", "Megatron-LM to 2022: unfused attention core, fused bias and activation",
     "host_forward_s=25us,host_backward_s=20us,host_update_s=10us,host_collective_s=37us,"
     "elementwise_passes=0.8,fused_attention=false,loss_passes=4,loss_saved=1,copy_views=false,"
     "overlap_gradients=false,overlap_parameters=false,overlap_messages=false,gradient_buffers="
     "true,allocator=caching,"
     "step_overhead_s=10ms"},
    {"megatron-core", "Megatron-Core: fused attention, overlapped gradients and parameters",
     "host_forward_s=15us,host_backward_s=12us,host_update_s=10us,host_collective_s=30us,"
     "elementwise_passes=0.7,loss_passes=4,loss_saved=1,copy_views=false,gradient_buffers=true,"
     "allocator=caching,"
     "step_overhead_s=5ms"},
    {"nemo", "NeMo and Megatron-Bridge: Megatron-Core with Transformer Engine layers",
     "host_forward_s=15us,host_backward_s=12us,host_update_s=10us,host_collective_s=30us,"
     "elementwise_passes=0.6,cast_bytes=1.5,loss_passes=2.5,loss_saved=1,copy_views=false,"
     "activation_overlap=0.5,"
     "routing_overlap=0.7,gradient_buffers=true,allocator=caching,step_overhead_s=5ms"},
    {"fsdp", "PyTorch FSDP over eager layers with fused attention",
     "host_forward_s=15us,host_backward_s=12us,host_update_s=10us,host_collective_s=40us,"
     "loss_passes=4,loss_saved=1,loss_workspace=2,copy_views=false,allocator=caching,step_overhead_"
     "s=5ms"},
    {"deepspeed", "Megatron-DeepSpeed: unfused attention core, much host work an op",
     "host_forward_s=68us,host_backward_s=66us,host_update_s=5us,host_collective_s=55us,"
     "host_crowd_s=50us,kernel_gap_s=6us,collective_gap_s=320us,loss_overhead_s=2ms,"
     "lookup_gradient_passes=30,pads_products=false,"
     "elementwise_passes=1.1,attention_passes=6,fused_attention=false,loss_passes=4,loss_saved=1,"
     "attention_saved_"
     "bytes=2,copy_views=false,"
     "overlap_gradients=false,overlap_parameters=false,overlap_messages=false,gradient_buffers="
     "true,allocator=caching,"
     "step_overhead_s=2ms"},
    {"torchtitan", "torchtitan: FSDP of compiled blocks",
     "host_forward_s=5us,host_backward_s=5us,host_update_s=8us,host_collective_s=35us,"
     "elementwise_passes=0.5,loss_passes=2.5,loss_saved=1,loss_workspace=3,attention_efficiency=0."
     "7,copy_views=false,"
     "allocator=expandable,step_overhead_s=2ms"},
    {"maxtext", "MaxText: one XLA program a step",
     "elementwise_passes=0.4,loss_passes=2,copy_views=false,step_overhead_s=1ms"},
    {"oneflow", "OneFlow: a static graph run by actors, unfused attention core",
     "host_forward_s=6us,host_backward_s=6us,host_update_s=6us,host_collective_s=20us,"
     "elementwise_passes=0.8,attention_passes=4,fused_attention=false,loss_passes=4,loss_saved=1,"
     "copy_views="
     "false,"
     "overlap_messages=false,step_overhead_s=2ms"},
}};

// ---- options
// -------------------------------------------------------------------------------------
struct Option {
  std::string_view key;
  std::variant<double Style::*, bool Style::*, std::string Style::*, Style::Allocator Style::*,
               Style::Transport Style::*>
      field;
  bool seconds = false;
  double most = 1e9;  // numbers: from 0 to it
};
const std::vector<Option>& options() {
  static const std::vector<Option> table = {
      {"host_forward_s", &Style::host_forward_s, true},
      {"host_backward_s", &Style::host_backward_s, true},
      {"host_update_s", &Style::host_update_s, true},
      {"host_collective_s", &Style::host_collective_s, true},
      {"kernel_gap_s", &Style::kernel_gap_s, true},
      {"collective_gap_s", &Style::collective_gap_s, true},
      {"pads_products", &Style::pads_products},
      {"host_crowd_s", &Style::host_crowd_s, true},
      {"loss_overhead_s", &Style::loss_overhead_s, true},
      {"lookup_gradient_passes", &Style::lookup_gradient_passes},
      {"elementwise_passes", &Style::elementwise_passes},
      {"fused_attention", &Style::fused_attention},
      {"fused_update", &Style::fused_update},
      {"matmul_arithmetic", &Style::matmul_arithmetic},
      {"cast_bytes", &Style::cast_bytes},
      {"attention_passes", &Style::attention_passes},
      {"loss_passes", &Style::loss_passes},
      {"attention_saved_bytes", &Style::attention_saved_bytes},
      {"loss_saved", &Style::loss_saved},
      {"loss_workspace", &Style::loss_workspace},
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

const Preset* find_preset(std::string_view name) {
  const auto* found = std::find_if(kPresets.begin(), kPresets.end(),
                                   [name](const Preset& preset) { return preset.name == name; });
  return found == kPresets.end() ? nullptr : found;
}

Status set_options(Style& style, std::string_view text) {
  for (const std::string& assignment : split_text(text, ','))
    TESSERA_TRY_VOID(set_option(style, assignment));
  return {};
}

Style make_preset(const Preset& preset) {
  Style style;
  style.name = preset.name;
  if (preset.options.empty()) return style;
  const Status set = set_options(style, preset.options);
  TESSERA_CHECK(set.has_value(), "preset '{}': {}", preset.name, set.error().message);
  return style;
}

}  // namespace

Result<Style> parse_style(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string_view name = trim(text.substr(0, comma));
  const Preset* preset = find_preset(name);
  if (preset == nullptr) {
    return invalid_input(fmt::format("expected an execution style ({}), found '{}'; nearest: '{}'",
                                     join(style_names(), ", "), name,
                                     nearest(name, style_names())));
  }
  Style style = make_preset(*preset);
  if (comma != std::string_view::npos) TESSERA_TRY_VOID(set_options(style, text.substr(comma + 1)));
  return style;
}

std::string to_string(const Style& style) {
  const Preset* preset = find_preset(style.name);
  TESSERA_CHECK(preset != nullptr, "style '{}' is no preset", style.name);
  const Style plain = make_preset(*preset);
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
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::string_view style_summary(std::string_view preset) {
  const Preset* found = find_preset(preset);
  return found == nullptr ? std::string_view() : found->summary;
}

std::string_view style_options(std::string_view preset) {
  const Preset* found = find_preset(preset);
  return found == nullptr ? std::string_view() : found->options;
}

std::vector<std::string> style_keys() {
  std::vector<std::string> keys;
  for (const Option& option : options()) keys.emplace_back(option.key);
  return keys;
}

}  // namespace tessera
