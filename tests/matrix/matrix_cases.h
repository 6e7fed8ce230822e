// The plans of matrix.toml and of examples/plans, with the models that they run on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct MatrixCase {
  std::string group, model, plan;  // the model's short name; a recipe call or a file
  std::string spec;                // the model's text
  int64_t ranks = 1, batch = 0;    // ranks 0: as the plan says
  bool quick = false;
  bool narrow = false;  // also in float32, bfloat16 and float16
};

// Of the repository at `root`. An Error names file and line. Cases in the order of the file; each
// example with the model that its first line names: "# Model: gpt:...".
Result<std::vector<MatrixCase>> load_plans(const std::string& root);

// The text of a case's model, `times` as wide: models of the matrix are tiny, and wide ones have
// products that count beside the starts of kernels and messages that await their receivers.
std::string widened(const std::string& spec, int64_t times);

}  // namespace tessera
