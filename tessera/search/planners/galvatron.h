// Implements Galvatron's planner on Tessera's costs (docs/planners/galvatron.md): the pipeline's
// degree outermost, stages of equal numbers of layers, and for each unit of the model a leaf of a
// decision tree, which says how the devices of a stage share the unit:
//
//   replicas (data parallel) and tensor-parallel ranks, powers of two; either are neighbours
//   the tensors of the replicas that rest in shards
//   whether the unit's activations are computed again (the dimension that Galvatron-BMW adds)
//
// Leaves are chosen by a program over the units of a stage and their memory (layer_chain.h), with
// the cost of another layout between neighbours. The published cost model is not used: a leaf costs
// what the folded model costs when it is cut so (unit_prices.h), and the estimator adds the
// replicas.
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

#include "tessera/search/plan_search.h"
#include "tessera/search/planners/layer_strategies.h"

namespace tessera {

class LayerSearch {
 public:
  // Prepares a search. `devices`: used by the plan, a power of two. `search` outlives this object.
  LayerSearch(PlanSearch& search, int64_t devices);
  ~LayerSearch();
  LayerSearch(const LayerSearch&) = delete;
  LayerSearch& operator=(const LayerSearch&) = delete;

  // Returns the leaves that divide the micro-batch and can be priced. The first call prices them.
  const std::vector<LayerStrategy>& strategies(int64_t stages, int64_t micro_batches);
  // Returns divisions of the units into stages: by layers, and once more by time if that differs.
  std::vector<std::vector<size_t>> divisions(int64_t stages, int64_t micro_batches);

  // Returns the choice in which unit u has strategies(...)[leaves[u]], with its estimate.
  PlanCandidate evaluate(int64_t stages, int64_t micro_batches, const std::vector<size_t>& cuts,
                         const std::vector<size_t>& leaves);
  // Returns the best leaves for these cuts; nothing if none fit. `ignore_memory`: as if all fit.
  std::optional<PlanCandidate> best_for(int64_t stages, int64_t micro_batches,
                                        const std::vector<size_t>& cuts,
                                        bool ignore_memory = false);
  // Returns the best choice with one leaf for all units, whose tensors rest in shards as `sharded`
  // says; nothing if none fits.
  std::optional<PlanCandidate> best_uniform(int64_t stages, int64_t micro_batches,
                                            const std::vector<size_t>& cuts, int64_t sharded);
  // Returns the best of all divisions, improved by moving single units from the slowest stage to a
  // neighbour (Galvatron-BMW). If nothing fits, returns the candidate that holds the least.
  std::optional<PlanCandidate> best(int64_t stages, int64_t micro_batches);

  // Searches all numbers of stages and micro-batches.
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

// Answers a question. Errors: a number of devices that is fixed to no power of two, and those of
// PlanSearch.
Result<PlanAnswer> find_by_galvatron(const PlanQuestion& question);

}  // namespace tessera
