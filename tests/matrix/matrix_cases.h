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

// Returns the cases of the repository at `root`, in the order of the file; each example has the
// model that its first line names: "# Model: gpt:...". An Error names file and line.
Result<std::vector<MatrixCase>> load_plans(const std::string& root);

// Returns the text of a case's model, `times` as wide. Models of the matrix are tiny; wide ones
// have products that take time beside the starts of kernels, and messages that wait for their
// receivers.
std::string widened(const std::string& spec, int64_t times);

}  // namespace tessera
