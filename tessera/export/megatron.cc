// Megatron-LM: writes a shell script that starts one of its programs with flags. The reader accepts
// such a script, or any command line with these flags.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/export/megatron_core.h"
#include "tessera/export/shell.h"
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
  out += "# Start: bash THIS_FILE --data-path ... in a checkout of Megatron-LM.\n";
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
  if (const std::string connections = connections_of(job.settings); !connections.empty())
    out += connections + "\n";
  out += fmt::format("torchrun {} {} \"${{ARGS[@]}}\" \"$@\"\n", launcher_flags(job), sizes.script);
  return out;
}

Result<SaidKeys> scan_megatron(const std::string& text) {
  SaidKeys flags = flags_of_script(text);
  if (!flags.empty()) return flags;
  return invalid_input("megatron: expected a shell script with flags, found none");
}

Result<ExportSettings> settings_of_megatron(const SettingsRequest& request) {
  CoreValues values;
  for (const SaidKey& flag : request.said) values[flag.name] = flag.value;
  TESSERA_TRY(const int64_t ranks, ranks_of(request, "nnodes", "nproc-per-node", kMegatron));
  return read_core(values, ranks, request.forward, kMegatron);
}

}  // namespace

ExportTarget megatron_target() {
  ExportTarget out;
  out.name = kMegatron;
  out.summary = "a shell script that starts pretrain_gpt.py or the like with flags";
  out.version = "Megatron-LM (Megatron-Core 0.15 to 0.19)";
  out.fixes = core_fixes();
  out.write = write_megatron;
  out.scan = scan_megatron;
  out.settings = settings_of_megatron;
  out.families = megatron_families();
  out.style = "megatron-core";
  out.endings = {".sh", ".bash", ".sbatch", ".slurm", ".txt"};
  out.starts = {"pretrain_"};
  out.grid = core_grid();
  return out;
}

}  // namespace tessera
