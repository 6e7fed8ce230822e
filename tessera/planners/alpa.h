// Implements Alpa's planner (docs/planners/alpa.md) on Tessera's costs. It finds pipelines under
// 1F1B whose stages may have unequal meshes and whose units may be cut in different ways:
//
//   1. The row of units is cut into layers of even work, between which few bytes go.
//   2. For each run of layers, each sub-mesh of hosts x devices and each logical mesh of it
//      (replicas by one or two axes), unit_cuts.h chooses what the axes cut in each unit.
//   3. The published program covers layers and devices by stages, with the least
//      sum of the stages' seconds + (micro-batches - 1) * the slowest stage's,
//      where each stage holds the activations of its micro-batches in flight.
//
//   const PlanAnswer answer = alpa_plan(question).value();
#pragma once

#include "tessera/planners/published/alpa.h"
#include "tessera/planners/unit_cuts.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Answers a question. Errors: those of find_plan; something is fixed that the space does not have.
Result<PlanAnswer> alpa_plan(const PlanQuestion& question);

// A run of layers on a sub-mesh, cut in one way.
struct AlpaWay {
  size_t first = 0, last = 0;               // numbers of the first and the last layer
  std::pair<int64_t, int64_t> shape{1, 1};  // number of hosts, and of devices on each host
  int64_t replicas = 1;
  const CutSet* set = nullptr;  // candidates for the devices inside one replica
  CutWeights weights;
  // The candidate for all units; unset: the chain program chooses one for each unit.
  std::optional<size_t> cut;
  int64_t sharded = 0;
  // Seconds of a micro-batch, including 1 / micro-batches of the costs that come once a step.
  double seconds = 0;
  double change_s = 0;  // the part of `seconds` for changes of layout between units
  // Arguments of most_later_stages().
  double resting_bytes = 0, peak_bytes = 0, activation_bytes = 0;
};

// Makes steps 1 to 3 above; ways(), stages() and candidate() do so for one number of micro-batches.
class AlpaSpace {
 public:
  // Finds the layers (step 1) and the shapes of sub-meshes. The lists of `cuts` are set. Both
  // arguments outlive the space.
  AlpaSpace(PlanSearch& search, UnitCuts& cuts);

  // Returns the first unit of each layer.
  const std::vector<size_t>& layers() const { return layers_; }
  const std::vector<std::pair<int64_t, int64_t>>& shapes() const { return shapes_; }
  int64_t devices() const { return hosts_ * devices_a_host_; }

  using Sizes = std::array<int64_t, 2>;  // sizes of the two axes inside a stage: outer, inner
  // Returns the arguments `common` with which ways() is to be called, one after the other. On few
  // devices this is {0, 0} only, so that stages may have different sizes. On many devices it is
  // every possible pair of sizes, so that all stages of a plan have equal sizes.
  std::vector<Sizes> common_sizes() const;
  // Returns the ways without those that another way of the same layers and shape beats in both time
  // and memory. `common`: the sizes of all ways; {0, 0}: any.
  std::vector<AlpaWay> ways(int64_t micro_batches, const std::string& recompute,
                            const Sizes& common = {0, 0});
  // Returns the fastest stages, each as an index into `ways`. Devices hold at most `capacity` bytes
  // (0: no limit). Returns nothing if no plan fits or the fastest takes more than `most_s`.
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
  // Returns whether the share of the work of layers first .. last is near the share of the devices.
  // On few devices always returns true.
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
  std::vector<double> work_;  // by layer: its share of the whole work
  std::vector<std::pair<int64_t, int64_t>> shapes_;
};

}  // namespace tessera
