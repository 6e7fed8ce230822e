// Prices each unit of a model that is cut in a given way. The program decides: the folded model
// (fold.h) is lowered and simulated on the devices of one stage, and the time and the memory of its
// step are divided among the units whose ops they belong to. There is no second cost model.
//
//   UnitPricer pricer({"gpt:layers=96,hidden=12288,heads=96", DType::kBFloat16, &cluster, options});
//   TESSERA_TRY(const UnitPrices* costs, pricer.price({{{"tp", 8, {"heads", "ffn"}}}, 1, "none"}));
//   costs->units[3].forward_s;   // of a micro-batch of one sequence
//
// The time between the ends of two consecutive kernels counts for the unit of the second kernel, so
// a wait for communication counts for the op that waited. The priced step has two micro-batches.
// The backward pass of the second one also moves gradients; its time beyond that of the first one's
// backward pass is a part of once_s.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/broken_invariant.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/layout/part.h"
#include "tessera/search/choices/choice.h"
#include "tessera/search/price/fold.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

struct UnitPrice {                       // members *_s in seconds, *_bytes in bytes of one device
  double forward_s = 0, backward_s = 0;  // of a micro-batch
  // Time that comes once a step: optimizer, preparation, sums, and waits for these.
  double once_s = 0;
  double update_s = 0;  // the computing part of once_s, which shards divide
  // The time of the collectives that sum gradients among the ranks of the stage once a step. once_s
  // does not include this time, because how long a step waits for the sums depends on the whole
  // stage: the backward passes of all its units together hide them.
  double reduce_s = 0;
  double parameter_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  // The bytes of gradients that a style with gradient buffers (Style::gradient_buffers) holds all
  // the time, on one replica. Each buffer has the size of the gradient's largest form, which may be
  // the form that the optimizer reads. 0 for other styles.
  double gradient_buffer_bytes = 0;
  // alike_bytes: the part of parameter_bytes that several ranks of the stage hold alike, on axes
  // that hold copies (holds_copies()). alike_shard_bytes: what a device holds of this part if it
  // rests in shards over these axes.
  double alike_bytes = 0, alike_shard_bytes = 0;
  // The corresponding bytes of parameters whose gradients several ranks of the stage sum, over
  // any axis.
  double summed_bytes = 0, summed_shard_bytes = 0;
  // The sum of the squares of the parameters' bytes, from which even_pieces() computes the number
  // of collectives.
  double parameter_squares = 0;
  double parameters = 0;  // number of parameters (tensors)
  // Number of parameters that move alone: at least 25 MiB as they are used.
  double large_parameters = 0;
  double copy_bytes = 0;  // bytes of narrow copies of parameters that are kept for the step
  // Bytes of parameters that rest in the narrow dtype in which they are used (frozen ones).
  double uncopied_bytes = 0;
  // Bytes that are held from the forward to the backward pass of a micro-batch.
  double activation_bytes = 0;
  double leaving_bytes = 0;        // bytes of all activations of one sequence that later units read
  double leaving_piece_bytes = 0;  // the part of leaving_bytes that one device has
  friend bool operator==(const UnitPrice&, const UnitPrice&) = default;
};

// Returns the sum of the prices of neighbouring units. Only leaving_bytes and leaving_piece_bytes
// are those of the later unit.
UnitPrice sum_of(const UnitPrice& earlier, const UnitPrice& later);

// Returns the share of parameter_bytes that a device keeps if the unit's parameters rest in shards
// over the axes of the stage that hold copies (holds_copies()). This share also holds for gradients
// and states. 1 if no axis holds copies.
double share_in_shards(const UnitPrice& unit);

// Returns the price of a unit whose size is between the sizes of two others, by linear
// interpolation. `share`: as Samples::Between::share.
UnitPrice between(const UnitPrice& smaller, const UnitPrice& larger, double share);

// Returns the price with the memory of one shard: tensors that rest in shards are divided over the
// replicas, and over the ranks of a stage that hold them alike. `sharded`: as Choice::sharded.
// `gradients`: whether gradients rest in shards, too.
UnitPrice in_shards(UnitPrice unit, DType compute, int64_t sharded, int64_t replicas,
                    bool gradients);

// Returns the number of tensors of equal size that have this sum of sizes and this sum of squares.
// If a few tensors are large and many small, that is about the number of the large ones.
double even_pieces(double sum, double squares);

// A parameter that two units read, such as a tied embedding. If the units are in two stages, each
// replica sends its whole gradient from the later stage to the first one, and the updated parameter
// comes back.
struct TiedParameter {
  int first = 0, later = 0;   // units of the folded graph
  double gradient_bytes = 0;  // bytes of the gradient on one device
  // Bytes of the parameter on one device, in the dtype in which it is used.
  double parameter_bytes = 0;
};

struct UnitPrices {
  // By unit of the folded graph, unequal layers that were not sampled included.
  std::vector<UnitPrice> units;
  std::vector<TiedParameter> tied;
  double transient_bytes = 0;  // bytes alive inside a block, at the peak
  double overhead_bytes = 0;   // bytes of context, libraries, and the allocator's additions
  double allocator_bytes = 0;  // the allocator's part of overhead_bytes
  double allocator_share = 0;  // allocator_bytes as a share of the priced program's buffers
  double step_s = 0;           // seconds of the simulated step
  // slice_s[slice][unit]: the seconds of the unit's two passes over this slice of a micro-batch
  // (UnitQuestion::slices). Empty for questions without slices.
  std::vector<std::vector<double>> slice_s;
};

// Returns the bytes of context, libraries, and what the allocator adds to buffers of so many bytes.
// The allocator's part is at most in proportion to the buffers, because the priced program has
// larger buffers than a plan that keeps states in shards.
double overhead_beside(const UnitPrices& prices, double buffer_bytes);

// Returns the time of the slowest slice as a share of the passes of its micro-batch; 1
// without slices.
double slowest_slice(const UnitPrices& prices);

// A question for the prices of units. It has the axes of a stage without replicas, the sequences of
// a micro-batch over all these axes, and the recomputation.
struct UnitQuestion {
  std::vector<ChoiceAxis> axes;
  int64_t sequences = 1;
  std::string recompute = "none";
  // Leaves out the optimizer and the peak of memory, which is faster and enough for comparing
  // passes. once_s, state_bytes, transient_bytes and overhead_bytes are then too small.
  bool passes_only = false;
  // The machine whose first devices hold the stage, of one kind of nodes (Kinds::cluster); null:
  // the machine of the priced model.
  const Cluster* on = nullptr;
  // As Choice::slices. The priced program has one place, and keeps tensors for later slices as a
  // pipeline does.
  std::vector<int64_t> slices = {};
  std::string slice_dim = "seq";
  HaloChoice halos = {};     // as Choice::halos
  std::string offload = {};  // as Choice::offload
};

// Returns the question that prices the units of a stage of the choice. It has the stage's axes
// without the replicas, and the sequences of one replica's micro-batch.
UnitQuestion unit_question(const Choice& choice, int64_t batch, size_t stage = 0);

struct PricedModel {
  std::string model;  // a model's text
  DType compute = DType::kFloat32;
  const Cluster* cluster = nullptr;  // outlives the pricer
  SimulateOptions options;
  // The batch of a model whose batch is fixed (a graph file); the priced step then has as many
  // micro-batches of the asked size as the batch has. 0: the model is built for two micro-batches.
  int64_t fixed_batch = 0;
  // A part of a plan that priced plans contain, without what does not concern a plan with a single
  // stage (part_for_units()). If the plan cannot be lowered with the part, it is priced without
  // the part.
  std::optional<PlanPart> part = {};
  OptimizerSpec optimizer = {};
  std::shared_ptr<BrokenInvariants> broken = std::make_shared<BrokenInvariants>();
};

// Prices units and caches the prices. Not to be used by several threads at once.
class UnitPricer {
 public:
  // Makes a pricer for the model.
  explicit UnitPricer(PricedModel model) : model_(std::move(model)) {}

  // Returns the prices of all units. Results are cached; questions whose axes cut every op alike
  // share a result. An axis without dims cuts nothing: its devices do equal work, and it increases
  // the distance between the devices of the axes before it. Errors, which are cached too: what the
  // plan's lowering refuses.
  Result<const UnitPrices*> price(const UnitQuestion& question);
  // Returns the number of programs that were made and simulated.
  int64_t simulated() const { return simulated_; }

 private:
  struct Folded {
    // The fold that is priced, with only a few of the model's unequal layers.
    std::shared_ptr<const Fold> fold;
    std::shared_ptr<const Graph> graph;  // the graph of `fold`
    // By unit of the model's fold; empty: no layers are sampled.
    std::vector<Samples::Between> between;
    std::vector<int> sampled;  // by unit of `fold`: the same unit in the model's fold
  };
  Result<const Folded*> folded(int64_t batch);
  int64_t batch_of(const UnitQuestion& question) const;
  Result<std::unique_ptr<Lowering>> lower_units(const Folded& model, const UnitQuestion& question,
                                                const Plan& plan);
  Result<UnitPrices> simulate_units(const UnitQuestion& question);

  // The number of differentiated graphs that the compiler caches, because later questions ask for
  // the same numbers of sequences.
  static constexpr size_t kKeptGraphs = 24;

  PricedModel model_;
  Compiler compiler_{kKeptGraphs};
  std::map<int64_t, Folded> folded_;  // by batch
  std::map<std::string, Result<UnitPrices>> known_;
  int64_t simulated_ = 0;
};

}  // namespace tessera
