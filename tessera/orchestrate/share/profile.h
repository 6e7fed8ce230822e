// The profile of a job is what was measured while it ran: the mean step time for each number of
// nodes, GPUs and samples that it has been run with, and the noise of its gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::share {

struct ProfileRow {
  int nodes = 1, gpus = 1;
  int64_t local = 1;              // samples a GPU and pass
  double step_s = 0, sync_s = 0;  // a step without extra passes, and the synchronisation in it
};

// Seconds of a step by nodes, GPUs and samples, as a formula: T_grad = compute + compute_slope * m;
// T_net = link + slope * max(K - 2, 0), with the constants of links inside a node or between nodes, 0
// on one GPU; step = (T_grad^overlap + T_net^overlap)^(1/overlap).
struct StepFit {
  double compute = 0.1, compute_slope = 0.01;
  double between = 0.1, between_slope = 0.01;  // links between nodes
  double inside = 0.1, inside_slope = 0.01;    // links inside a node
  double overlap = 1.001;                      // from 1 (none) to 10

  double pass_s(double local) const { return compute + compute_slope * local; }
  double step_s(int nodes, int gpus, double local) const;
};
// Fits the formula to the rows, beginning at `start`: the least sum of the two root mean square
// errors of the logarithms of pass and step, with small weights that prefer an overlap of 1 and small
// slopes. Terms that no row has shown are held: network terms at 0 until seen, links between nodes not
// better than those inside.
StepFit fit_steps(const std::vector<ProfileRow>& rows, const StepFit& start);

struct Profile {
  std::vector<ProfileRow> rows;
  StepFit fit;  // of the first `fitted` rows
  size_t fitted = 0;
  double gradient_square = 0, gradient_variance = 0;  // the values last seen
  int most_gpus = 0;                                  // the most that it has run on

  bool empty() const { return rows.empty(); }
  // Adds a row unless there is one for the same nodes, GPUs and samples.
  void add(const ProfileRow& row);
  // Fits the formula to the rows, if there are new ones.
  void refit();
};

}  // namespace tessera::share
