// `--plan auto`: commands that take a plan find one first.
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
  int64_t ranks = 0;  // the plan must use so many; 0: as it likes
  OptimizerSpec optimizer = {};
};
// The question's plan as it is; of "auto" the text of the plan that the planner finds, whose first
// line says so. Errors: no batch, nothing fits.
Result<std::string> find_auto(const AutoQuestion& question);

}  // namespace tessera::cli
