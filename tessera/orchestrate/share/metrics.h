// Metrics of a run: what `tessera cluster simulate` answers.
#pragma once

#include <vector>

#include "tessera/orchestrate/share/controller.h"

namespace tessera::share {

struct Summary {
  double mean_jct_s = 0, median_jct_s = 0, p90_jct_s = 0, p99_jct_s = 0;  // JCT = end - submission
  double makespan_s = 0;                                                  // the last end
  double mean_execution_s = 0;  // with GPUs, pauses included
  double mean_queueing_s = 0;   // the rest of the JCT
  double switching_gpu_h = 0;   // GPU hours lost in pauses for switching
  double moved_bytes = 0;       // of states of jobs, in switches whose pause is known in bytes
  double gpu_h = 0;             // GPU hours that jobs held
  double utilisation = 0;       // held GPU hours, of all until the last end
  // Finish-time fairness: the JCT over what the job would need alone on its share of the cluster, as
  // large as the mean number of jobs at its time allows. Mean, greatest, and how many have over 1.
  double mean_fairness = 0, worst_fairness = 0;
  size_t unfair = 0;
  size_t missed_deadlines = 0, deadlines = 0;
  double cost_usd = 0;
};

// USD an hour of a GPU, by type of the machines; empty: no prices.
using Prices = std::vector<double>;

Summary summarize(const std::vector<JobSpec>& jobs, const Machines& machines,
                  const Outcome& outcome, BatchRule rule, const Prices& prices);

// Returns the value below which a share of the values lies, between the neighbours linearly.
double quantile(std::vector<double> values, double share);

}  // namespace tessera::share
