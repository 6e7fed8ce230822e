#include "tessera/cli/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <string_view>
#include <vector>

#include "tessera/base/doing.h"
#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/cli/output.h"
#include "tessera/cli/planning_library.h"
#include "tessera/graph/precision.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kFooter =
    R"(MODEL  family:key=value,..., as gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304, or a path
       to a Hugging Face config.json; tessera inspect --models
P      a plan file, or a recipe call such as 'megatron(tp=2,pp=2,dp=2,zero=1)'; tessera plan --list

Exit codes: 0 success; 1 a check failed; 2 wrong input; 3 a fault at run time. Errors are one line.

Example:
  tessera verify gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128 --plan 'megatron(tp=2,dp=2)'
)";

// Ends the parsing of the command line at a flag that answers by itself.
struct Answered {
  int code;
};

// The commands in the order of the help text. A command whose `add` is null is in the planning
// library.
constexpr std::array<LibraryCommand, 21> kCommands = {{{"train", add_train},
                                                       {"verify", add_verify},
                                                       {"inspect", add_inspect},
                                                       {"plan", nullptr},
                                                       {"profile", add_profile},
                                                       {"predict", nullptr},
                                                       {"accuracy", nullptr},
                                                       {"simulate", nullptr},
                                                       {"report", nullptr},
                                                       {"diff", add_diff},
                                                       {"reproduce", nullptr},
                                                       {"shard", nullptr},
                                                       {"export", nullptr},
                                                       {"import", nullptr},
                                                       {"launch", add_launch},
                                                       {"rescale", add_rescale},
                                                       {"sample", add_sample},
                                                       {"evaluate", add_evaluate},
                                                       {"checkpoint", add_checkpoint},
                                                       {"data", add_data},
                                                       {"cache", add_cache}}};

// Adds the commands that are needed when `word` is the first argument. If the program itself has
// the command `word`, adds only that. Otherwise loads the planning library and adds all commands.
// If the library is missing, its commands are listed nevertheless; only if `word` is one of them,
// the function returns an Error.
Status add_commands(Commands& commands, std::string_view word) {
  const auto named = std::ranges::find(kCommands, word, &LibraryCommand::name);
  if (named != kCommands.end() && named->add != nullptr) {
    named->add(commands);
    return {};
  }
  const auto library = planning_library(std::string(word));
  if (!library && named != kCommands.end()) return tl::unexpected(library.error());
  for (const LibraryCommand& command : kCommands) {
    if (command.add != nullptr) {
      command.add(commands);
    } else if (library) {
      std::ranges::find((*library)->commands, command.name, &LibraryCommand::name)->add(commands);
    } else {
      commands.add(std::string(command.name), "Not in this build; to get it: make build");
    }
  }
  return {};
}

// Checks that the first argument is an option or the name of a command.
Status check_command(int argc, const char* const* argv) {
  std::vector<std::string> names;
  for (const LibraryCommand& command : kCommands) names.emplace_back(command.name);
  if (argc < 2) {
    return invalid_input(fmt::format("expected a command: {} (tessera --help)", join(names, ", ")));
  }
  const std::string word = argv[1];
  if (word.starts_with('-') || std::ranges::find(names, word) != names.end()) return {};
  return invalid_input(
      fmt::format("unknown command '{}': expected one of {}", word, join(names, ", ")));
}

std::string unexpected_argument(const CLI::App& command, const std::string& where) {
  for (const std::string& word : command.remaining(true)) {
    if (word.size() < 2 || !word.starts_with('-')) {
      return fmt::format("{}unexpected argument '{}'", where, word);
    }
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
    }
    return fmt::format("{}unknown option '{}', did you mean '{}'?", where, name,
                       nearest(name, names));
  }
  return where + "unexpected argument";
}

// Returns the program's own message for an error that CLI11 found in the arguments.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  const std::string where = commands.empty() ? "" : command.get_name() + ": ";
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return unexpected_argument(command, where);
  }
  return fmt::format("{}{} (tessera {} --help)", where, error.what(), command.get_name());
}

int run_action(const Action& action) {
  const Result<int> code = action();
  if (!code) return fail(code.error());
  return *code;
}

template <class T>
Option add_option(CLI::App* app, const std::string& name, T& value, const std::string& help) {
  return Option(app->add_option(name, value, help));
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::at_least(double minimum) {
  option_->check(CLI::Validator(
      [minimum](std::string& text) -> std::string {
        const auto value = parse_double(text);
        if (value && *value >= minimum) return {};
        return fmt::format("expected a number of at least {}, found '{}'", minimum, text);
      },
      ""));
  return *this;
}

Option Option::ranks() {
  option_->check(CLI::Validator(
      [](std::string& text) -> std::string {
        const auto value = parse_int(text);
        if (value && *value >= 1 && *value <= kMostRanks) return {};
        return fmt::format("expected a number of ranks from 1 to {}, found '{}'", kMostRanks, text);
      },
      ""));
  return *this;
}

Option Option::one_of(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}

Option Option::delimiter(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option Command::option(const std::string& name, std::string& value, const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, int& value, const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, int64_t& value, const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, uint64_t& value, const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, double& value, const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, std::optional<std::string>& value,
                       const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, std::optional<int64_t>& value,
                       const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, std::optional<double>& value,
                       const std::string& help) {
  return add_option(app_, name, value, help);
}
Option Command::option(const std::string& name, std::vector<std::string>& values,
                       const std::string& help) {
  return add_option(app_, name, values, help);
}
Option Command::option(const std::string& name, std::vector<int64_t>& values,
                       const std::string& help) {
  return add_option(app_, name, values, help);
}
void Command::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void Command::answer(const std::string& name, std::function<int()> print, const std::string& help) {
  app_->add_flag_callback(
          name, [print = std::move(print)] { throw Answered{print()}; }, help)
      ->trigger_on_parse();
}

void Command::footer(const std::string& text) { app_->footer(text); }
void Command::action(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

Command Commands::add(const std::string& name, const std::string& help) {
  return {app_->add_subcommand(name, help), chosen_};
}

void add_batch(Command& command, int64_t& batch) {
  command
      .option("--batch", batch,
              "Sequences a step over all ranks (default: one a replica and micro-batch)")
      .at_least(1);
}

void add_precision(Command& command, std::string& precision) {
  command
      .option("--precision", precision,
              "What products and activations are in: float32 (default: or as the plan says), "
              "bfloat16, float16, float64")
      .one_of({kRunDtypes.begin(), kRunDtypes.end()});
}

void add_optimizer(Command& command, std::string& optimizer) {
  command
      .option("--optimizer", optimizer,
              "By which the model will be trained, as sgd, or with another for some parameters, as "
              "'adamw,tables.*=rowwise_adagrad'; docs/reference/run-config.md")
      .default_text("adamw");
}

int run(int argc, const char* const* argv) {
  CLI::App app("Tessera: deep learning models trained under any parallel plan", "tessera");
  app.footer(std::string(kFooter));
  app.require_subcommand(1);
  app.get_formatter()->column_width(26);
  Action action;
  Commands commands(app, action);
  if (const auto status = check_command(argc, argv); !status) return fail(status.error());
  if (const auto status = add_commands(commands, argv[1]); !status) return fail(status.error());
  const std::string command = fmt::format("tessera {}", argv[1]);
  const Doing doing("running", command);
  try {
    app.parse(argc, argv);
    return run_action(action);
  } catch (const Answered& answered) {
    return answered.code;
  } catch (const CLI::CallForHelp&) {
    return print(app.help());  // help of the command, if one is named
  } catch (const CLI::ParseError& error) {
    return fail({ErrorCode::kInvalidInput, parse_message(app, error)});
  } catch (const std::filesystem::filesystem_error& error) {
    // This happens if a path that a user gave has a name that is too long, for example.
    return fail(
        {ErrorCode::kInvalidInput,
         fmt::format("cannot look at '{}': {}", error.path1().string(), error.code().message())});
  } catch (const std::exception& error) {
    return fail(is_memory_exhausted(error) ? memory_exhausted()
                                           : Error{ErrorCode::kFault, error.what()});
  }
}

}  // namespace tessera::cli
