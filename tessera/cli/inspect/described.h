// The program's commands and options as plain data, from which completions of shells and the man page
// are made. cli.cc makes the description from the same calls that define the options, so there is no
// second list to keep.
//
//   tessera completion bash > ~/.local/share/bash-completion/completions/tessera
//   tessera help --man | man -l -
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct DescribedOption {
  std::vector<std::string> names;   // {"-o", "--out"}; {"MODEL"} for an argument without a dash
  std::string value;                // what stands after the option; "" for a flag
  std::vector<std::string> values;  // values that a shell may offer; empty: files
  std::string help;
  bool is_argument() const { return !names.front().starts_with('-'); }
};

struct DescribedCommand {
  std::string name;
  std::string group;  // the command to which it belongs, as "cluster"; "": the program itself
  std::string help, footer;
  std::vector<DescribedOption> options;
  std::string words() const { return group.empty() ? name : group + " " + name; }
};

struct DescribedProgram {
  std::string version, help, footer;
  std::vector<DescribedCommand> commands;
};

// Returns the script that completes commands, options and values in a shell: bash, zsh or fish.
// Error: another shell.
Result<std::string> completion_script(const DescribedProgram& program, const std::string& shell);
// Returns the man page, tessera(1), in the format of man.
std::string man_page(const DescribedProgram& program);

}  // namespace tessera::cli
