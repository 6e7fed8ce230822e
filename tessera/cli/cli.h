// The command line: parses, calls the library, prints. Each command is one file, <command>.cc, that
// names its options and hands them on. Two libraries are loaded when a command needs them: the
// runtime's, from with_runtime/, for commands that execute (run_commands.h), and the planning
// library, from with_planning/, for the commands that search, predict, import or export
// (planning_library.h). The contract (commands, JSON keys, exit codes):
// docs/reference/command-line.md.
//
// A command adds itself and says where the values of its options go:
//   void add_diff(Commands& commands) {
//     const auto options = std::make_shared<DiffOptions>();
//     Command command = commands.add("diff", "Compare two traces");
//     command.option("A", options->a, "Trace to compare with").required();
//     command.option("--worst", options->worst, "How many to list").at_least(0);
//     command.flag("--json", options->json, "Print JSON");
//     command.action([options] { return diff(*options); });
//   }
// CLI11 does the work. Only cli.cc includes it: it costs every file that does seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

// Runs the whole program and returns its exit code.
int run(int argc, const char* const* argv);

// An `Action` prints the command's answer and returns the exit code, or an Error, which the caller
// prints as one line.
using Action = std::function<Result<int>()>;

// An `Option` says what an option of a command accepts. It is a reference: a copy of it refers to,
// and changes, the same option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option required();
  Option at_least(double minimum);  // each value is a number
  Option ranks();                   // each value is a number of ranks: 1 to kMostRanks
  Option one_of(std::vector<std::string> values);
  Option delimiter(char separator);  // between the values of a list
  Option one_value_each();           // a list is given by repeating the option
  Option default_text(const std::string& text);
  Option type_name(const std::string& name);

 private:
  CLI::Option* option_;
};

// A `Command` is a reference, too. The variable that holds an option's value must outlive the
// parsing, so `action` usually holds it by a shared pointer.
class Command {
 public:
  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  // `name`: "--plan", "-o,--out", or "MODEL" for a word without a dash.
  Option option(const std::string& name, std::string& value, const std::string& help);
  Option option(const std::string& name, int& value, const std::string& help);
  Option option(const std::string& name, int64_t& value, const std::string& help);
  Option option(const std::string& name, uint64_t& value, const std::string& help);
  Option option(const std::string& name, double& value, const std::string& help);
  Option option(const std::string& name, std::optional<std::string>& value,
                const std::string& help);
  Option option(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  Option option(const std::string& name, std::optional<double>& value, const std::string& help);
  Option option(const std::string& name, std::vector<std::string>& values, const std::string& help);
  Option option(const std::string& name, std::vector<int64_t>& values, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);

  void footer(const std::string& text);  // below the options: notes and examples
  void action(Action action);            // `action` runs if the user chooses the command

 private:
  CLI::App* app_;
  Action* chosen_;
};

class Commands {
 public:
  Commands(CLI::App& app, Action& chosen) : app_(&app), chosen_(&chosen) {}
  Command add(const std::string& name, const std::string& help);

 private:
  CLI::App* app_;
  Action* chosen_;
};

void add_train(Commands& commands);
void add_verify(Commands& commands);
void add_inspect(Commands& commands);
void add_profile(Commands& commands);
void add_diff(Commands& commands);
void add_launch(Commands& commands);
void add_rescale(Commands& commands);
void add_sample(Commands& commands);
void add_evaluate(Commands& commands);
void add_checkpoint(Commands& commands);
void add_cache(Commands& commands);
void add_data(Commands& commands);

// Adds --batch to a command that, without it, takes the smallest batch that the plan allows.
void add_batch(Command& command, int64_t& batch);
// Adds --precision, whose values are the names of RUN.toml.
void add_precision(Command& command, std::string& precision);
// Adds --optimizer, the optimizer that will train the model (compile/optimizer_text.h).
void add_optimizer(Command& command, std::string& optimizer);

}  // namespace tessera::cli
