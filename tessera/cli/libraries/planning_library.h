// The commands that search, predict, draw, import or export, and the modules that only these
// commands need, are in a library of their own, libtessera_planning.so in the program's folder. So
// `make demo` can build and start the program without them. The program loads the library when one
// of its commands is called, when all commands are listed, or when a plan must be found
// (auto_plan.h). The library uses the program's copies of all other modules, as the runtime library
// does (run_commands.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/auto_plan.h"
#include "tessera/state/conversion.h"

namespace tessera::cli {

struct LibraryCommand {
  std::string_view name;
  void (*add)(Commands& commands);
};

struct PlanningLibrary {
  std::span<const LibraryCommand> commands;
  Result<std::string> (*plan_by_search)(const AutoQuestion& question);
  Result<std::string> (*archive_graph)(const std::string& path, const std::string& keys,
                                       int64_t batch);  // import/pt2.h
  Result<ConvertReport> (*convert_checkpoint)(const ConvertRequest& request);
};

// Loads the library. Errors, whose messages begin with `command`: the library is missing or is of
// another build than the program.
Result<const PlanningLibrary*> planning_library(const std::string& command);

}  // namespace tessera::cli

// Defined only in the library. Weak, so that it is null in a program without it.
extern "C" [[gnu::weak]] const tessera::cli::PlanningLibrary* tessera_planning_library();
