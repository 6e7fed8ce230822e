// The step of a choice by formula, from what its units cost (unit_prices.h): thousands of choices are
// ranked in the time in which one is lowered. The best of them are then lowered and simulated; this
// formula never decides alone.
//
// With F and B the times of a stage's micro-batch, m micro-batches, p places and v chunks
// (docs/strategies/pipelines.md):
//   step = m max(F + B) + (p - 1) mean(F + B) beta + messages + once,  beta = 1 (1f1b, gpipe),
//   1 / v (interleaved), 1 / 3 (zb_h1: the weights' half of the backward pass fills the bubble)
// Replicas add what CollectiveCosts says of their gradients and parameters, less what the backward
// pass hides. Memory of a place: what rests there, divided by the replicas as `sharded` says, the
// activations of the micro-batches in flight (1f1b: p - place), and what is alive inside a block.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

struct Estimate {
  double step_s = 0;
  double memory_bytes = 0;  // of the fullest place
};

// The first unit of each of `stages` stages: of all ways to cut the row of times into so many
// pieces, one with the least largest piece, and of these the one with the least sum of squares.
// Needs at least as many units as stages.
std::vector<size_t> balance_stages(const std::vector<double>& times, size_t stages);

class Estimator {
 public:
  // `units`: of the model, by stand-in (fold.h). All outlive the estimator.
  Estimator(const Cluster& cluster, const Style& style, const std::vector<FoldUnit>& units);
  // axes[0] of the choice are the replicas; the units were priced with its other axes. Sets the
  // choice's cuts. `sequences`: of a micro-batch of one replica.
  Estimate estimate(Choice& choice, const UnitPrices& costs, int64_t sequences);

 private:
  // Sums of what the units of a stage cost.
  std::vector<UnitPrice> stages_of(const Choice& choice, const UnitPrices& costs) const;

  const Cluster& cluster_;
  CollectiveCosts collectives_;
  const std::vector<FoldUnit>& units_;
  std::map<std::pair<const UnitPrices*, int64_t>, std::vector<size_t>>
      cuts_;  // by number of stages
};

}  // namespace tessera
