// Prices each unit of a model that is cut in a given way. The program decides: the folded model
// (fold.h) is lowered and simulated on the devices of one stage, and the time and the memory of its
// step are divided among the units whose ops they belong to. There is no second cost model.
//
//   UnitPricer pricer({"gpt:layers=96,hidden=12288,heads=96", DType::kBFloat16, &cluster, options});
//   TESSERA_TRY(const UnitPrices* costs, pricer.price({{{"tp", 8, {"heads", "ffn"}}}, 1, "none"}));
//   costs->units[3].forward_s;   // of a micro-batch of one sequence
//
// Between the ends of two kernels that follow one another, the device's time belongs to the second
// kernel's unit; so waits for communication count for the op that waited. The backward pass of the
// second of two micro-batches, which also moves gradients, gives the time that comes once a step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/part.h"
#include "tessera/search/choice.h"
#include "tessera/search/fold.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct UnitPrice {                       // seconds, and bytes of one device
  double forward_s = 0, backward_s = 0;  // of a micro-batch
  double once_s = 0;    // of a step: optimizer, one-time preparation and sums, and waits for these
  double update_s = 0;  // the computing part of once_s; divided where states rest in shards
  // The time of the collectives, once a step, that sum gradients among the ranks of the stage. The
  // backward passes of all its units hide these sums together. once_s does not show what a deep
  // stage waits for, because it counts the waits of the few units of a folded model.
  double reduce_s = 0;
  double parameter_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  // The bytes of gradients that a style with gradient buffers (Style::gradient_buffers) holds all
  // the time, on one replica: the largest form of each, which may be the form that the optimizer
  // reads. 0: other styles.
  double gradient_buffer_bytes = 0;
  // The bytes of parameter_bytes that several ranks of the stage hold alike on axes that hold
  // copies, and what is left of these on a device where they rest in shards over those axes, too.
  double alike_bytes = 0, alike_shard_bytes = 0;
  // Likewise for parameters whose gradients the stage's ranks sum among them, for whatever cut.
  double summed_bytes = 0, summed_shard_bytes = 0;
  // The sum of the squares of the parameters' bytes: gives the number of pieces that move
  // (even_pieces).
  double parameter_squares = 0;
  double parameters = 0;        // number of tensors
  double large_parameters = 0;  // tensors of these that move alone: 25 MiB or more as they are used
  double copy_bytes = 0;        // narrow copies of parameters, kept for the step
  double uncopied_bytes = 0;    // parameters that rest as narrow as they are used (frozen ones)
  double activation_bytes = 0;  // held from the forward to the backward pass of a micro-batch
  double leaving_bytes = 0;     // activations of one sequence that later units read, uncut
  double leaving_piece_bytes = 0;  // the part of these that one device has, where axes cut them
  friend bool operator==(const UnitPrice&, const UnitPrice&) = default;
};

// Returns the sum of the prices of neighbouring units; what leaves is that of the later unit.
UnitPrice sum_of(const UnitPrice& earlier, const UnitPrice& later);

// Returns the share of parameter_bytes that a device keeps of a unit's parameters where they rest
// in shards over the axes of the stage that hold copies (holds_copies). The share is the same for
// gradients and states. 1: no axis holds copies.
double share_in_shards(const UnitPrice& unit);

// Returns the price of a unit whose size lies between those of two others, as Samples::Between.
UnitPrice between(const UnitPrice& smaller, const UnitPrice& larger, double share);

// Returns the price with the memory of one shard: what rests is divided among so many replicas, and
// among the ranks of a stage that hold it alike. `sharded`: as Choice::sharded. `gradients`:
// whether gradients rest in shards, too.
UnitPrice in_shards(UnitPrice unit, DType compute, int64_t sharded, int64_t replicas,
                    bool gradients);

// Returns how many tensors of equal size would have this sum and this sum of squares: a few large
// ones count, many small ones do not.
double even_pieces(double sum, double squares);

// A parameter that two units read, as a tied embedding. Where the units lie in two stages, its
// gradient goes from the later stage to the first one, whole from each replica, and the parameter
// comes back.
struct TiedParameter {
  int first = 0, later = 0;    // units of the folded graph
  double gradient_bytes = 0;   // of one device
  double parameter_bytes = 0;  // likewise, as it is used
};

struct UnitPrices {
  // By unit of the folded graph; where layers are unequal, also those that were not sampled.
  std::vector<UnitPrice> units;
  std::vector<TiedParameter> tied;
  double transient_bytes = 0;  // alive inside a block, at the peak
  double overhead_bytes = 0;   // context, libraries, additions of the allocator
  double allocator_bytes = 0;  // the allocator's part of overhead_bytes
  double allocator_share = 0;  // allocator_bytes as a share of the priced program's buffers
  double step_s = 0;           // of the simulated step
  // For a question with slices: by slice, then by unit, the seconds of both passes of a
  // micro-batch.
  std::vector<std::vector<double>> slice_s;
};

// Returns the bytes of context, libraries, and what the allocator adds to buffers of so many bytes.
// The priced program holds all of the embedding's states, which a plan may keep in shards: so the
// loss of its allocator counts at most in proportion to the buffers.
double overhead_beside(const UnitPrices& prices, double buffer_bytes);

// Returns the share of a micro-batch's passes that its slowest slice takes; 1 without slices.
double slowest_slice(const UnitPrices& prices);

// A question for the price of units that are cut: the axes of a stage without replicas, the
// sequences of a micro-batch over all of them, and what is computed again.
struct UnitQuestion {
  std::vector<ChoiceAxis> axes;
  int64_t sequences = 1;
  std::string recompute = "none";
  // Leaves out the optimizer and the peak: quicker to answer where only the passes are compared.
  // once_s, state_bytes, transient_bytes and overhead_bytes are then too small.
  bool passes_only = false;
  // The machine whose first devices hold the stage, of one kind of nodes (Kinds::cluster); null:
  // the machine of the priced model.
  const Cluster* on = nullptr;
  // As Choice::slices, with one place: the tensors that slices leave to later ones are kept as in a
  // pipeline.
  std::vector<int64_t> slices = {};
  std::string slice_dim = "seq";
  HaloChoice halos = {};  // as Choice::halos
};

// Returns the question that prices the units of a stage of the choice: its axes without the
// replicas, and a micro-batch's sequences.
UnitQuestion unit_question(const Choice& choice, int64_t batch, size_t stage = 0);

struct PricedModel {
  std::string model;  // a model's text
  DType compute = DType::kFloat32;
  const Cluster* cluster = nullptr;  // outlives the pricer
  SimulateOptions options;
  // The batch of a model whose batch is fixed (a graph file), which is then cut into micro-batches
  // of the asked size. 0: the model is built anew for two micro-batches.
  int64_t fixed_batch = 0;
  // Prices are those of plans with this part, as far as it concerns and fits a single stage.
  std::optional<PlanPart> part = {};
  OptimizerSpec optimizer = {};
  std::shared_ptr<BrokenInvariants> broken = std::make_shared<BrokenInvariants>();
};

// Not to be used by several threads at once.
class UnitPricer {
 public:
  // Makes a pricer for the model.
  explicit UnitPricer(PricedModel model) : model_(std::move(model)) {}

  // Returns the prices of all units. Answers are kept by question; questions whose axes cut every
  // op alike share one. An axis without dims cuts nothing: its devices do the same work, and those
  // of the axes around it stand so far apart. Errors: what the plan's lowering refuses; these are
  // kept, too.
  Result<const UnitPrices*> price(const UnitQuestion& question);
  // Returns the number of programs that were made and simulated.
  int64_t simulated() const { return simulated_; }

 private:
  struct Folded {
    std::shared_ptr<const Fold> fold;  // the priced fold: with a few of the model's unequal layers
    std::shared_ptr<const Graph> graph;     // of the fold
    std::vector<Samples::Between> between;  // by unit; empty: all are priced
    std::vector<int> sampled;               // by unit of `fold`
  };
  Result<const Folded*> folded(int64_t batch);
  int64_t batch_of(const UnitQuestion& question) const;
  Result<std::unique_ptr<Lowering>> lower_units(const Folded& model, const UnitQuestion& question,
                                                const Plan& plan);
  Result<UnitPrices> simulate_units(const UnitQuestion& question);

  // The number of graphs that stay differentiated, because questions ask for equal sequences again.
  static constexpr size_t kKeptGraphs = 24;

  PricedModel model_;
  Compiler compiler_{kKeptGraphs};
  std::map<int64_t, Folded> folded_;  // by batch
  std::map<std::string, Result<UnitPrices>> known_;
  int64_t simulated_ = 0;
};

}  // namespace tessera
