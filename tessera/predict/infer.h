// Completes a row to a run: every size and degree that a plan needs. Each inferred value is named.
// docs/reference/predict.md lists the rules in their order; the numbers in them are data
// (assumptions.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/predict/architecture.h"
#include "tessera/predict/framework.h"
#include "tessera/predict/machine.h"
#include "tessera/predict/row.h"

namespace tessera {

struct Run {
  Architecture model;
  Framework framework;
  Machine machine;
  int64_t seq = 0;
  int64_t gpus = 1, gpus_a_node = 8;
  int64_t tp = 1, pp = 1, vpp = 1, dp = 1, cp = 1, ep = 1;
  int64_t zero = 0;
  int64_t microbatch = 1;     // sequences of a replica and micro-batch
  int64_t micro_batches = 1;  // of a step
  // As stated; equal to dp * microbatch * micro_batches if that comes to whole micro-batches.
  int64_t global_batch = 1;
  Recompute recompute = Recompute::kNone;
  Arithmetic arithmetic = Arithmetic::kBf16;
  int64_t lora = 0;  // rank of the factors that alone are trained (models/nn.h); 0: all is
  bool lora_mlp = false;
  // Whole experts lie over tensor ranks, too: `ep` replicas with tp ranks each share a block's
  // experts.
  bool experts_over_tp = false;
  std::vector<std::string> reasons;  // what was inferred, and from what
};

// Options of frameworks that are set after the framework is known: ("megatron-core", "dropout",
// "0"); an empty framework means every framework.
struct FrameworkOption {
  std::string framework, key, value;
};

// Returns whether, with tp, seq lies over tp between the split ops.
bool shards_sequence(const Run& run);

// Completes a row. Errors: a missing GPU, number of GPUs or model, degrees that contradict each
// other, a model that has no builder.
Result<Run> infer(const Row& row, const std::vector<FrameworkOption>& options = {});

// The row of a run that was found to need more than its GPUs have, with the next smaller choice of
// those that the row leaves open: half the micro-batch, then more recomputation. `change` names the
// choice. lighter() returns nothing where all is stated or at its least.
struct Lighter {
  Row row;
  std::string change;
};
std::optional<Lighter> lighter(const Row& row, const Run& run);

// Returns whether gradients are kept in 16 bits (else in 32).
bool narrow_gradients(const Run& run);

}  // namespace tessera
