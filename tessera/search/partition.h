// Cuts a row of units into the stages of a pipeline and chooses the units that compute their
// activations again, so that every place of the pipeline fits its memory and the step is short.
//
//   PartitionProblem problem;
//   problem.levels = {{none_s, none_bytes}, {full_s, full_bytes}};   // by level, then by unit
//   problem.resting_bytes = ...;                                     // by unit
//   problem.in_flight = {4, 3, 2, 1};                                // 1f1b on four places
//   problem.micro_batches = 16;
//   if (const auto found = partition(problem)) found->cuts, found->level;
//
// The step is m max_q T(q) + bubble sum_q T(q) / p * (p - 1), with T(q) the time of place q's
// units. Method: W(q, i, j), the least time of units i..j-1 at place q that fits its memory, is
// computed for all ranges; a dynamic program finds, for a bound on the largest T, the cuts of least
// sum; bounds are tried from the least feasible one upwards. Given W, the cuts are optimal. W
// itself is approximate: units are moved to a higher level in the order of seconds lost for a byte
// saved, so a place may recompute one unit more than the best set of units would.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

struct PartitionLevel {
  std::vector<double> time_s;            // by unit: both passes of a micro-batch
  std::vector<double> activation_bytes;  // by unit: of a micro-batch in flight
  double alive_bytes = 0;                // needed once by a place with any unit of this level
};

struct PartitionProblem {
  // The levels of recomputation, from the least on. All have the same units.
  std::vector<PartitionLevel> levels;
  std::vector<double> resting_bytes;  // by unit: parameters, gradients, state
  // By place: micro-batches whose activations the place holds. The numbers never rise along the
  // places.
  std::vector<double> in_flight;
  double capacity_bytes = 0;  // of a device, less what every device needs in any case; 0: no limit
  double micro_batches = 1;
  double bubble = 1;  // share of the plain pipeline's bubble that remains (estimate.h)
};

struct Partition {
  std::vector<size_t> cuts;   // first unit of each place
  std::vector<size_t> level;  // by unit
  double cost_s = 0;          // the formula above
};

// Returns the partition of least cost, or nothing if none fits. Needs at least as many units as
// places.
std::optional<Partition> partition(const PartitionProblem& problem);

}  // namespace tessera
