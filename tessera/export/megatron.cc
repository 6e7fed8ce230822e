// Megatron-LM: writes a shell script that starts one of its programs with flags. The reader accepts
// such a script, or any command line with these flags.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/export/megatron_core.h"
#include "tessera/export/sizes.h"

namespace tessera {
namespace {

constexpr std::string_view kMegatron = "megatron";

// Returns the line that sets the number of a device's work queues to what validate_args of
// Megatron-LM demands; "" if any number will do.
std::string connections_of(const ExportSettings& s) {
  if (s.zero >= 2)
    return "unset CUDA_DEVICE_MAX_CONNECTIONS  # Megatron-FSDP needs more queues than one";
  if (s.tp == 1 && s.cp == 1) return "";
  return "export CUDA_DEVICE_MAX_CONNECTIONS=1  # tensor and context ranks need it before "
         "Blackwell";
}

Result<std::string> write_megatron(const ExportJob& job) {
  TESSERA_TRY(const auto arguments, core_arguments(job, kMegatron));
  TESSERA_TRY(const ModelSizes sizes, model_sizes(job.model));
  std::string out = "#!/usr/bin/env bash\n";
  for (const std::string& line : heading(job, megatron_target()))
    out += fmt::format("# {}\n", line);
  for (const std::string& key : sizes.left_out)
    out += fmt::format("# Not said to Megatron: {}.\n", key);
  out +=
      "# Tokenizer, data, optimizer and learning rate are yours: they follow the script's name.\n";
  out += "ARGS=(\n";
  size_t width = 0;
  std::vector<std::string> flags;
  for (const CoreArgument& argument : arguments) {
    // Layouts are quoted, because the shell would interpret their bars and stars.
    const bool quote = argument.value.find_first_of("|*(") != std::string::npos;
    flags.push_back(argument.value.empty() ? fmt::format("--{}", argument.flag)
                    : quote                ? fmt::format("--{} '{}'", argument.flag, argument.value)
                                           : fmt::format("--{} {}", argument.flag, argument.value));
    constexpr size_t kWidest = 48;
    if (flags.back().size() <= kWidest) width = std::max(width, flags.back().size());
  }
  for (size_t i = 0; i < arguments.size(); ++i)
    out += fmt::format("  {:<{}}  # {}\n", flags[i], width, arguments[i].comment);
  out += ")\n";
  const int64_t ranks = job.settings.ranks(), a_node = std::min(ranks, job.node_size);
  if (const std::string connections = connections_of(job.settings); !connections.empty())
    out += connections + "\n";
  out += fmt::format("torchrun --nnodes {} --nproc-per-node {} {} \"${{ARGS[@]}}\" \"$@\"\n",
                     (ranks + a_node - 1) / a_node, a_node, sizes.script);
  return out;
}

// Splits a shell text into words; leaves out comments and line ends. A quoted part stays one word.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  for (const std::string& line : split_text(text, '\n')) {
    std::string word;
    char quote = 0;
    for (const char c : line) {
      if (quote == 0 && word.empty() && c == '#') break;
      if (c == quote) {
        quote = 0;
      } else if (quote == 0 && (c == '\'' || c == '"')) {
        quote = c;
      } else if (quote == 0 && (c == ' ' || c == '\t' || c == '=')) {
        if (!word.empty()) out.push_back(std::move(word));
        word.clear();
      } else {
        word += c;
      }
    }
    if (!word.empty() && word != "\\") out.push_back(std::move(word));
  }
  return out;
}

Result<ExportSettings> read_megatron(const std::string& text, int64_t ranks, const Graph& forward) {
  CoreValues values;
  std::string flag;
  for (const std::string& word : words_of(text)) {
    if (word == ")") {
      flag.clear();  // a list of words ends here; the next word is not a value
    } else if (word.starts_with("--")) {
      flag = word.substr(2);
      std::replace(flag.begin(), flag.end(), '_', '-');
      values[flag] = "true";
    } else if (!flag.empty() && values[flag] == "true") {
      values[flag] = word;
    } else if (flag == "recompute-modules" || (flag == "cp-comm-type" && values[flag] != word)) {
      values[flag] += " " + word;  // a list, such as a form of attention for each layer
    }
  }
  const auto number = [&](std::string_view name) {
    const auto found = values.find(name);
    return found == values.end() ? Result<int64_t>(1) : parse_int(found->second);
  };
  if (values.contains("nproc-per-node")) {
    TESSERA_TRY(const int64_t nodes, number("nnodes"));
    TESSERA_TRY(const int64_t a_node, number("nproc-per-node"));
    ranks = nodes * a_node;
  }
  return read_core(values, ranks, forward, kMegatron);
}

}  // namespace

ExportTarget megatron_target() {
  return {std::string(kMegatron),
          "a shell script that starts pretrain_gpt.py or the like with flags",
          "Megatron-LM (Megatron-Core 0.15 to 0.19)",
          core_fixes(),
          true,
          write_megatron,
          read_megatron,
          megatron_families(),
          "megatron-core"};
}

}  // namespace tessera
