#include "tessera/cli/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/cli/output.h"
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

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// The first argument, if it is no command.
Status check_command(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> names = command_names(app);
  if (argc < 2) {
    return invalid_input(fmt::format("expected a command: {} (tessera --help)", join(names, ", ")));
  }
  const std::string word = argv[1];
  if (word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end())
    return {};
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

// What CLI11 found wrong, in our words.
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

}  // namespace

void add_precision(CLI::App& command, std::string& precision) {
  command
      .add_option("--precision", precision,
                  "What products and activations are in: float32 (default: or as the plan says), "
                  "bfloat16, float16, float64")
      ->check(CLI::IsMember(std::vector<std::string>(kRunDtypes.begin(), kRunDtypes.end())));
}

CLI::Validator at_least(double minimum) {
  return CLI::Validator(
      [minimum](std::string& text) -> std::string {
        const auto value = parse_double(text);
        if (value && *value >= minimum) return {};
        return fmt::format("expected a number of at least {}, found '{}'", minimum, text);
      },
      "");
}

int run(int argc, const char* const* argv) {
  CLI::App app("Tessera: deep learning models trained under any parallel plan", "tessera");
  app.footer(std::string(kFooter));
  app.require_subcommand(1);
  app.get_formatter()->column_width(26);
  Action action;
  add_train(app, action);
  add_verify(app, action);
  add_inspect(app, action);
  add_plan(app, action);
  add_profile(app, action);
  add_predict(app, action);
  add_accuracy(app, action);
  add_simulate(app, action);
  add_report(app, action);
  add_diff(app, action);
  if (const auto status = check_command(app, argc, argv); !status) return fail(status.error());
  try {
    app.parse(argc, argv);
    return run_action(action);
  } catch (const CLI::CallForHelp&) {
    return print(app.help());  // of the command, if there is one
  } catch (const CLI::ParseError& error) {
    return fail({ErrorCode::kInvalidInput, parse_message(app, error)});
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::kFault, "out of memory"});
  } catch (const std::exception& error) {
    return fail({ErrorCode::kFault, error.what()});
  }
}

}  // namespace tessera::cli
