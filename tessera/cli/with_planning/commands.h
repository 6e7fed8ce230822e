// The functions that the table of the planning library has (planning_library.h). Each function
// add_... adds one command, as those of cli.h do.
#pragma once

#include "tessera/cli/libraries/planning_library.h"

namespace tessera::cli {

void add_plan(Commands& commands);
void add_predict(Commands& commands);
void add_accuracy(Commands& commands);
void add_simulate(Commands& commands);
void add_report(Commands& commands);
void add_reproduce(Commands& commands);
void add_shard(Commands& commands);
void add_cluster(Commands& commands);
void add_export(Commands& commands);
void add_import(Commands& commands);
void add_order(Commands& commands);
void add_check(Commands& commands);

// Searches for a plan and returns its text. find_auto (auto_plan.h) calls it if the question's plan
// is "auto".
Result<std::string> plan_by_search(const AutoQuestion& question);

}  // namespace tessera::cli
