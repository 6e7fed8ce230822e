// NeMo: writes a script that starts a recipe of Megatron Bridge, the NeMo framework's library that
// trains language models on Megatron-Core, with overrides of its configuration. The reader takes
// such a script, or YAML of two levels with the same fields.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/export/megatron_core.h"
#include "tessera/export/shell.h"
#include "tessera/export/sizes.h"
#include "tessera/export/structured.h"

namespace tessera {
namespace {

constexpr std::string_view kNemo = "nemo";

// Returns the value as an override of Hydra has it, in quotes where the shell would read signs.
std::string override_value(const CoreArgument& argument) {
  const std::string& value = argument.field_value.empty() ? argument.value : argument.field_value;
  if (argument.flag == "recompute-modules")
    return fmt::format("[{}]", join(split_text(value, ' '), ","));
  return value.find_first_of("|*(") == std::string::npos ? value : fmt::format("\"{}\"", value);
}

// Recipes of Megatron Bridge, by the sizes of their models.
struct BridgeRecipe {
  const char* family;
  int64_t layers, hidden;
  const char* name;
};
constexpr BridgeRecipe kBridgeRecipes[] = {
    {"llama", 16, 2048, "llama32_1b_pretrain_config"},
    {"llama", 28, 3072, "llama32_3b_pretrain_config"},
    {"llama", 32, 4096, "llama3_8b_pretrain_config"},
    {"llama", 80, 8192, "llama3_70b_pretrain_config"},
    {"llama", 126, 16384, "llama31_405b_pretrain_config"},
    {"mixtral", 48, 2048, "qwen3_30b_a3b_pretrain_config"},
};

std::string bridge_recipe_of(const Model& model) {
  for (const BridgeRecipe& recipe : kBridgeRecipes) {
    if (model.family == recipe.family && spec_number(model, "layers") == recipe.layers &&
        spec_number(model, "hidden") == recipe.hidden)
      return recipe.name;
  }
  return "";
}

Result<std::string> write_nemo(const ExportJob& job) {
  TESSERA_TRY(const auto arguments, core_arguments(job, kNemo));
  TESSERA_TRY(const ModelSizes sizes, model_sizes(job.model));
  std::string out = "#!/usr/bin/env bash\n";
  for (const std::string& line : heading(job, nemo_target())) out += fmt::format("# {}\n", line);
  for (const std::string& key : sizes.left_out)
    out += fmt::format("# Not said to NeMo: {}.\n", key);
  const std::string recipe = bridge_recipe_of(job.model);
  out += "# Start: bash THIS_FILE in a checkout of Megatron Bridge.\n";
  if (recipe.empty()) {
    out +=
        "# No recipe of Megatron Bridge has these sizes: take one whose model is alike as RECIPE; "
        "the "
        "sizes below override its own.\n";
  }
  out += "OVERRIDES=(\n";
  size_t width = 0;
  std::vector<std::pair<std::string, std::string>> lines;
  for (const CoreArgument& argument : arguments) {
    if (argument.field.empty()) continue;
    std::string word = fmt::format("{}={}", argument.field, override_value(argument));
    if (word.find('"') != std::string::npos) word = fmt::format("'{}'", word);
    constexpr size_t kWidest = 60;
    if (word.size() <= kWidest) width = std::max(width, word.size());
    lines.emplace_back(std::move(word), argument.comment);
  }
  for (const auto& [word, comment] : lines)
    out += fmt::format("  {:<{}}  # {}\n", word, width, comment);
  // Before Blackwell, Megatron-Core demands that a device has one work queue; Megatron-FSDP demands
  // more than one.
  const ExportSettings& s = job.settings;
  const bool one_queue = s.zero < 2 && (s.tp > 1 || s.cp > 1);
  out += ")\n";
  if (one_queue) out += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  if (s.zero >= 2) out += "unset CUDA_DEVICE_MAX_CONNECTIONS\n";
  out += fmt::format(
      "torchrun {} scripts/training/run_recipe.py --recipe {} --mode pretrain --dataset mock "
      "\"${{OVERRIDES[@]}}\" \"$@\"\n",
      launcher_flags(job), recipe.empty() ? "\"$RECIPE\"" : recipe);
  return out;
}

// Reads YAML, or a script that starts run_recipe.py with flags and overrides.
Result<SaidKeys> scan_nemo(const std::string& text) {
  if (text.find("run_recipe") == std::string::npos && text.find("OVERRIDES") == std::string::npos)
    return keys_of_yaml(text, kNemo);
  SaidKeys out = flags_of_script(text);
  for (SaidKey& key : out) {
    if (key.name.find('.') == std::string::npos) {
      if (const std::string field = field_of_flag(key.name); !field.empty()) key.name = field;
    }
    key.value = plain_value(key.value);
  }
  return out;
}

Result<ExportSettings> settings_of_nemo(const SettingsRequest& request) {
  CoreValues values;
  for (const SaidKey& key : request.said) {
    if (const std::string flag = flag_of_field(key.name); !flag.empty()) values[flag] = key.value;
    const bool narrow =
        key.value.find("fp8") != std::string::npos || key.value.find("fp4") != std::string::npos;
    if (key.name == "mixed_precision" && narrow) {
      return SaidValues(request.said, kNemo)
          .refuse("mixed_precision", "a precision of 16 bits or more");
    }
    if (key.name == "mixed_precision" && key.value.starts_with("bf16")) values["bf16"] = "true";
    if (key.name == "mixed_precision" && key.value.starts_with("fp16")) values["fp16"] = "true";
    if (key.name == "ddp.use_megatron_fsdp") values["use-megatron-fsdp"] = key.value;
    if (key.name == "model.bf16") values["bf16"] = key.value;
    if (key.name == "model.fp16") values["fp16"] = key.value;
    if (key.name == "ddp.grad_reduce_in_fp32" && key.value == "false")
      values["grad-reduce-in-bf16"] = "true";
  }
  TESSERA_TRY(const int64_t ranks, ranks_of(request, "nnodes", "nproc-per-node", kNemo));
  return read_core(values, ranks, request.forward, kNemo);
}

}  // namespace

ExportTarget nemo_target() {
  ExportTarget out;
  out.name = kNemo;
  out.summary = "a shell script that starts a recipe of Megatron Bridge with overrides";
  out.version = "NeMo Megatron Bridge 0.4 to 0.6";
  out.fixes = core_fixes();
  out.write = write_nemo;
  out.scan = scan_nemo;
  out.settings = settings_of_nemo;
  out.families = {"gpt", "llama", "mixtral", "nemotron_h"};
  out.style = "nemo";
  out.endings = {".sh", ".yaml", ".yml"};
  out.starts = {"run_recipe.py"};
  out.grid = core_grid();
  return out;
}

}  // namespace tessera
