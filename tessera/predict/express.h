// Expresses a completed row as the rest of the library takes it: model spec, plan, cluster, style.
// Where the recipes refuse a row, the nearest form that they take is found and named; if there is
// none, the row has a reason and no figures.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/models/model.h"
#include "tessera/plan/plan.h"
#include "tessera/predict/infer.h"

namespace tessera {

struct Expressed {
  std::string model;   // spec of models/model.h
  int64_t batch = 1;   // sequences of a step; with context parallelism of a mixture, pieces of them
  std::string recipe;  // call that gives the plan but for what `plan_text` adds
  std::string plan;    // text of the plan
  std::string cluster;      // "dgx-a100:4"
  int64_t gpus_a_node = 8;  // where it differs from the preset's
  std::string style;        // text of cost/style.h
  CountedMemory memory = CountedMemory::kDevice;
  double uncertainty_factor = 1;  // on what follows from the costs
  // Sequences of the row's step over those of `batch`: not 1 where `batch` has another number of
  // tokens.
  double step_scale = 1;
  std::vector<std::string> reasons;  // what was inferred or replaced
};

Result<Expressed> express(const Run& run);

}  // namespace tessera
