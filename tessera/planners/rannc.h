// Implements RaNNC's planner (docs/planners/rannc.md) on Tessera's costs. It cuts any graph into
// stages, each with a number of replicas of its own. Ops inside a replica are not cut.
//
//   1. Atomic components are the units of the folded model.
//   2. They are merged into at most 32 convex blocks of even time.
//   3. For a number of stages, devices of a pipeline and micro-batches, a program over blocks and
//      devices finds the stages of least max(forward) + max(backward). The planner takes the
//      smallest number of stages that fits, on as few nodes as possible; other nodes have copies
//      of the pipeline.
//
//   const PlanAnswer answer = rannc_plan(question).value();
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/planners/published/rannc.h"
#include "tessera/search/plan_search.h"

namespace tessera {

// Answers a question. Errors: those of find_plan; something is fixed that the space does not have.
Result<PlanAnswer> rannc_plan(const PlanQuestion& question);

// The settings for which a plan is searched, in addition to the number of stages.
struct RanncSetting {
  int64_t devices = 1;  // devices of one copy of the pipeline
  int64_t copies = 1;   // number of copies of the pipeline
  int64_t micro_batches = 1;
  int64_t sharded = 0;
  double capacity_bytes = 0;  // of a device; 0: no limit
  friend auto operator<=>(const RanncSetting&, const RanncSetting&) = default;
};

class RanncSpace {
 public:
  // Finds the blocks. `search` outlives the space.
  explicit RanncSpace(PlanSearch& search);

  // Returns the units by block; blocks and units are in the order of the pipeline. Every block is
  // convex.
  const std::vector<std::vector<size_t>>& blocks() const { return blocks_; }
  int64_t hosts() const { return hosts_; }
  int64_t devices_a_host() const { return devices_a_host_; }

  // Returns the times of a stage with the blocks first .. last - 1 and so many replicas in each
  // copy of the pipeline; nothing if it does not fit.
  std::optional<published::RanncStage> stage(const RanncSetting& setting, size_t first, size_t last,
                                             int64_t replicas);
  std::optional<published::RanncPlan> best(const RanncSetting& setting, size_t stages);
  // Returns the plan as a choice, with its estimate.
  std::optional<PlanCandidate> candidate(const RanncSetting& setting,
                                         const published::RanncPlan& plan);

  const std::string& last_refusal() const { return refusal_; }

 private:
  // Returns the prices of units that are not cut, or null if they are refused.
  const UnitPrices* prices(int64_t sequences, const std::string& recompute);
  UnitCost cost(const RanncSetting& setting, const UnitPrice& sum, size_t first, size_t last,
                int64_t replicas) const;
  UnitPrice sum(const UnitPrices& prices, size_t first, size_t last) const;
  void find_blocks();
  void measure_borders();
  void allocate(Choice& choice, const std::vector<int64_t>& replicas) const;
  int64_t sequences(const RanncSetting& setting, int64_t replicas) const;
  std::string recompute(const RanncSetting& setting) const;

  PlanSearch& search_;
  Estimator estimator_;
  int64_t hosts_ = 1, devices_a_host_ = 1;
  std::vector<std::vector<size_t>> blocks_;
  // [first][last]: bytes of a sequence that enter and leave the blocks first .. last - 1
  std::vector<std::vector<double>> crossing_;
  // Cache of stage(), by first block, last block and logarithm of the replicas. Outer value unset:
  // not computed yet; inner value unset: does not fit.
  using Stages = std::vector<std::optional<std::optional<published::RanncStage>>>;
  std::map<RanncSetting, Stages> stages_;
  std::string refusal_;
};

}  // namespace tessera
