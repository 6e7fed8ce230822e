// NeMo: writes YAML that overrides a recipe of Megatron Bridge, the NeMo framework's library that
// trains language models on Megatron-Core. The reader supports two levels of keys, because the
// writer uses no more.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/export/megatron_core.h"
#include "tessera/export/sizes.h"

namespace tessera {
namespace {

constexpr std::string_view kNemo = "nemo";

std::string yaml_value(const CoreArgument& argument) {
  const std::string& value = argument.field_value.empty() ? argument.value : argument.field_value;
  if (argument.flag == "recompute-modules")
    return fmt::format("[{}]", join(split_text(value, ' '), ", "));
  return value.find_first_of("|*") == std::string::npos ? value : fmt::format("\"{}\"", value);
}

Result<std::string> write_nemo(const ExportJob& job) {
  TESSERA_TRY(const auto arguments, core_arguments(job, kNemo));
  TESSERA_TRY(const ModelSizes sizes, model_sizes(job.model));
  std::string out;
  for (const std::string& line : heading(job, nemo_target())) out += fmt::format("# {}\n", line);
  for (const std::string& key : sizes.left_out)
    out += fmt::format("# Not said to NeMo: {}.\n", key);
  const int64_t ranks = job.settings.ranks(), a_node = std::min(ranks, job.node_size);
  // Before Blackwell, Megatron-Core demands that a device has one work queue; Megatron-FSDP demands
  // more than one.
  const ExportSettings& s = job.settings;
  const bool one_queue = s.zero < 2 && (s.tp > 1 || s.cp > 1);
  out += fmt::format(
      "# Start: {}torchrun --nnodes {} --nproc-per-node {} SCRIPT --config-file THIS_FILE\n",
      one_queue ? "CUDA_DEVICE_MAX_CONNECTIONS=1 " : "", (ranks + a_node - 1) / a_node, a_node);
  // Groups of arguments are written in the order of their first arguments; inside a group, the
  // order of the arguments is kept.
  std::vector<std::string> order;
  std::map<std::string, std::string> groups;
  std::string top;
  for (const CoreArgument& argument : arguments) {
    if (argument.field.empty()) continue;
    const size_t dot = argument.field.find('.');
    if (dot == std::string::npos) {
      top += fmt::format("{}: {}  # {}\n", argument.field, yaml_value(argument), argument.comment);
      continue;
    }
    const std::string group = argument.field.substr(0, dot);
    if (!groups.contains(group)) order.push_back(group);
    groups[group] += fmt::format("  {}: {}  # {}\n", argument.field.substr(dot + 1),
                                 yaml_value(argument), argument.comment);
  }
  for (const std::string& group : order) out += fmt::format("{}:\n{}", group, groups[group]);
  return out + top;
}

// Returns the value of a line "key: value  # comment", without quotes and comment.
std::string plain(std::string_view value) {
  char quote = 0;
  size_t end = value.size();
  for (size_t i = 0; i < value.size(); ++i) {
    if (quote == 0 && value[i] == '#' && (i == 0 || value[i - 1] == ' ')) {
      end = i;
      break;
    }
    if (value[i] == quote) {
      quote = 0;
    } else if (quote == 0 && (value[i] == '"' || value[i] == '\'')) {
      quote = value[i];
    }
  }
  std::string out(trim(value.substr(0, end)));
  if (out.size() >= 2 && (out.front() == '"' || out.front() == '\'') && out.back() == out.front())
    out = out.substr(1, out.size() - 2);
  if (out.starts_with('[') && out.ends_with(']')) {
    out = out.substr(1, out.size() - 2);
    std::string words;
    for (const std::string& word : split_text(out, ',')) {
      if (!words.empty()) words += ' ';
      words += trim(word);
    }
    return words;
  }
  return out;
}

Result<ExportSettings> read_nemo(const std::string& text, int64_t ranks, const Graph& forward) {
  CoreValues values;
  std::string group;
  int number = 0;
  for (const std::string& line : split_text(text, '\n')) {
    ++number;
    const std::string_view rest = trim(line);
    if (rest.empty() || rest.starts_with('#')) continue;
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) {
      return invalid_input(
          fmt::format("nemo: line {}: expected 'key: value', found '{}'", number, rest));
    }
    const std::string key(rest.substr(0, colon)), value = plain(rest.substr(colon + 1));
    const bool inside = line.starts_with(' ');
    if (!inside) group = value.empty() ? key : "";
    if (value.empty()) continue;
    const std::string field = inside ? fmt::format("{}.{}", group, key) : key;
    if (const std::string flag = flag_of_field(field); !flag.empty()) values[flag] = value;
    if (field == "mixed_precision" &&
        (value.find("fp8") != std::string::npos || value.find("fp4") != std::string::npos))
      values["fp8-format"] = value;
    if (field == "mixed_precision" && value.starts_with("bf16")) values["bf16"] = "true";
    if (field == "mixed_precision" && value.starts_with("fp16")) values["fp16"] = "true";
    if (field == "ddp.grad_reduce_in_fp32" && value == "false")
      values["grad-reduce-in-bf16"] = "true";
  }
  return read_core(values, ranks, forward, kNemo);
}

}  // namespace

ExportTarget nemo_target() {
  return {std::string(kNemo),
          "YAML that overrides a recipe of Megatron Bridge",
          "NeMo Megatron Bridge 0.4",
          core_fixes(),
          true,
          write_nemo,
          read_nemo,
          {"gpt", "llama", "mixtral", "nemotron_h"},
          "nemo"};
}

}  // namespace tessera
