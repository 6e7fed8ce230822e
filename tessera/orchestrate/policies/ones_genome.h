// The operators of ONES on schedules. A schedule is an array with a gene for each GPU: the number of a
// job, or kFree. Neighbours in the array share a node. All randomness comes from the caller.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tessera/orchestrate/share/random.h"

namespace tessera::share::ones {

inline constexpr int kFree = -1;
using Genome = std::vector<int>;
using Counts = std::map<int, int>;  // GPUs by job

// Holds what the operators need to know of a job.
struct JobFacts {
  int allowed = 0;           // A_j: GPUs that it may have now
  int limit = 1;             // R_j: GPUs that the limits allow
  bool is_new = false;       // before the end of its warm-up
  bool is_executed = false;  // after its warm-up
  bool has_prediction = false;
  double left = 0;                        // W_j: samples that are left, as predicted
  std::function<double(int)> throughput;  // X_j(n)
};
using Facts = std::map<int, JobFacts>;  // of the active jobs; new ones in order of submission

Counts counts_of(const Genome& genome);
// Clears genes of jobs that are not active, and those beyond the allowed size of their job.
Genome refresh(const Genome& genome, const Facts& facts);
// Swaps each gene with probability `chance`, except that a child gets no more genes of a job than it
// is allowed. `draw` gives numbers in [0, 1), one for each gene in order.
std::pair<Genome, Genome> crossover(const Genome& a, const Genome& b, const Facts& facts,
                                    double chance, const std::function<double()>& draw);
// Removes each executed job with probability `rate`.
Genome mutate(const Genome& genome, const Facts& facts, double rate,
              const std::function<double()>& draw);
// Fills free GPUs: new jobs first, then executed ones up to their allowed size, then up to their
// limit, the shortest first.
Counts pad(const Genome& genome, const Facts& facts);
// Places blocks of GPUs near the deployed schedule, so that few of its GPUs change hands.
Genome reorder(const Counts& counts, const Genome& deployed);
// Returns the sum of GPUs times remaining time over the jobs with a prediction; lower is better.
double score(const Genome& genome, const Facts& facts);
// Returns the size of the greatest job after its scaling down: `run_s` is its run time, `median_s` that
// of all started jobs.
int scaled_down(int size, double run_s, double median_s);
// Returns throughput at n GPUs from seen points, with (0, 0), linearly between and beyond them.
double interpolated(const std::map<int, double>& seen, int gpus);

}  // namespace tessera::share::ones
