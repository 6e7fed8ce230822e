// Implements Alpa's planner (docs/planners/alpa.md) on Tessera's costs: layers of units,
// sub-meshes, splits of each unit inside a stage, stages of unequal meshes under 1F1B.
//
//   1. The row of units is cut into layers that receive few bytes and have even work.
//   2. For each run of layers, each sub-mesh of hosts x devices and each logical mesh of it
//      (replicas by one or two axes), unit_cuts.h chooses what the axes cut in each unit.
//   3. The published program covers layers and devices by stages, with the least
//      sum of the stages' seconds + (micro-batches - 1) * the slowest stage's,
//      where each stage holds the activations of its micro-batches in flight.
//
//   const PlanAnswer answer = alpa_plan(question).value();
#pragma once

#include "tessera/search/published/alpa.h"
#include "tessera/search/question.h"
#include "tessera/search/unit_cuts.h"

namespace tessera {

// Answers a question. Errors: those of find_plan; something is fixed that the space does not have.
Result<PlanAnswer> alpa_plan(const PlanQuestion& question);

// A run of layers on a sub-mesh, cut in one way.
struct AlpaWay {
  size_t first = 0, last = 0;               // layers, both included
  std::pair<int64_t, int64_t> shape{1, 1};  // hosts, devices on each
  int64_t replicas = 1;
  const CutSet* set = nullptr;  // of the sub-mesh's devices inside a replica
  CutWeights weights;
  std::optional<size_t> cut;  // the cut of all units; unset: each unit has its own
  int64_t sharded = 0;
  // Seconds of a micro-batch, with its share of the costs that come once a step.
  double seconds = 0;
  double change_s = 0;  // part of these: changes of layout between units
  double resting_bytes = 0, peak_bytes = 0, activation_bytes = 0;  // for most_later_stages
};

// Steps 1 to 3 for one number of micro-batches.
class AlpaSpace {
 public:
  // Prepares steps 1 to 3. `cuts` has its lists. Both outlive the space.
  AlpaSpace(PlanSearch& search, UnitCuts& cuts);

  // Returns the first unit of each layer.
  const std::vector<size_t>& layers() const { return layers_; }
  const std::vector<std::pair<int64_t, int64_t>>& shapes() const { return shapes_; }
  int64_t devices() const { return hosts_ * devices_a_host_; }

  using Sizes = std::array<int64_t, 2>;  // of the axes inside a stage: outer, inner
  // Returns the sizes that all stages of a plan have: on many devices each in turn; on few devices
  // {0, 0}, for any.
  std::vector<Sizes> common_sizes() const;
  // Returns the ways that are not worse in time and in memory than another way of the same layers
  // and shape.
  std::vector<AlpaWay> ways(int64_t micro_batches, const std::string& recompute,
                            const Sizes& common = {0, 0});
  // Returns the stages, by number of way; devices hold at most `capacity` bytes (0: any number).
  // Only plans that take less than `most_s` are sought.
  std::optional<published::StagesPlan> stages(const std::vector<AlpaWay>& ways,
                                              int64_t micro_batches, double capacity,
                                              double most_s) const;
  // Returns the plan as a choice, with its estimate; nothing if the sub-meshes cannot be placed.
  std::optional<PlanCandidate> candidate(const std::vector<AlpaWay>& ways,
                                         const published::StagesPlan& plan, int64_t micro_batches,
                                         const std::string& recompute);

 private:
  struct Logical {
    int64_t replicas = 1;
    Sizes sizes{1, 1};
  };
  void find_layers();
  void find_shapes();
  std::vector<Logical> logical_meshes(int64_t devices) const;
  // Returns whether the run's share of the work is near its share of the devices; on few devices
  // always.
  bool is_balanced(size_t first, size_t last, int64_t devices) const;
  void add_ways(const std::pair<int64_t, int64_t>& shape, const Logical& logical,
                int64_t micro_batches, const CutSet& set, std::vector<AlpaWay>& out) const;
  void add_range(AlpaWay way, const UnitRange& range, int64_t micro_batches,
                 std::vector<AlpaWay>& out) const;
  size_t end_of_layer(size_t layer) const;
  int64_t micro_batch(int64_t micro_batches) const;
  void place(PlanCandidate& out, const std::vector<const AlpaWay*>& stages) const;

  PlanSearch& search_;
  UnitCuts& cuts_;
  Estimator estimator_;
  int64_t hosts_ = 1, devices_a_host_ = 1;
  std::vector<size_t> layers_;
  std::vector<double> work_;  // by layer: share of the whole
  std::vector<std::pair<int64_t, int64_t>> shapes_;
};

}  // namespace tessera
