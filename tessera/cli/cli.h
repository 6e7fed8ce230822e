// The command line: parses, calls the library, prints. Each command is one file, <command>.cc, that
// names its options and hands them on; what only the runtime can do lies in with_runtime/, a library
// that is loaded when a command needs it (run_commands.h). The contract (commands, JSON keys, exit
// codes): docs/reference/command-line.md.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "tessera/base/result.h"

namespace tessera::cli {

// The whole program; returns its exit code.
int run(int argc, const char* const* argv);

// A command adds itself to the app; parsing sets `action` to what it does. An action prints its
// answer and returns the exit code, or an Error, which is printed as one line.
using Action = std::function<Result<int>()>;
void add_train(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_accuracy(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_diff(CLI::App& app, Action& action);

// For options that are numbers.
CLI::Validator at_least(double minimum);

// --precision, by the names of RUN.toml.
void add_precision(CLI::App& command, std::string& precision);

}  // namespace tessera::cli
