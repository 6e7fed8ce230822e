// The combination matrix: matrix.toml's cases, each run on threads and compared with the serial
// run.
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
};

// An Error names file and line. Cases in the order of the file.
Result<std::vector<MatrixCase>> load_matrix(const std::string& path);

// The plans of a folder, each verified with the model that its first line names: "# Model:
// gpt:...".
Result<std::vector<MatrixCase>> load_examples(const std::string& folder, int64_t batch);

// Registers a test for each case, quick ones only if so asked. With TESSERA_WRITE_MATRIX set and
// all cases run, the results are written to docs/matrix.md.
void register_matrix(bool only_quick);

}  // namespace tessera
