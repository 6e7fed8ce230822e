// Implements Galvatron's planner on Tessera's costs (docs/planners/galvatron.md). It tries each
// number of stages, gives the stages equal numbers of layers, and chooses for each unit of the
// model a leaf of a decision tree. A leaf says how the devices of a stage share the unit:
//
//   numbers of replicas and of tensor-parallel ranks (powers of two), and which are neighbours
//   which tensors of the replicas rest in shards
//   whether the unit's activations are recomputed (Galvatron-BMW adds this dimension)
//
// A dynamic program over the units of a stage and their memory chooses the leaves (layer_chain.h).
// It counts the cost of changing the layout between neighbouring units. The published cost model is
// not used: prices of a leaf are those of the folded model cut in this way (unit_prices.h), to
// which the estimator adds the costs of replicas.
//
//   TESSERA_TRY(const auto search, PlanSearch::begin(question));
//   LayerSearch layers(*search, 8);
//   if (const auto found = layers.best(2, 4)) found->choice;   // two stages, four micro-batches
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/planners/layer_strategies.h"
#include "tessera/search/plan_search.h"

namespace tessera {

class LayerSearch {
 public:
  // Prepares a search. `devices`: number of devices that the plan uses, a power of two. `search`
  // outlives this object.
  LayerSearch(PlanSearch& search, int64_t devices);
  ~LayerSearch();
  LayerSearch(const LayerSearch&) = delete;
  LayerSearch& operator=(const LayerSearch&) = delete;

  // Returns the leaves whose replicas divide the micro-batch and whose units can be priced. The
  // first call prices them.
  const std::vector<LayerStrategy>& strategies(int64_t stages, int64_t micro_batches);
  // Returns one or two ways to divide the units into stages: the published one (equal numbers of
  // layers, or balanced memory if layers differ), and the one with balanced times if that differs.
  // A way lists the first unit of each stage.
  std::vector<std::vector<size_t>> divisions(int64_t stages, int64_t micro_batches);

  // Returns the choice in which unit u has the leaf strategies(...)[leaves[u]], with its estimate.
  PlanCandidate evaluate(int64_t stages, int64_t micro_batches, const std::vector<size_t>& cuts,
                         const std::vector<size_t>& leaves);
  // Returns the choice with the best leaves for these cuts; nothing if no leaves fit.
  // `ignore_memory`: no memory limit.
  std::optional<PlanCandidate> best_for(int64_t stages, int64_t micro_batches,
                                        const std::vector<size_t>& cuts,
                                        bool ignore_memory = false);
  // Returns the best choice in which all units have one leaf with this value of `sharded`; nothing
  // if no such choice fits.
  std::optional<PlanCandidate> best_uniform(int64_t stages, int64_t micro_batches,
                                            const std::vector<size_t>& cuts, int64_t sharded);
  // Returns the best choice over all divisions(), improved by moving single units from the slowest
  // stage to a neighbouring stage (Galvatron-BMW). If nothing fits, returns the choice that needs
  // the least memory. Returns nothing if there are no leaves.
  std::optional<PlanCandidate> best(int64_t stages, int64_t micro_batches);

  // Searches all numbers of stages and micro-batches, and returns the few most
  // promising candidates.
  std::vector<PlanCandidate> search_all();
  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Instance;
  Instance& instance(int64_t stages, int64_t micro_batches);
  std::optional<std::vector<size_t>> solve_stage(Instance& at, size_t begin, size_t end,
                                                 size_t place, bool ignore_memory);
  std::optional<PlanCandidate> rebalanced(Instance& at, const PlanCandidate& from);
  PlanCandidate smallest(Instance& at);

  PlanSearch& search_;
  int64_t devices_;
  Estimator estimator_;
  std::string schedule_;
  int64_t least_ = 1;  // sequences of the smallest micro-batch that the model allows
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Instance>> instances_;
  std::string refusal_;
};

// Answers a question. Errors: a fixed number of devices that is no power of two, and those
// of PlanSearch.
Result<PlanAnswer> find_by_galvatron(const PlanQuestion& question);

}  // namespace tessera
