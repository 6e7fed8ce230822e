// Checks whether a step fits into the memory of its devices and, if not, finds the cheapest change
// of the plan that makes it fit. A step fits if no device needs more than its capacity, where the
// need is the upper bound of its memory (MemoryUse::high, docs/theory/cost-model.md section 6.4). A
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
  int rank = 0;  // a representative
  int64_t capacity_bytes = 0;
  int64_t missing_bytes = 0;  // upper bound less capacity
  MemoryUse memory;
};
std::optional<Shortage> find_shortage(const Simulation& simulation, const Cluster& cluster);

// A change of the plan that was tried.
struct Remedy {
  std::vector<std::string> changes;  // "recompute=full", "optimizer state on the host"
  std::string plan;                  // what to write: a recipe call, or the text of a plan
  bool is_call = true;
  double step_time_s = 0;
  int64_t need_bytes = 0;  // the largest upper bound of a rank
  bool fits = false;
};
struct FitAdvice {
  std::vector<Remedy> tried;   // lowered and played, in the order in which they were tried
  std::optional<size_t> best;  // index of the fastest one that fits; of equal ones the first
  // Changes that gave no plan, or a plan that could not be lowered or played.
  size_t refused = 0;
  BrokenInvariants broken;  // of the refused: plans that broke an internal invariant
  bool cut_short = false;   // most_evaluations were made before all changes were tried
};

inline constexpr size_t kMostEvaluations = 40;
struct FitQuestion {
  std::shared_ptr<const Graph> forward;  // of the model with its batch
  std::string plan;                      // a recipe call or the path of a plan file
  const Cluster* cluster = nullptr;
  SimulateOptions options;
  DType compute = DType::kFloat32;  // of the run (precision.h)
  OptimizerSpec optimizer = {};
  // The most plans that are lowered and played, refused ones included. The limit is a number and
  // not a time, so that the answer does not depend on the machine that gives it.
  size_t most_evaluations = kMostEvaluations;
};
// Tries changes one by one and, while none is enough, on top of the change that saves the most.
// They come in the order of what they usually cost: norms and activations recomputed, selective
// recomputation, optimizer state and gradients sharded over the replicas, the sequence sharded,
// smaller micro-batches, full recomputation, parameters sharded, still smaller micro-batches, more
// tensor, pipeline or context parallelism instead of replicas, more devices if the cluster has
// them, optimizer state on the host. A change that makes no new plan (the plan has it already, or
// an earlier change gave the same plan) is not counted as an evaluation.
//
// Evaluations make no critical path; the best is played once more with it. Equal questions have
// equal answers.
Result<FitAdvice> find_remedies(const FitQuestion& question);

// Returns the bytes live at the peak by their kind ("activation"), largest first.
std::vector<std::pair<std::string, int64_t>> live_by_kind(const MemoryUse& memory);

// Returns several lines, "does not fit: rank 3 needs up to 93.1 GB of 80.0 GB, 13.1 GB (...) too
// much ...", with what is largest at the peak and the best remedy.
std::string fit_text(const Shortage& shortage, const FitAdvice& advice, double step_time_s);

}  // namespace tessera
