// The planner opfence: OP-Fence (published/opfence.h) on Tessera's costs, for clusters whose links
// differ by orders of magnitude (docs/strategies/decentralised.md).
//
//   1. The chain: units of the folded model, neighbours joined to at most kMostFenceOps ops, with
//      their seconds on each kind of device, what rests and lives on a device, and the bytes of the
//      tensors that cross each border, per micro-batch.
//   2. The machine: memory of the devices, latency and rate by pair (device_links.h).
//   3. For each number of micro-batches, each recomputation and each schedule the best devices, order
//      and cuts: exactly where that takes few steps (exact_fence_steps()), else by op_fence().
//   4. The programs decide. With PlanQuestion::allows_lossy plans with `compress` entries are
//      candidates, too: for each border Top-K with the k of equation (2), but no more than hides
//      behind the slowest device, and nothing where k <= phi. Gradients have error feedback.
//
//   const PlanAnswer answer = find_by_opfence(question).value();
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/planners/device_links.h"
#include "tessera/planners/published/opfence.h"
#include "tessera/search/plan_search.h"

namespace tessera {

// Answers a question. Errors: those of find_plan; something is fixed that the space does not have;
// more devices than kMostLinkedDevices.
Result<PlanAnswer> find_by_opfence(const PlanQuestion& question);

inline constexpr size_t kMostFenceOps = 48;

struct FenceSetting {
  int64_t micro_batches = 1;
  std::string recompute = "none", schedule = "1f1b";
};

// The chain and the machine of a question.
class FenceSpace {
 public:
  // `search` outlives the space.
  explicit FenceSpace(PlanSearch& search);

  // Returns the problem of a setting; nothing if the units cannot be priced.
  std::optional<published::FenceProblem> problem(const FenceSetting& setting);
  // Returns the plan as a choice, with its estimate.
  PlanCandidate candidate(const FenceSetting& setting, const published::FencePlan& plan);
  // Returns the `compress` entries of a plan, a line each, for the ratios of its borders; "" if all
  // messages are dense.
  std::string compress_entries(const published::FencePlan& plan) const;

  // Returns the first unit of each op of the chain.
  const std::vector<size_t>& firsts() const { return firsts_; }
  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Crossing {
    size_t from = 0, to = 0;  // ops of the chain: the one that makes it, and the last that reads it
    double bytes = 0;         // of a sequence
    TensorId tensor;
  };
  const UnitPrices* prices(const FenceSetting& setting, size_t kind);
  size_t kind_of(size_t device) const {
    return estimator_.kinds().of_device(static_cast<int64_t>(device));
  }
  int64_t sequences(const FenceSetting& setting) const;

  PlanSearch& search_;
  Estimator estimator_;
  int64_t devices_;
  DeviceLinks links_;
  std::vector<size_t> firsts_;
  std::vector<Crossing> crossings_;
  std::string refusal_;
};

}  // namespace tessera
