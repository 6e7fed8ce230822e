// Chooses how the axes inside a stage cut each unit of a row of units: Alpa's intra-operator choice
// on Tessera's prices, for the planner of that name and for the edits of auto (own_dims.h).
// Candidates are the lists of dims (dim_lists.h) that are fastest for some unit; each is priced by
// the program in which all units are cut by it. A chain program then chooses a candidate for each
// unit, as the integer program of the publication does for each op, and pays for changing the
// layout of tensors that go from a unit to one with another candidate.
//
//   UnitCuts cuts(*search);
//   cuts.find(2);                                          // on the smallest axis
//   const auto& inside = cuts.candidates({1, 8}, 2, "none");
//   const auto ranges = cuts.ranges(inside, 0, 12, weights);   // units from 0 on, to each later one
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/search/dim_lists.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/published/one_hot.h"
#include "tessera/search/replica_costs.h"

namespace tessera {

// A way to cut all units alike, with its prices.
struct UnitCut {
  std::vector<ChoiceAxis> axes;  // inner_axes
  const UnitPrices* prices = nullptr;
};

// Candidates for axes of some sizes, of one number of sequences.
struct CutSet {
  std::array<int64_t, 2> sizes{1, 1};  // outer, inner
  int64_t sequences = 1;
  std::vector<UnitCut> cuts;
  // The seconds of a micro-batch, both passes, to change the layout of what leaves the unit of the
  // folded graph from one candidate's to another's. [unit][from][to]
  std::vector<std::vector<std::vector<double>>> change_s;
};

// The joint cost of neighbouring units, each with its own candidate.
struct UnitRange {
  UnitPrice sum;
  double change_s = 0;  // of a micro-batch, between units
  double alive_bytes = 0, overhead_bytes = 0;
  size_t units = 0;
  double cost_s = 0;  // cost that the chain program minimises
};

// The weights of costs beside the passes: of what comes once a step, and of the gradients' bytes.
struct CutWeights {
  double once = 0;              // of once_s
  double seconds_per_byte = 0;  // of gradient_bytes
};

class UnitCuts {
 public:
  // Makes an object without lists. `search` outlives it.
  explicit UnitCuts(PlanSearch& search);

  // Finds the lists of an axis of `size` devices that later questions offer, and pairs of lists for
  // two axes (on 2 x 2 devices, if `pairs`).
  void find(int64_t size, bool pairs);
  // Sets given lists in place of those that find() would find.
  void set_lists(std::vector<DimList> lists, std::vector<DimPair> pairs);
  const std::vector<DimList>& lists() const { return lists_; }
  const std::vector<DimPair>& pairs() const { return pairs_; }
  // Returns the sequences of the smallest micro-batch of one replica that the model can be built
  // with.
  int64_t least_sequences() const { return least_; }

  // Returns the candidates that can be priced; with sizes {1, 1} there is one, without axes.
  // Answers are kept.
  const CutSet& candidates(std::array<int64_t, 2> sizes, int64_t sequences,
                           const std::string& recompute);

  // Returns by n, 0 <= n <= last - first, the range of units first .. first + n - 1 (none for n =
  // 0), each unit with the candidate that makes the whole range cheapest. `of`: the candidates that
  // may be taken; empty: all.
  std::vector<UnitRange> ranges(const CutSet& set, size_t first, size_t last,
                                const CutWeights& weights,
                                const std::vector<size_t>& of = {}) const;
  // Returns the candidates of the units first .. last - 1 in that answer.
  std::vector<size_t> chosen(const CutSet& set, size_t first, size_t last,
                             const CutWeights& weights, const std::vector<size_t>& of = {}) const;

  // Returns the seconds per byte of gradients that so many replicas of `inner` devices sum.
  double gradient_rate(int64_t replicas, int64_t inner) const;

  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Border {  // a tensor that later units of the folded graph read
    TensorId tensor;
    double bytes = 0;  // of a sequence
  };
  void find_borders();
  void fill_changes(CutSet& set) const;
  CutSet priced(const std::array<int64_t, 2>& sizes, int64_t sequences,
                const std::vector<std::vector<ChoiceAxis>>& offered, const std::string& recompute,
                bool passes_only);
  double cost_s(const UnitPrice& unit, const CutWeights& weights) const;
  // Returns those of these lists that are worth a price in every question.
  std::vector<DimList> select(const std::vector<DimList>& found, const CutSet& all) const;

  PlanSearch& search_;
  CollectiveCosts collectives_;
  ReplicaCosts replica_costs_;
  std::vector<DimList> lists_;
  std::vector<DimPair> pairs_;
  std::vector<std::vector<Border>> borders_;  // by unit of the folded graph
  std::map<std::tuple<std::array<int64_t, 2>, int64_t, std::string>, CutSet> known_;
  int64_t least_ = 1;
  std::string refusal_;
};

}  // namespace tessera
