// Finds TeraPipe's slices of a sequence together with slices of the batch
// (docs/strategies/terapipe.md sections 3 and 4). If all stages are equal, a step takes
//   repeats * sum of the slices' seconds + (stages - 1) * the slowest slice's.
// The published program tries bounds on the slowest slice, skips those within an epsilon of the
// bound before, and solves a dynamic program over positions for each. Here one dynamic program over
// positions keeps the Pareto fronts of (slowest, sum), so no bound is skipped. A second dynamic
// program cuts the batch.
//
//   SliceProblem problem{8, 4, 1, [](int64_t, int64_t slice, int64_t context) { return ...; }};
//   best_slices(problem).parts[0].slices;      // {2, 1, 1, 1, 1, 1, 1}
//
// Work: batch * positions^2 * size of the fronts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::published {

struct SliceProblem {
  int64_t positions = 1;  // length of the sequence, in units of the shortest slice
  int64_t stages = 1;
  int64_t batch = 1;  // samples
  // Returns the seconds of a stage for `slice` units after `context` units, of `samples` samples.
  std::function<double(int64_t samples, int64_t slice, int64_t context)> seconds;
  // Number of batches that go through the stages one after the other, with equal slices.
  int64_t repeats = 1;
};
struct SlicePlan {
  double seconds = 0, slowest = 0, sum = 0;
  struct Part {
    int64_t samples = 1;
    std::vector<int64_t> slices;
  };
  std::vector<Part> parts;  // parts of the batch, each with its own slices of the sequence
};
// Returns the fastest slices; among equally fast ones those with the fastest slowest slice.
SlicePlan best_slices(const SliceProblem& problem);

// Returns the seconds of a step for given slices of the whole batch.
double slices_seconds(const SliceProblem& problem, const std::vector<int64_t>& slices);

}  // namespace tessera::published
