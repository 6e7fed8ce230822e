// Implements RaNNC's three phases on any graph (docs/planners/rannc.md): atomic components of
// tasks, blocks of components, stages of blocks. Costs come from oracles, which the published
// program fills by running each merged graph on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::published {

// ---- Atomic components (section 4) ----
// A task. An atomic component holds one task that depends on the batch and all constant tasks that
// it needs; a constant task that several components need is in each of them.
struct RanncTask {
  std::vector<size_t> reads;  // earlier tasks
  bool constant = false;
};
// Returns the ascending tasks of each component, components in the order of their non-constant
// task.
std::vector<std::vector<size_t>> atomic_components(const std::vector<RanncTask>& tasks);

// ---- Blocks (section 5) ----
// Coarsening merges a component with the successor that gains most, while the merged component
// stays convex, fits and takes no more than the mean plus two standard deviations; compaction then
// merges the cheapest with a neighbour until few enough are left. (The published uncoarsening is
// off by default, and absent here.)
struct RanncEdge {
  size_t from = 0, to = 0;  // components, from < to
  double bytes = 0;
};
struct RanncGraph {
  size_t components = 0;
  std::vector<RanncEdge> edges;
};
struct BlockOptions {
  size_t most = 32;  // blocks
  size_t least = 5;  // coarsening stops here
  double bytes_per_second = 20.0 * (int64_t{1} << 30);
  double parts = 1;  // number of parts of the batch: devices times micro-batches
};
struct BlockOracle {
  std::function<double(const std::vector<size_t>&)> seconds;  // of the merged components
  std::function<bool(const std::vector<size_t>&)> fits;
};
// Returns the ascending components of each block, blocks in topological order.
std::vector<std::vector<size_t>> rannc_blocks(const RanncGraph& graph, const BlockOracle& oracle,
                                              const BlockOptions& options);

// ---- Stages (section 6) ----
// Blocks are cut into `stages` stages on all of `devices` devices; a stage's replicas are a power
// of two. The value of a cut is max(forward + comm) + max(backward + comm) over its stages.
struct RanncStage {
  double forward = 0, backward = 0, comm = 0;
};
struct RanncProblem {
  size_t blocks = 1, stages = 1;
  int64_t devices = 1, most_replicas = 1;
  // Returns the times of blocks first .. last - 1 on so many replicas; none if they do not fit.
  std::function<std::optional<RanncStage>(size_t first, size_t last, int64_t replicas)> stage;
};
struct RanncPlan {
  double value = 0;  // by the formula above, whatever the program compared
  std::vector<size_t> ends;
  std::vector<int64_t> replicas;
  std::vector<RanncStage> stages;
};
// Finds stages by the published method: it keeps one cut for each (stages, blocks, devices), chosen
// by a value that counts earlier stages without their comm.
std::optional<RanncPlan> published_stages(const RanncProblem& problem);
// Finds the optimum with Pareto fronts of (max forward, max backward).
std::optional<RanncPlan> exact_stages(const RanncProblem& problem);

// Returns the seconds of the synchronous schedule, step by step: in step q the stages with q -
// micro_batches < g <= q work.
double synchronous_seconds(const RanncPlan& plan, int64_t micro_batches);

// ---- Batches (section 7) ----
// Returns the sizes by micro-batch and rank: micro-batches as even as possible with the remainder
// first, each cut likewise among the replicas, rotated so that remainders do not always hit rank 0.
std::vector<std::vector<int64_t>> split_batch(int64_t batch, int64_t micro_batches,
                                              int64_t replicas);

}  // namespace tessera::published
