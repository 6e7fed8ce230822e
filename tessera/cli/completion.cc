// Completions of shells, from the description of the program.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/cli/inspect/described.h"

namespace tessera::cli {
namespace {

// Returns the text in single quotes, in which a shell changes nothing.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Returns the help up to its first semicolon or sentence, for shells that show it beside a word.
std::string short_help(const std::string& help) {
  return help.substr(0, std::min(help.find("; "), help.find(". ")));
}

std::vector<std::string> option_names(const DescribedCommand& command) {
  std::vector<std::string> out;
  for (const DescribedOption& option : command.options) {
    if (!option.is_argument()) out.insert(out.end(), option.names.begin(), option.names.end());
  }
  return out;
}

// Returns the names of the commands of the group; "": those of the program itself.
std::vector<std::string> command_names(const DescribedProgram& program, const std::string& group) {
  std::vector<std::string> out;
  for (const DescribedCommand& command : program.commands) {
    if (command.group == group) out.push_back(command.name);
  }
  return out;
}

// Returns the commands that have commands of their own.
std::vector<std::string> groups(const DescribedProgram& program) {
  std::vector<std::string> out;
  for (const DescribedCommand& command : program.commands) {
    if (!command.group.empty() && (out.empty() || out.back() != command.group))
      out.push_back(command.group);
  }
  return out;
}

// Returns the lines of a `case` over "command --option", for each option that has values: what
// stands before the values, the values, what stands after them.
std::string value_cases(const DescribedProgram& program, const std::string& before,
                        const std::string& after) {
  std::string out;
  for (const DescribedCommand& command : program.commands) {
    for (const DescribedOption& option : command.options) {
      if (option.values.empty() || option.is_argument()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(quoted(command.words() + " " + name));
      out += fmt::format("    {}) {}{}{} ;;\n", join(patterns, "|"), before,
                         join(option.values, " "), after);
    }
  }
  return out;
}

std::string bash_script(const DescribedProgram& program) {
  std::string options, inner;
  for (const DescribedCommand& command : program.commands) {
    options += fmt::format("    {}) words={} ;;\n", quoted(command.words()),
                           quoted(join(option_names(command), " ")));
  }
  for (const std::string& group : groups(program)) {
    inner += fmt::format("    {}) words={} ;;\n", group,
                         quoted(join(command_names(program, group), " ")));
  }
  return fmt::format(
      R"(# Completion of tessera {0} for bash: source it, or put it into
# ~/.local/share/bash-completion/completions/tessera
_tessera() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=''
  local command="${{COMP_WORDS[1]}}"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W {1} -- "$current"))
    return
  fi
  case "$command" in
{4}  esac
  if [[ -n $words ]] && ((COMP_CWORD > 2)); then
    command+=" ${{COMP_WORDS[2]}}" words=''
  fi
  case "$command $before" in
{2}  esac
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  fi
  [[ $current == -* ]] || return
  case "$command" in
{3}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _tessera tessera
)",
      program.version, quoted(join(command_names(program, ""), " ") + " --help --version"),
      value_cases(program, "words='", "'"), options, inner);
}

// Returns the word and its help as zsh's _describe takes them: colons of the word are escaped.
std::string described(const std::string& word, const std::string& help) {
  std::string escaped;
  for (const char c : word) escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return quoted(escaped + ":" + short_help(help));
}

std::string zsh_script(const DescribedProgram& program) {
  std::string commands, options, inner;
  for (const std::string& group : groups(program)) {
    inner += fmt::format("    {}) commands=(\n", group);
    for (const DescribedCommand& command : program.commands) {
      if (command.group == group) inner += "      " + described(command.name, command.help) + "\n";
    }
    inner += "    ) ;;\n";
  }
  for (const DescribedCommand& command : program.commands) {
    if (command.group.empty()) commands += "    " + described(command.name, command.help) + "\n";
    options += fmt::format("    {}) options=(\n", quoted(command.words()));
    for (const DescribedOption& option : command.options) {
      if (option.is_argument()) continue;
      for (const std::string& name : option.names)
        options += "      " + described(name, option.help) + "\n";
    }
    options += "    ) ;;\n";
  }
  return fmt::format(
      R"(#compdef tessera
# Completion of tessera {0} for zsh: put it into a folder of $fpath as _tessera
_tessera() {{
  local -a commands options
  commands=(
{1}  )
  if ((CURRENT == 2)); then
    _describe 'command' commands
    return
  fi
  local command=$words[2]
  commands=()
  case $command in
{4}  esac
  if (($#commands)); then
    if ((CURRENT == 3)); then
      _describe 'command' commands
      return
    fi
    command+=" $words[3]"
  fi
  case "$command $words[CURRENT-1]" in
{2}  esac
  case $command in
{3}  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe 'option' options
  else
    _files
  fi
}}
compdef _tessera tessera
)",
      program.version, commands, value_cases(program, "compadd -- ", "; return"), options, inner);
}

std::string fish_script(const DescribedProgram& program) {
  std::string out = fmt::format(
      "# Completion of tessera {} for fish: put it into ~/.config/fish/completions/tessera.fish\n",
      program.version);
  for (const DescribedCommand& command : program.commands) {
    const std::string when =
        command.group.empty()
            ? std::string("__fish_use_subcommand")
            : quoted(fmt::format("__fish_seen_subcommand_from {}; and not "
                                 "__fish_seen_subcommand_from {}",
                                 command.group, join(command_names(program, command.group), " ")));
    out += fmt::format("complete -c tessera -n {} -f -a {} -d {}\n", when, command.name,
                       quoted(short_help(command.help)));
  }
  for (const DescribedCommand& command : program.commands) {
    for (const DescribedOption& option : command.options) {
      if (option.is_argument()) continue;
      const std::string seen =
          (command.group.empty() ? "" : "__fish_seen_subcommand_from " + command.group + "; and ") +
          "__fish_seen_subcommand_from " + command.name;
      out += fmt::format("complete -c tessera -n {}", quoted(seen));
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.value.empty()) out += " -r";
      if (!option.values.empty()) out += " -f -a " + quoted(join(option.values, " "));
      out += " -d " + quoted(short_help(option.help)) + "\n";
    }
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(const DescribedProgram& program, const std::string& shell) {
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  if (shell == "fish") return fish_script(program);
  return invalid_input(
      fmt::format("completion: expected one of bash, zsh, fish, found '{}'", shell));
}

}  // namespace tessera::cli
