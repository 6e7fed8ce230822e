// Implements RaNNC's three phases on any graph (docs/planners/rannc.md): atomic components of
// tasks, blocks of components, stages of blocks. Costs come from functions that the caller gives
// (oracles). The published program instead runs each merged graph on a device.
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

// ---- Blocks (section 5) ---- Coarsening merges a component with the successor with which it
// gains most, if the merged component is convex, fits and takes at most the mean time of
// components plus two standard deviations. Compaction then merges the fastest component with a
// neighbour until at most BlockOptions::most are left. (The published uncoarsening is off by
// default, and absent here.)
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
  size_t least = 5;  // coarsening stops at so many components
  double bytes_per_second = 20.0 * (int64_t{1} << 30);
  double parts = 1;  // number of parts into which the batch is cut: devices times micro-batches
};
struct BlockOracle {
  std::function<double(const std::vector<size_t>&)> seconds;  // seconds of the merged components
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
  double value = 0;  // the value by the formula above, even if the method compared other values
  std::vector<size_t> ends;
  std::vector<int64_t> replicas;
  std::vector<RanncStage> stages;
};
// Finds stages by the published method. It keeps one cut for each (stages, blocks, devices),
// and compares cuts by a value that counts earlier stages without their comm, so it may miss
// the optimum.
std::optional<RanncPlan> published_stages(const RanncProblem& problem);
// Finds the optimum with Pareto fronts of (max forward, max backward).
std::optional<RanncPlan> exact_stages(const RanncProblem& problem);

// Returns the seconds of the synchronous schedule. In its step q the stages g with q -
// micro_batches < g <= q are at work, and the step takes as long as the slowest of them.
double synchronous_seconds(const RanncPlan& plan, int64_t micro_batches);

// ---- Batches (section 7) ---- Returns the number of samples by micro-batch and rank.
// Micro-batches are as even as possible, the larger ones first. Each is cut as evenly among the
// replicas, in an order that is rotated from micro-batch to micro-batch, so that rank 0 does not
// always get the larger pieces.
std::vector<std::vector<int64_t>> split_batch(int64_t batch, int64_t micro_batches,
                                              int64_t replicas);

}  // namespace tessera::published
