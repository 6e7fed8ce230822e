// The machine of a row: its GPU and GPUs a node as a preset of the cluster module.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/result.h"
#include "tessera/predict/row.h"

namespace tessera {

struct Machine {
  std::string preset;        // "dgx-a100"; the cluster's text is "dgx-a100:<nodes>"
  int64_t gpus_a_node = 8;   // of the preset
  int64_t memory_bytes = 0;  // of a GPU: to judge what fits before a plan exists
  bool bfloat16 = true, fp8 = false, fp4 = false;  // arithmetic that the GPU has
};

// `reason` gets what was not stated or is replaced by the nearest preset. Errors: no GPU, or one
// that is not known.
Result<Machine> machine_of(const Row& row, std::string& reason);

}  // namespace tessera
