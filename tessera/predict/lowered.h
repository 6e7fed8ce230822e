// From expressed rows to the programs that would run: model, plan and what lowering makes of them.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/graph/precision.h"
#include "tessera/program/lower.h"

namespace tessera {

// Lowers one row after the other. The graph that is trained is made once for neighbours that have
// model, batch and precision in common.
class RowLowering {
 public:
  // Errors: those of the model spec, the plan and the lowering.
  Result<std::unique_ptr<Lowering>> lower(const std::string& model, int64_t batch,
                                          const std::string& plan);

 private:
  std::string model_;
  int64_t batch_ = 0;
  Precision precision_;
  std::shared_ptr<const Graph> trained_;  // null: none is kept
};

}  // namespace tessera
