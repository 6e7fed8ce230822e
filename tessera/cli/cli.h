// The command line: parses the arguments, calls the library, and prints. Each command is one file,
// <command>.cc, which defines the command's options and passes their values on. Two libraries are
// loaded only when a command needs them. The runtime's library, made from with_runtime/, is for
// commands that execute a model (run_commands.h). The planning library, made from with_planning/,
// is for commands that search, predict, import or export (planning_library.h).
// docs/reference/command-line.md specifies the commands, the JSON keys and the exit codes.
//
// A command adds itself and says which variables get the values of its options:
//   void add_diff(Commands& commands) {
//     const auto options = std::make_shared<DiffOptions>();
//     Command command = commands.add("diff", "Compare two traces");
//     command.option("A", options->a, "Trace to compare with").required();
//     command.option("--worst", options->worst, "How many to list").at_least(0);
//     command.flag("--json", options->json, "Print JSON");
//     command.action([options] { return diff(*options); });
//   }
// CLI11 does the parsing. Only cli.cc includes CLI11, because every file that includes it takes
// seconds longer to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

class Caller;  // caller.h

// Runs the whole program and returns its exit code. Its texts go to `caller`.
int run(const std::vector<std::string>& arguments, Caller& caller);

// Runs a command: prints its answer and returns the exit code. If it returns an Error, the caller
// prints the error as one line.
using Action = std::function<Result<int>()>;

// Words that people write, in lower case, with the value that each stands for: {"bf16", "bfloat16"}.
using Words = std::vector<std::pair<std::string, std::string>>;

// Says what values an option of a command accepts. An Option is a reference: its copies refer to
// the same option of CLI11 and change that.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option required();
  Option at_least(double minimum);  // each value must be a number of at least `minimum`
  Option ranks();                   // each value must be a number of ranks, 1 to kMostRanks
  // Accepts one of these values, or a word that stands for one, which then becomes the value.
  Option one_of(std::vector<std::string> values, Words words = {});
  Option delimiter(char separator);  // separates the values of a list
  Option one_value_each();           // a list is given by repeating the option
  Option default_text(const std::string& text);
  Option type_name(const std::string& name);

 private:
  CLI::Option* option_;
};

// A command under construction. Like an Option, it is a reference. A variable that gets an option's
// value must live until the action has run, so the action usually holds it by a shared pointer.
class Command {
 public:
  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  // Adds an option. `name` is "--plan", "-o,--out", or, for an argument without a dash, "MODEL".
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
  // Adds a flag that answers by itself, as --help does: as soon as it is read, `print` runs and the
  // program ends with its exit code, even if required options are missing.
  void answer(const std::string& name, std::function<int()> print, const std::string& help);

  // Adds a command of this one, as `submit` of `cluster`. A user of this one must name one of them.
  Command command(const std::string& name, const std::string& help);

  void footer(const std::string& text);  // printed after the options: notes and examples
  void action(Action action);            // runs if the user chooses this command

 private:
  CLI::App* app_;
  Action* chosen_;
};

class Commands {
 public:
  Commands(CLI::App& app, Action& chosen) : app_(&app), chosen_(&chosen) {}
  Command add(const std::string& name, const std::string& help);
  const CLI::App* program() const { return app_; }  // with all commands that were added

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
void add_probe(Commands& commands);
void add_rescale(Commands& commands);
void add_sample(Commands& commands);
void add_evaluate(Commands& commands);
void add_checkpoint(Commands& commands);
void add_cache(Commands& commands);
void add_data(Commands& commands);

// Adds --batch. Without it, the command takes the smallest batch that the plan allows.
void add_batch(Command& command, int64_t& batch);
// Adds --precision, whose values are the names of RUN.toml.
void add_precision(Command& command, std::string& precision);
// Returns the words that --precision takes for its values, as "bf16".
const Words& precision_words();
// Adds --optimizer, the optimizer that will train the model (compile/optimizer_text.h).
void add_optimizer(Command& command, std::string& optimizer);

}  // namespace tessera::cli
