// `--plan auto`: a command that takes a plan first finds the plan itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/result.h"
#include "tessera/cluster/cluster.h"
#include "tessera/cost/style.h"
#include "tessera/graph/builder.h"

namespace tessera::cli {

struct AutoQuestion {
  std::string plan, model;
  int64_t batch = 0;
  std::string precision = "float32";
  // Null: the cluster "local" with `ranks` devices; if `ranks` is 0, with one device for each core.
  const Cluster* cluster = nullptr;
  std::optional<Style> style = Style();  // none: that which commands take for the cluster
  int64_t ranks = 0;                     // the number of ranks that the plan must use; 0: any
  OptimizerSpec optimizer = {};
};
// Returns the question's plan unchanged, unless it is "auto". For "auto", asks the planner and
// returns the text of the plan that it finds; the first line of that text says "auto". Errors: no
// batch is given; no plan fits.
Result<std::string> find_auto(const AutoQuestion& question);

}  // namespace tessera::cli
