// `--plan auto`: a command that takes a plan finds the plan itself first.
#pragma once

#include <cstdint>
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
  const Cluster* cluster = nullptr;  // null: "local" with `ranks` devices, one a core if that is 0
  Style style = {};
  int64_t ranks = 0;  // the number of ranks that the plan must use; 0: any
  OptimizerSpec optimizer = {};
};
// Returns the question's plan as it is, or, where it is "auto", the text of the plan that the
// planner finds, whose first line says "auto". Errors: no batch is given; no plan fits.
Result<std::string> find_auto(const AutoQuestion& question);

}  // namespace tessera::cli
