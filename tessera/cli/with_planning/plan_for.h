// tessera plan MODEL --for FRAMEWORK: finds a plan that a framework runs, and prints it as the
// framework's launch text.
#pragma once

#include <string>
#include <vector>

#include "tessera/cli/cli.h"
#include "tessera/cli/with_planning/pricing.h"
#include "tessera/export/target.h"
#include "tessera/search/question/question.h"

namespace tessera::cli {

struct PlanForRequest {
  const ExportTarget* target = nullptr;
  std::string cluster;               // as the user named it
  const Pricing* pricing = nullptr;  // with what plans are priced
  std::string out;                   // the file for the launch text; empty: the terminal
  std::vector<std::string> assumed;  // what was not said and is assumed, a sentence each
  bool json = false, explain = false;
};

// Returns the names of the frameworks, the values of --for.
std::vector<std::string> plan_targets();
// Searches and prints. `question` has the style, the batch and the memory limit.
Result<int> plan_for(const PlanQuestion& question, const PlanForRequest& request);

}  // namespace tessera::cli
