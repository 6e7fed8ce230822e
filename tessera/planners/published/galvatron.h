// Implements Galvatron's planner for 8 devices, version 1: decision tree, published cost model and
// search (docs/planners/galvatron.md). Sizes are in MB of 2^20 bytes, as in the publication.
//
// The search for the layers of one stage is best_chain (layer_chain.h), which works on any tables
// of costs. divide_by_memory() cuts any chain into stages.
//
//   const GalvatronModel model = *galvatron_model("BERT-Huge-32");
//   const auto costs = layer_cost(model, model.layers[0], rtx_titan_links(), strategies_of("full")[0], 8);
//   const GalvatronSearch search{model, rtx_titan_links(), strategies_of("full"), 8192};
//   const std::optional<GalvatronPlan> plan = best_plan(search, 8);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::published {

inline constexpr int64_t kGalvatronDevices = 8;

// Which ranks of a stage are neighbours: tensor-parallel or data-parallel ones. kNone if only one
// of the two degrees is above 1.
enum class Neighbours : uint8_t { kNone, kTensor, kData };

// One leaf of the decision tree (section 4), written P-T-D: "1-2*-4f" has no stages, 2
// tensor-parallel neighbours (*), and 4 replicas that shard what they hold (f).
struct GalvatronStrategy {
  int64_t stages = 1, tensor = 1, data = 1;
  bool sharded = false;
  Neighbours neighbours = Neighbours::kNone;
  friend bool operator==(const GalvatronStrategy&, const GalvatronStrategy&) = default;
};
std::string to_string(const GalvatronStrategy& strategy);

// Returns the leaves of the tree in the order of stages, then of tensor degree; among these, leaves
// with data-parallel neighbours are last, and among these sharded ones. `space`: dp, sdp, tp, pp,
// dp+tp, dp+pp or full. Returns none for another name.
std::vector<GalvatronStrategy> strategies_of(std::string_view space);
std::vector<std::string> galvatron_spaces();

// Counts the leaves of the tree for any power of two of devices: ordered lists of distinct
// dimensions (data, sharded data, tensor) with degrees of at least 2, for each number of stages.
// `mixed` allows data and sharded data in one layer, `checkpoint` doubles each leaf.
int64_t count_strategies(int64_t devices, bool mixed, bool checkpoint);

// The constants of a layer type (section 6): parameters in float32, forward time of a sample on one
// device, activations of a sample by tensor degree.
struct GalvatronLayer {
  int64_t count = 1;
  double parameters_mb = 0, forward_ms = 0;
  std::map<int64_t, double> activation_mb;
  int64_t sequence = 0, hidden = 0;
  bool cross_attention = false;  // 6 all-reduces a layer instead of 4
};
// The artifact's rules for the number of micro-batches, which are set by hand for each family
// of models.
enum class MicroBatchRule : uint8_t { kBert, kVit, kT5, kSwin };
struct GalvatronModel {
  std::vector<GalvatronLayer> layers;  // runs of equal layers, in the order of the chain
  double other_states_mb = 0, other_activation_mb = 0;  // embedding and head
  double overhead_ms = 0;
  MicroBatchRule rule = MicroBatchRule::kBert;
  // The number of micro-batches, if it does not follow from the rule.
  std::optional<double> micro_batches;
};
// Returns "BERT-Huge-32", "ViT-Huge-48", "T5-Large-48", "Swin-Huge-32", ...; none for another name.
std::optional<GalvatronModel> galvatron_model(std::string_view name);
std::vector<std::string> galvatron_models();

// The milliseconds for each MB of an all-reduce (section 5). GalvatronLinks has them by number
// of stages.
struct GroupLinks {
  double whole = 0;  // for groups of all devices of a stage
  std::map<int64_t, double> neighbours, strided;
};
using GalvatronLinks = std::map<int64_t, GroupLinks>;
GalvatronLinks rtx_titan_links();

double micro_batches(const GalvatronModel& model, const GalvatronStrategy& strategy, int64_t batch);

struct LayerCost {
  double memory_mb = 0, seconds = 0;
};
LayerCost layer_cost(const GalvatronModel& model, const GalvatronLayer& layer,
                     const GalvatronLinks& links, const GalvatronStrategy& strategy, int64_t batch);
// The memory of a device that its context takes, in MB, in every version of the artifact.
inline constexpr double kGalvatronContextMb = 1024;
// Returns the MB that embedding, head and the device's context take on the first stage.
double other_memory_mb(const GalvatronModel& model, int64_t stages, int64_t batch);
// Returns the seconds to change the layout between two neighbouring layers with these strategies.
double change_seconds(const GalvatronLinks& links, const GalvatronStrategy& from,
                      const GalvatronStrategy& to, int64_t batch);

// Returns the number of layers of each stage. Stages are filled from the last to the first, each up
// to the average memory; a layer goes into a stage if at least half of it fits below the average
// (section 7). `extra`: by stage, memory that the stage needs in addition to its layers.
std::vector<size_t> divide_by_memory(const std::vector<double>& layers,
                                     const std::vector<double>& extra);

// Settings in which public versions of the program differ (section 9). They concern the cut
// into stages of models with several types of layers. The defaults are those of the
// publication's artifact.
struct StageCut {
  // True: a layer's weight is its memory under plain data parallelism. False: the least memory over
  // its strategies.
  bool layers_by_data_parallelism = false;
  // True: the weight of embedding and head is their memory on the first stage of the pipeline.
  // False: their memory under plain data parallelism over all devices.
  bool other_by_stages = false;
  // True: the context counts on every stage. False: on the first stage only.
  bool context_on_every_stage = false;
};

struct GalvatronSearch {
  GalvatronModel model;
  GalvatronLinks links;
  std::vector<GalvatronStrategy> strategies;
  int64_t memory_mb = 0;  // of a device
  StageCut cut = {};
};
struct GalvatronStage {
  std::vector<GalvatronStrategy> layers;
  // MB that are used and left of the device's memory, with embedding, head and context
  int64_t memory_mb = 0, left_mb = 0;
};
struct GalvatronPlan {
  int64_t batch = 0, stages = 1;
  double seconds = 0;
  std::vector<GalvatronStage> stage;
  double throughput() const { return static_cast<double>(batch) / seconds; }
};
// Returns the plan with the highest throughput at this batch; among equally fast plans the one with
// the fewest stages. Returns nothing if no plan fits. If all layers have one type they are divided
// evenly, so numbers of stages that do not divide the layers are left out.
std::optional<GalvatronPlan> best_plan(const GalvatronSearch& search, int64_t batch);

}  // namespace tessera::published
