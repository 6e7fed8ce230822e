// Expresses a completed row (infer.h) as the inputs of the rest of the library: model spec, plan,
// cluster and style. If no recipe supports a row as it is, the row is changed to the nearest form
// that a recipe supports, and `reasons` names the change. If there is no such form, express()
// returns an error.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/models/model.h"
#include "tessera/plan/plan.h"
#include "tessera/predict/infer.h"

namespace tessera {

struct Expressed {
  std::string model;  // spec of models/model.h
  // Sequences of a step; for mixtures and hybrids with context parallelism, pieces of sequences.
  int64_t batch = 1;
  std::string recipe;       // recipe call that gives `plan` except for details that express() adds
  std::string plan;         // text of the complete plan
  std::string cluster;      // "dgx-a100:4"
  int64_t gpus_a_node = 8;  // used if it differs from the preset's number
  std::string changes;      // changes of the cluster, as apply_what_if() takes them; "": none
  std::string style;        // text of a style (cost/style.h)
  CountedMemory memory = CountedMemory::kDevice;
  double uncertainty_factor = 1;  // factor on the uncertainty that follows from the costs
  // The row's sequences of a step / `batch`. Not 1 if whole micro-batches make another number of
  // sequences than the row states.
  double step_scale = 1;
  std::vector<std::string> reasons;  // values that were inferred or replaced
};

Result<Expressed> express(const Run& run);

}  // namespace tessera
