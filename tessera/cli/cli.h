// The command line: parses, calls the library, prints. Each command is one file, <command>.cc, that
// names its options and hands them on. Two libraries are loaded when a command needs them: what only
// the runtime can do lies in with_runtime/ (run_commands.h), and the commands that search, predict,
// import or export in with_planning/ (planning_library.h). The contract (commands, JSON keys, exit
// codes): docs/reference/command-line.md.
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

// The whole program; returns its exit code.
int run(int argc, const char* const* argv);

// Prints its answer and returns the exit code, or an Error, which is printed as one line.
using Action = std::function<Result<int>()>;

// What an option accepts. It is a reference to the option: a change that is made through a copy of
// it changes the same option.
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

// A handle too. What an option's value is stored in must outlive the parsing, so `action` usually
// holds it by a shared pointer.
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
  void action(Action action);            // what happens if the command is chosen

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

// --batch of commands that take the smallest one that the plan allows where none is given.
void add_batch(Command& command, int64_t& batch);
// --precision, by the names of RUN.toml.
void add_precision(Command& command, std::string& precision);
// --optimizer, by which a model will be trained (compile/optimizer_text.h).
void add_optimizer(Command& command, std::string& optimizer);

}  // namespace tessera::cli
