// Checks whether a step fits into the memory of its devices and, if not, finds the cheapest change
// of the plan that makes it fit. A step fits if on each device the upper bound of the memory
// (MemoryUse::high, docs/theory/cost-model.md section 6.4) is at most the device's capacity. A
// device without a stated capacity is never too small.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/compile/compile.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

// The rank that exceeds its memory by the most bytes.
struct Shortage {
  int rank = 0;  // a rank of the rank class that lacks the most memory
  int64_t capacity_bytes = 0;
  int64_t missing_bytes = 0;  // upper bound less capacity
  MemoryUse memory;
};
std::optional<Shortage> find_shortage(const Simulation& simulation, const Cluster& cluster);

// The memory that is left on the device that has the least to spare: its capacity less the upper
// bound of what it needs (MemoryUse::high). Below kTightShare of the capacity the room is tight: a
// run may then fail where the machine has a little less than its data sheet says, or fragments more.
inline constexpr double kTightShare = .05;
struct Room {
  int64_t free_bytes = 0;  // negative if the step does not fit
  int64_t capacity_bytes = 0;
  bool is_tight() const {
    return static_cast<double>(free_bytes) < kTightShare * static_cast<double>(capacity_bytes);
  }
};
// Returns nothing if no device has a stated capacity.
std::optional<Room> find_room(const Simulation& simulation, const Cluster& cluster);

// A change of the plan that was tried.
struct Remedy {
  std::vector<std::string> changes;  // "recompute=full", "optimizer state on the host"
  std::string plan;                  // the changed plan: a recipe call, or the text of a plan
  bool is_call = true;
  // Unset if the plan was not played, because it does not fit or cannot be faster than an earlier
  // change that fits.
  std::optional<double> step_time_s;
  // The largest upper bound of a rank. If the plan does not fit, perhaps that of one rank that is
  // enough to know it.
  int64_t need_bytes = 0;
  bool fits = false;
};
struct FitAdvice {
  // Changes whose plans were lowered, in the order in which they were tried.
  std::vector<Remedy> tried;
  // Index in `tried` of the fastest change that fits; of equally fast ones the first.
  std::optional<size_t> best;
  // Number of changes that gave no plan, or a plan that could not be lowered or simulated.
  size_t refused = 0;
  BrokenInvariants broken;  // the refused plans that broke an internal invariant
  // Whether most_evaluations ended the search before all changes were tried.
  bool cut_short = false;
};

inline constexpr size_t kMostEvaluations = 40;
struct FitQuestion {
  std::shared_ptr<const Graph> forward;  // of the model with its batch
  std::string plan;                      // a recipe call or the path of a plan file
  const Cluster* cluster = nullptr;
  SimulateOptions options;
  DType compute = DType::kFloat32;  // the dtype in which the run computes (precision.h)
  OptimizerSpec optimizer = {};
  // The most plans that are tried, refused ones included. The limit is a number of plans and not a
  // time, so that the answer does not depend on the machine on which it is computed.
  size_t most_evaluations = kMostEvaluations;
  Compiler* compiler = nullptr;        // which has compiled the plan already; null: none has
  std::optional<int> tight_rank = {};  // the rank that lacks the most memory, if it is known
};
// Tries changes of the plan one by one. If no single change is enough, keeps the change that
// saves the most memory and tries all others in addition to it, for up to four turns. Changes
// that usually cost little time are tried first. The order is: norms and activations
// recomputed, selective recomputation, optimizer state and gradients sharded over the replicas,
// the sequence sharded, smaller micro-batches, full recomputation, parameters sharded, still
// smaller micro-batches, more tensor, pipeline or context parallelism instead of replicas, more
// devices if the cluster has them, optimizer state on the host. A change that makes no new
// plan, because the plan has the change already or an earlier change gave the same plan, does
// not count as an evaluation.
//
// A plan is played only if it fits and if its busiest rank is done before the fastest step so far
// ends. To see that a plan does not fit, one rank is often enough: the one that lacked the most
// memory before. Evaluations do not compute the critical path. The best plan is simulated once more
// to get it. Equal questions have equal answers.
Result<FitAdvice> find_remedies(const FitQuestion& question);

// Returns the bytes that are live at the peak, summed for each kind of buffer ("activation"), the
// largest sum first.
std::vector<std::pair<std::string, int64_t>> live_by_kind(const MemoryUse& memory);

// Returns several lines, "does not fit: rank 3 needs up to 93.1 GB of 80.0 GB, 13.1 GB (...) too
// much ...", with the largest buffers at the peak and the best remedy.
std::string fit_text(const Shortage& shortage, const FitAdvice& advice, double step_time_s);

}  // namespace tessera
