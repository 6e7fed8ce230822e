// The commands that search, predict, draw, import or export, and the modules that only they need.
// They are a library of their own, libtessera_planning.so in the program's folder: `make demo` builds
// and starts without it, and the program loads it when one of its commands is called, when the list
// of all commands is asked for, or for a plan that is to be found (auto_plan.h). It takes all other
// modules from the program, as the runtime library does (run_commands.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/cli/auto_plan.h"
#include "tessera/cli/cli.h"

namespace tessera::cli {

struct LibraryCommand {
  std::string_view name;
  void (*add)(Commands& commands);
};

struct PlanningLibrary {
  std::span<const LibraryCommand> commands;
  Result<std::string> (*plan_by_search)(const AutoQuestion& question);
};

// Loads the library. `command` opens the message of an Error: the library is not there, or it does
// not fit the program.
Result<const PlanningLibrary*> planning_library(const std::string& command);

}  // namespace tessera::cli

// Defined by the library, never by the program.
extern "C" const tessera::cli::PlanningLibrary* tessera_planning_library();
