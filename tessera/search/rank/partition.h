// Cuts a row of units into the stages of a pipeline, and chooses a level of recomputation for each
// unit, so that every place of the pipeline fits its memory and the step is short.
//
//   PartitionProblem problem;
//   problem.levels = {{none_s, none_bytes}, {full_s, full_bytes}};   // by level, then by unit
//   problem.resting_bytes = ...;                                     // by unit
//   problem.in_flight = {4, 3, 2, 1};                                // 1f1b on four places
//   problem.micro_batches = 16;
//   if (const auto found = partition(problem)) found->cuts, found->level;
//
// The step is m max_q T(q) + bubble sum_q T(q) / p * (p - 1), with T(q) the time of place q's
// units. Method: W(q, i, j), the least time of units i..j-1 at place q with which they fit its
// memory, is computed for all ranges. For a given bound on the largest T, a dynamic program finds
// the cuts with the least sum of T. Several bounds are tried, from the least feasible one upwards.
// Given W, the cuts are optimal. W itself is approximate, because units are moved to a higher
// level in the order of seconds lost for each byte saved. So a place may recompute one unit more
// than necessary.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

struct PartitionLevel {
  std::vector<double> time_s;            // by unit: seconds of both passes of a micro-batch
  std::vector<double> activation_bytes;  // by unit: of a micro-batch in flight
  double alive_bytes = 0;  // bytes that a place needs once if any of its units has this level
};

struct PartitionProblem {
  // The levels of recomputation, beginning with the least. All levels have the same units.
  std::vector<PartitionLevel> levels;
  std::vector<double> resting_bytes;  // by unit: parameters, gradients, state
  // By place: number of micro-batches whose activations the place holds. A later place never holds
  // more than an earlier one.
  std::vector<double> in_flight;
  // Bytes of a device for units, without what every device needs in any case; 0: no limit.
  double capacity_bytes = 0;
  double micro_batches = 1;
  double bubble = 1;  // share of the plain pipeline's bubble that remains (estimate.h)
};

struct Partition {
  std::vector<size_t> cuts;   // first unit of each place
  std::vector<size_t> level;  // the level of each unit
  double cost_s = 0;          // the step's seconds by the formula above
};

// Returns the partition of least cost, or nothing if none fits. Needs at least as many units as
// places.
std::optional<Partition> partition(const PartitionProblem& problem);

}  // namespace tessera
