// Completes a row to a run, which has every size and degree that a plan needs. Run::reasons names
// each value that was inferred. docs/reference/predict.md lists the rules in the order in which
// they apply. The numbers in the rules are data (assumptions.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/models/architecture.h"
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
  int64_t microbatch = 1;     // sequences of one micro-batch of one replica
  int64_t micro_batches = 1;  // micro-batches of a step
  // The batch that the row states. It is equal to dp * microbatch * micro_batches if it can be cut
  // into whole micro-batches.
  int64_t global_batch = 1;
  Recompute recompute = Recompute::kNone;
  Arithmetic arithmetic = Arithmetic::kBf16;
  // Rank of the low-rank factors, if only these are trained (models/nn.h); 0: all is trained.
  int64_t lora = 0;
  bool lora_mlp = false;
  // True: the tensor ranks also hold different whole experts. The experts of a block are then
  // distributed over all tp ranks of `ep` replicas.
  bool experts_over_tp = false;
  std::vector<std::string> reasons;  // the inferred values, and why they were chosen
};

// A value that replaces an option of a framework, for example ("megatron-core", "dropout", "0"). An
// empty framework means every framework.
struct FrameworkOption {
  std::string framework, key, value;
};

// Returns whether the run, if it has tensor parallelism, cuts the sequence over the tensor ranks in
// the ops between the tensor-parallel ones (Megatron's sequence parallelism).
bool shards_sequence(const Run& run);

// Completes a row. Returns an error if the GPU, the number of GPUs or the model is missing, if
// degrees contradict each other, or if the model has no builder.
Result<Run> infer(const Row& row, const std::vector<FrameworkOption>& options = {});

// A changed row for a run that was found to need more memory than its GPUs have. lighter() changes
// a value that the row does not state: it halves the micro-batch, or if that is not possible, it
// takes the next stronger recomputation. `change` names the change. lighter() returns nothing if
// neither is possible.
struct Lighter {
  Row row;
  std::string change;
};
std::optional<Lighter> lighter(const Row& row, const Run& run);

// Returns whether gradients are kept in 16 bits (else in 32).
bool narrow_gradients(const Run& run);

}  // namespace tessera
