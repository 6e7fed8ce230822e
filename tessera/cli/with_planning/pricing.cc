#include "tessera/cli/with_planning/pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/base/units.h"
#include "tessera/cli/output.h"
#include "tessera/cost/style_data.h"
#include "tessera/export/export.h"
#include "tessera/graph/precision.h"
#include "tessera/models/model.h"
#include "tessera/models/planning_model.h"
#include "tessera/plan/load.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/corrections.h"
#include "tessera/search/fit.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kNoConstants = "none", kOnGpus = "torchtitan", kOnProcessors = "tessera";

// A value and the reason for it, as "the default on GPUs".
struct Choice {
  std::string value, reason;
};

bool are_processors(const Cluster& cluster) {
  return cluster.parts.front().type.device.generation->processor;
}

// Returns whether all devices have a rate for products in the dtype.
bool all_compute_in(const Cluster& cluster, const std::string& dtype) {
  const std::string arithmetic = dtype == "bfloat16"  ? "bf16"
                                 : dtype == "float16" ? "fp16"
                                                      : "fp32";
  return std::all_of(cluster.parts.begin(), cluster.parts.end(), [&](const ClusterPart& part) {
    return part.type.device.peak.contains(arithmetic);
  });
}

// Returns the plan as it is written; nothing if there is none yet, or if it cannot be read.
std::optional<Plan> written_plan(const PricedPlan& priced) {
  if (priced.plan.empty() || priced.plan == "auto") return std::nullopt;
  const auto model = build_model_of(priced.model, 0, 1);
  if (!model) return std::nullopt;
  auto plan = load_plan(priced.plan, model->graph);
  if (!plan) return std::nullopt;
  return std::move(*plan);
}

Choice precision_of(const PricingOptions& options, const Cluster& cluster, const PricedPlan& priced,
                    const std::optional<Plan>& plan) {
  if (!options.precision.empty()) return {options.precision, "as asked"};
  if (plan && plan->precision.compute) {
    // With float32 the plan's own precision holds (graph/precision.h).
    return {"float32", ""};
  }
  // A file that cannot be read is refused by the command, with a better message.
  const auto stored =
      are_processors(cluster) ? std::nullopt : stored_dtype(priced.named).value_or(std::nullopt);
  if (stored && all_compute_in(cluster, std::string(dtype_name(*stored))))
    return {std::string(dtype_name(*stored)), "of the model's file"};
  if (all_compute_in(cluster, "bfloat16"))
    return {"bfloat16", fmt::format("the default on {}", cluster.parts.front().type.device.name)};
  return {"float32", fmt::format("the default on {}", cluster.parts.front().type.device.name)};
}

Choice style_of(const PricingOptions& options, const Cluster& cluster, const PricedPlan& priced,
                const std::optional<Plan>& plan, const std::string& precision) {
  if (!options.style.empty()) return {options.style, "as asked"};
  if (plan && !plan->style.empty()) return {plan->style, "as the plan says"};
  if (are_processors(cluster)) return {std::string(kOnProcessors), "the default on processors"};
  if (plan) {
    ExportRequest request{priced.model,   priced.plan, priced.batch,
                          precision,      nullptr,     cluster.type_of(0).devices,
                          priced.compiler};
    if (const ExportTarget* target = find_target_of_plan(request))
      return {target->style, fmt::format("the plan can be exported to {}", target->name)};
    return {std::string(kOnGpus), "the default on GPUs; no framework runs this plan"};
  }
  return {std::string(kOnGpus), "the default on GPUs"};
}

// Returns the style's words with the constants between the preset and the options that the user
// set, so that the latter count.
std::string with_constants(const std::string& words, const std::string& constants) {
  const size_t comma = std::min(words.find(','), words.size());
  return words.substr(0, comma) + constants + words.substr(comma);
}

Result<PredictSettings> settings_of(const PricingOptions& options) {
  if (options.constants == kNoConstants) return PredictSettings();
  TESSERA_TRY(Constants constants, load_constants(options.constants));
  return std::move(constants.all);
}

std::string reason_text(const Choice& choice) {
  return choice.reason.empty() || choice.reason == "as asked" ? ""
                                                              : fmt::format(" ({})", choice.reason);
}

int print_styles() {
  Table table({"style", "years", "what it is"});
  for (const StylePreset& preset : style_presets()) {
    std::string name = preset.name;
    for (const std::string& other : preset.also) name += " = " + other;
    table.add({name, preset.years, preset.summary});
  }
  return print(table.to_string() +
               "\nOptions of a style and the source of each value: docs/reference/styles.md\n");
}

}  // namespace

void add_pricing(Command& command, PricingOptions& options) {
  std::vector<std::string> dtypes{kRunDtypes.begin(), kRunDtypes.end()};
  command
      .option("--precision", options.precision,
              "What products and activations are in: float32, bfloat16, float16, float64; fp32, "
              "bf16, fp16 and "
              "fp64 mean the same (default: "
              "as the plan or the model's file says, else bfloat16 on devices that have it)")
      .one_of(std::move(dtypes), precision_words());
  command.option("--style", options.style,
                 "How the framework executes, as megatron or 'fsdp,overlap_gradients=false' "
                 "(default: as the plan says, else of the framework to which it can be exported, "
                 "else torchtitan on GPUs and tessera on processors)");
  command.option("--constants", options.constants,
                 "File of calibrated constants in place of the program's, or none "
                 "(docs/reference/pricing.md)");
  command.answer(
      "--list-styles", [] { return print_styles(); }, "List the styles, with years");
}

Result<Pricing> decide_pricing(const PricingOptions& options, Cluster cluster,
                               const PricedPlan& priced) {
  TESSERA_TRY(const PredictSettings settings, settings_of(options));
  std::optional<Plan> plan;
  if (options.style.empty() || options.precision.empty()) plan = written_plan(priced);
  const Choice precision = precision_of(options, cluster, priced, plan);
  const Choice style = style_of(options, cluster, priced, plan, precision.value);
  Pricing out;
  out.style_words = style.value;
  out.precision = precision.value;
  const std::string name = style.value.substr(0, style.value.find(','));
  const Corrections corrections = corrections_of(settings, name, cluster);
  if (!corrections.cluster.empty()) TESSERA_TRY_VOID(apply_what_if(cluster, corrections.cluster));
  TESSERA_TRY(out.style, parse_style(with_constants(style.value, corrections.style)));
  const std::string computed =
      plan && plan->precision.compute && options.precision.empty()
          ? fmt::format("{} (as the plan says)", dtype_name(*plan->precision.compute))
          : precision.value + reason_text(precision);
  out.said = fmt::format("style {}{}, {}", style.value, reason_text(style), computed);
  if (!corrections.style.empty())
    out.said += ", constants of the machine " + corrections.style.substr(1);
  out.cluster = std::move(cluster);
  return out;
}

Result<int64_t> memory_limit_of(const std::string& text, const Cluster& cluster) {
  int64_t smallest = std::numeric_limits<int64_t>::max(), largest = 0;
  for (const ClusterPart& part : cluster.parts) {
    smallest = std::min(smallest, part.type.device.memory_bytes);
    largest = std::max(largest, part.type.device.memory_bytes);
  }
  const auto share_of_smallest = [&](double share) {
    return static_cast<int64_t>(share * static_cast<double>(smallest));
  };
  if (text.empty())
    return are_processors(cluster) || smallest != largest ? 0 : share_of_smallest(1 - kTightShare);
  if (text.ends_with('%')) {
    const auto percent = parse_double(trim(std::string_view(text).substr(0, text.size() - 1)));
    if (percent && *percent >= 1 && *percent <= 100) return share_of_smallest(*percent / 100);
    return invalid_input(
        fmt::format("plan: --memory-limit: expected a share from 1% to 100%, found '{}'", text));
  }
  const auto limit = parse_quantity(text, Quantity::kBytes);
  if (!limit) return invalid_input("plan: --memory-limit: " + limit.error().message);
  if (*limit >= 1 && *limit <= 1e15) return static_cast<int64_t>(*limit);
  return invalid_input(
      fmt::format("plan: --memory-limit: expected a size from 1 B to 1000 TB, found '{}'", text));
}

std::string with_style(const std::string& plan, const Pricing& pricing) {
  const auto parsed = parse_plan(plan, "<plan>");
  if (are_processors(pricing.cluster) || !parsed || !parsed->style.empty()) return plan;
  size_t at = 0;  // behind the comments that head the text
  while (at < plan.size() && plan[at] == '#') {
    const size_t end = plan.find('\n', at);
    at = end == std::string::npos ? plan.size() : end + 1;
  }
  return fmt::format("{}style = \"{}\"\n{}", plan.substr(0, at), pricing.style_words,
                     plan.substr(at));
}

}  // namespace tessera::cli
