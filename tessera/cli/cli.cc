#include "tessera/cli/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "tessera/base/doing.h"
#include "tessera/base/limits.h"
#include "tessera/base/text.h"
#include "tessera/cli/defaults.h"
#include "tessera/cli/inspect/described.h"
#include "tessera/cli/libraries/caller.h"
#include "tessera/cli/libraries/planning_library.h"
#include "tessera/cli/output.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/graph/precision.h"
#include "tessera/models/model_name.h"
#include "tessera/plan/recipe_aliases.h"
#include "tessera/plan/recipes.h"

namespace tessera::cli {
namespace {

// Other words for the dtypes of --precision.
const Words kPrecisionWords = {{"bf16", "bfloat16"}, {"fp16", "float16"},  {"half", "float16"},
                               {"fp32", "float32"},  {"float", "float32"}, {"fp64", "float64"},
                               {"double", "float64"}};

constexpr std::string_view kFooter =
    R"(MODEL  a published name (meta-llama/Meta-Llama-3-8B), a Hugging Face config.json or its folder, a
       .graph or .pt2, or family:key=value,..., as gpt:layers=24,hidden=1024,heads=16,seq=1024;
       tessera inspect --models
P      a plan file, or a recipe call such as 'fsdp(8)' or 'megatron(tp=2,pp=2,dp=2,zero=1)';
       tessera plan --list
CLUSTER  a preset with nodes (dgx-a100:2) or devices (16xA100), local, or a TOML file;
       tessera inspect --list-clusters

The file ./tessera.toml, or ~/.config/tessera/defaults.toml, may have defaults of --cluster, --style
and --precision. Exit codes: 0 success; 1 a check failed; 2 wrong input; 3 a fault at run time.
Errors are one line; with --json they are an object as well.

Example:
  tessera verify gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128 --plan 'megatron(tp=2,dp=2)'
)";

// Ends the parsing of the command line at a flag that answers by itself.
struct Answered {
  int code;
};

// A command of the program. `add` is null if the command is in the planning library.
struct ProgramCommand {
  std::string_view name;
  void (*add)(Commands& commands) = nullptr;
  bool has_defaults = false;  // whether the user's file of defaults goes for it (defaults.h)
  // Whether it executes a model. Then the weights of an archive matter, and an archive (.pt2) is no
  // MODEL before it is imported.
  bool executes = false;
};

void add_completion(Commands& commands);
void add_help(Commands& commands);

// The commands in the order of the help text.
constexpr std::array<ProgramCommand, 27> kCommands = {{{"train", add_train, false, true},
                                                       {"verify", add_verify, false, true},
                                                       {"inspect", add_inspect},
                                                       {"plan", nullptr, true},
                                                       {"profile", add_profile, false, true},
                                                       {"predict"},
                                                       {"accuracy"},
                                                       {"simulate", nullptr, true},
                                                       {"report", nullptr, true},
                                                       {"diff", add_diff},
                                                       {"reproduce"},
                                                       {"shard"},
                                                       {"cluster"},
                                                       {"probe", add_probe},
                                                       {"export"},
                                                       {"import"},
                                                       {"order"},
                                                       {"check"},
                                                       {"launch", add_launch, false, true},
                                                       {"rescale", add_rescale},
                                                       {"sample", add_sample, false, true},
                                                       {"evaluate", add_evaluate, false, true},
                                                       {"checkpoint", add_checkpoint},
                                                       {"data", add_data},
                                                       {"cache", add_cache},
                                                       {"completion", add_completion},
                                                       {"help", add_help}}};

const ProgramCommand* find_command(std::string_view name) {
  const auto found = std::ranges::find(kCommands, name, &ProgramCommand::name);
  return found == kCommands.end() ? nullptr : &*found;
}

// Returns whether the command describes all commands, so that all must be there.
bool describes_all(std::string_view word) { return word == "completion" || word == "help"; }

// Adds the commands that are needed when `word` is the first argument. If the program itself has
// the command `word`, adds only that. Otherwise loads the planning library and adds all commands.
// If the library is missing, its commands are listed nevertheless; only if `word` is one of them,
// the function returns an Error.
Status add_commands(Commands& commands, std::string_view word) {
  const ProgramCommand* named = find_command(word);
  if (named != nullptr && named->add != nullptr && !describes_all(word)) {
    named->add(commands);
    return {};
  }
  const auto library = planning_library(std::string(word));
  if (!library && named != nullptr && named->add == nullptr) return tl::unexpected(library.error());
  for (const ProgramCommand& command : kCommands) {
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
Status check_command(const std::string& word) {
  if (word.empty() || word.starts_with('-') || find_command(word) != nullptr) return {};
  std::vector<std::string> names;
  for (const ProgramCommand& command : kCommands) names.emplace_back(command.name);
  return invalid_input(fmt::format("unknown command '{}', did you mean '{}'? ({})", word,
                                   nearest(word, names), join(names, ", ")));
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

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// Returns the program's own message for an error that CLI11 found in the arguments.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* innermost = &app;
  std::string name;  // of the innermost command that was named, as "cluster submit"
  while (!innermost->get_subcommands().empty()) {
    innermost = innermost->get_subcommands().front();
    name += (name.empty() ? "" : " ") + innermost->get_name();
  }
  const CLI::App& command = *innermost;
  const std::string where = name.empty() ? "" : name + ": ";
  const std::vector<std::string> inner = names_of_commands(command);
  if (!name.empty() && !inner.empty()) {
    const std::vector<std::string> rest = command.remaining(true);
    return fmt::format("{}expected {}, found {} (tessera {} --help)", where, join(inner, ", "),
                       rest.empty() ? "none" : "'" + rest.front() + "'", name);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return unexpected_argument(command, where);
  }
  return fmt::format("{}{} (tessera {} --help)", where, error.what(),
                     name.empty() ? command.get_name() : name);
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

Option Option::one_of(std::vector<std::string> values, Words words) {
  std::string shown = "{" + join(values, ",") + "}";
  option_->transform(CLI::Validator(
      [values = std::move(values), words](std::string& text) -> std::string {
        const auto known = std::ranges::find(words, lower_case(text), &Words::value_type::first);
        if (known != words.end()) text = known->second;
        if (std::ranges::find(values, text) != values.end()) return {};
        std::vector<std::string> near = values;
        for (const auto& [word, value] : words) near.emplace_back(word);
        return fmt::format("expected one of {}, found '{}', did you mean '{}'?", join(values, ", "),
                           text, nearest(lower_case(text), near));
      },
      std::move(shown)));
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

Command Command::command(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);
  return {app_->add_subcommand(name, help), chosen_};
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

const Words& precision_words() { return kPrecisionWords; }

void add_precision(Command& command, std::string& precision) {
  command
      .option("--precision", precision,
              "What products and activations are in: float32 (default: or as the plan says), "
              "bfloat16, float16, float64; fp32, bf16, fp16 and fp64 mean the same")
      .one_of({kRunDtypes.begin(), kRunDtypes.end()}, kPrecisionWords);
}

void add_optimizer(Command& command, std::string& optimizer) {
  command
      .option("--optimizer", optimizer,
              "By which the model will be trained, as sgd, or with another for some parameters, as "
              "'adamw,tables.*=rowwise_adagrad'; docs/reference/run-config.md")
      .default_text("adamw");
}

namespace {

// Returns what a shell may offer as values of the options that have the same meaning in all commands.
std::vector<std::string> values_of(const std::string& option) {
  if (option == "--cluster") return preset_names();
  if (option == "--style") return style_names();
  if (option != "--plan") return {};
  std::vector<std::string> names;
  for (const Recipe& recipe : all_recipes()) names.push_back(recipe.name);
  for (const RecipeAlias& alias : recipe_aliases()) names.push_back(alias.name);
  return names;
}

DescribedOption described(const CLI::Option& option) {
  DescribedOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (out.names.empty()) out.names.push_back(option.get_name());
  out.help = option.get_description();
  if (option.get_items_expected_max() == 0) return out;
  out.value = option.get_type_name();
  out.values = values_of(out.names.back());
  // A choice is shown as "TEXT:{a,b}".
  const size_t open = out.value.find('{'), close = out.value.find('}');
  if (open != std::string::npos && close != std::string::npos && open < close)
    out.values = split_text(out.value.substr(open + 1, close - open - 1), ',');
  out.value = out.value.substr(0, out.value.find(':'));
  return out;
}

// Adds the commands of `app`, each followed by those of its own.
void add_described(const CLI::App& app, const std::string& group, DescribedProgram& out) {
  for (const CLI::App* command : app.get_subcommands({})) {
    DescribedCommand one{
        command->get_name(), group, command->get_description(), command->get_footer(), {}};
    for (const CLI::Option* option : command->get_options())
      one.options.push_back(described(*option));
    out.commands.push_back(std::move(one));
    add_described(*command, command->get_name(), out);
  }
}

DescribedProgram described(const CLI::App& app) {
  DescribedProgram out{TESSERA_VERSION, app.get_description(), app.get_footer(), {}};
  add_described(app, "", out);
  return out;
}

void add_completion(Commands& commands) {
  const auto shell = std::make_shared<std::string>();
  Command command =
      commands.add("completion", "Print the script that completes commands in bash, zsh or fish");
  command.option("SHELL", *shell, "bash, zsh or fish").required();
  command.footer(
      "Example:\n"
      "  tessera completion bash > ~/.local/share/bash-completion/completions/tessera\n");
  command.action([shell, app = commands.program()]() -> Result<int> {
    TESSERA_TRY(const std::string script, completion_script(described(*app), *shell));
    return print(script);
  });
}

// Prints the help of the command that the words lead to, one inside the other.
Result<int> print_help(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* at = &program;
  std::string before;
  for (const std::string& word : words) {
    const auto inner = at->get_subcommands([](const CLI::App*) { return true; });
    const auto found =
        std::ranges::find(inner, word, [](const CLI::App* one) { return one->get_name(); });
    before += (before.empty() ? "" : " ") + at->get_name();
    if (found != inner.end()) {
      at = *found;
      continue;
    }
    std::vector<std::string> names;
    for (const CLI::App* one : inner) names.push_back(one->get_name());
    return invalid_input(fmt::format(
        "help: expected {}, found '{}' after '{}'",
        names.empty() ? "no further command" : "one of " + join(names, ", "), word, before));
  }
  return print(at->help(before));
}

void add_help(Commands& commands) {
  struct HelpOptions {
    std::vector<std::string> words;
    bool man = false;
  };
  const auto options = std::make_shared<HelpOptions>();
  Command command = commands.add("help", "Print the help of a command, or the man page");
  command.option("COMMAND", options->words,
                 "Command, and those inside it; without one, the list of commands");
  command.flag("--man", options->man, "The manual page of all commands, for man");
  command.footer(
      "Examples:\n  tessera help plan\n  tessera help cluster submit\n  tessera help --man | man "
      "-l -\n");
  command.action([options, app = commands.program()]() -> Result<int> {
    if (options->man) return print(man_page(described(*app)));
    // App::help() would print the help of the command that was chosen, which is `help` itself.
    if (options->words.empty()) {
      return print(
          app->get_formatter()->make_help(app, app->get_name(), CLI::AppFormatMode::Normal));
    }
    TESSERA_TRY_VOID(check_command(options->words.front()));
    return print_help(*app, options->words);
  });
}

// The user's defaults that went into a command line.
struct Defaulted {
  std::vector<std::string> arguments;  // the command line with them, without the program's name
  std::string sources;                 // "cluster dgx-h100:4 of ./tessera.toml"; "" for none
};

// Adds the user's defaults for those options of the command that are not given.
Result<Defaulted> with_defaults(const CLI::App& app, std::vector<std::string> arguments) {
  Defaulted out{std::move(arguments), ""};
  const ProgramCommand* command = out.arguments.empty() ? nullptr : find_command(out.arguments[0]);
  if (command == nullptr || !command->has_defaults) return out;
  TESSERA_TRY(const std::vector<Default> defaults, read_defaults());
  const CLI::App* given = app.get_subcommand(out.arguments[0]);
  for (const Default& one : defaults) {
    const std::string option = "--" + one.key;
    const bool is_there = std::ranges::any_of(out.arguments, [&](const std::string& argument) {
      return argument == option || argument.starts_with(option + "=");
    });
    if (is_there || given->get_option_no_throw(option) == nullptr) continue;
    out.arguments.push_back(option + "=" + one.value);
    out.sources +=
        fmt::format("{}{} {} of {}", out.sources.empty() ? "" : ", ", one.key, one.value, one.file);
  }
  return out;
}

// Runs the command that was parsed. An error of wrong input says which defaults went into it.
int run_with(const Action& action, const std::string& sources) {
  if (!sources.empty()) say_first("defaults: " + sources);
  Result<int> code = action();
  if (code) return *code;
  Error error = code.error();
  if (!sources.empty() && error.code == ErrorCode::kInvalidInput)
    error.message += fmt::format(" (with {})", sources);
  return fail(error);
}

Result<std::string> graph_of_archive(const std::string& path, const std::string& keys,
                                     int64_t batch) {
  TESSERA_TRY(const PlanningLibrary* library, planning_library(path));
  return library->archive_graph(path, keys, batch);
}

int parse_and_run(CLI::App& app, const Action& action, std::vector<std::string> arguments) {
  try {
    const auto defaulted = with_defaults(app, std::move(arguments));
    if (!defaulted) return fail(defaulted.error());
    std::vector<std::string> reversed(defaulted->arguments.rbegin(), defaulted->arguments.rend());
    app.parse(reversed);
    return run_with(action, defaulted->sources);
  } catch (const Answered& answered) {
    return answered.code;
  } catch (const CLI::CallForHelp&) {
    return print(app.help());  // help of the command, if one is named
  } catch (const CLI::CallForVersion& version) {
    return print(fmt::format("{}\n", version.what()));
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

}  // namespace

int run(const std::vector<std::string>& arguments, Caller& caller) {
  const Calling calling(caller);
  CLI::App app("predicts, plans and runs the training of large networks on many devices",
               "tessera");
  app.footer(std::string(kFooter));
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.get_formatter()->column_width(26);
  Action action;
  Commands commands(app, action);
  const std::string word = arguments.empty() ? "" : arguments.front();
  if (std::ranges::find(arguments, "--json") != arguments.end()) answer_in_json();
  if (const auto status = check_command(word); !status) return fail(status.error());
  const ProgramCommand* named = find_command(word);
  if (named == nullptr || !named->executes) {
    // Once, because several threads of one process may call commands.
    static std::once_flag registered;
    std::call_once(registered, [] { set_archive_reader(graph_of_archive); });
  }
  if (const auto status = add_commands(commands, word); !status) return fail(status.error());
  if (word.empty()) return print(app.help());
  const std::string command = fmt::format("tessera {}", word);
  const Doing doing("running", command);
  return parse_and_run(app, action, arguments);
}

}  // namespace tessera::cli
