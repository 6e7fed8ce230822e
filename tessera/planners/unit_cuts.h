// Chooses for each unit of a row of units how the axes inside a stage cut the unit. This is Alpa's
// intra-operator choice on Tessera's prices, for the planner `alpa`. Candidates are lists of dims (dim_lists.h), each of which is the fastest for some
// unit. A candidate is priced by the program in which it cuts all units. The chain program, a
// dynamic program over the row, then chooses a candidate for each unit; Alpa's integer program does
// this for each op. The cost includes changes of the layout of tensors that go between units with
// different candidates.
//
//   UnitCuts cuts(*search);
//   cuts.find(2);                                          // finds lists for the smallest axis
//   const auto& inside = cuts.candidates({1, 8}, 2, "none");
//   const auto ranges = cuts.ranges(inside, 0, 12, weights);   // units 0 .. n - 1, for each n
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/planners/published/one_hot.h"
#include "tessera/search/choices/dim_lists.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/price/replica_costs.h"

namespace tessera {

// A candidate: one way to cut all units, with the prices of units that are cut in this way.
struct UnitCut {
  std::vector<ChoiceAxis> axes;  // as made by inner_axes()
  const UnitPrices* prices = nullptr;
};

// The candidates for axes of given sizes and for a given number of sequences.
struct CutSet {
  std::array<int64_t, 2> sizes{1, 1};  // outer, inner
  int64_t sequences = 1;
  std::vector<UnitCut> cuts;
  // change_s[unit][from][to]: the seconds, in both passes of a micro-batch, to change the layout of
  // the tensors that leave a unit of the folded graph from that of candidate `from` to that of
  // candidate `to`.
  std::vector<std::vector<std::vector<double>>> change_s;
};

// The joint price and cost of neighbouring units, each with a candidate of its own.
struct UnitRange {
  UnitPrice sum;
  double change_s = 0;  // seconds of changes of layout between the units, in a micro-batch
  double alive_bytes = 0, overhead_bytes = 0;
  size_t units = 0;
  double cost_s = 0;  // the cost that the chain program minimises
};

// The cost of a unit is the time of its passes, plus these weights times other parts of its price.
struct CutWeights {
  double once = 0;              // weight of UnitPrice::once_s
  double seconds_per_byte = 0;  // weight of UnitPrice::gradient_bytes
};

class UnitCuts {
 public:
  // Makes an object without lists. `search` outlives the object.
  explicit UnitCuts(PlanSearch& search);

  // Finds the lists that candidates() offers, on an axis of `size` devices. If `pairs`, also finds
  // pairs of lists for two axes, on 2 x 2 devices.
  void find(int64_t size, bool pairs);
  // Sets the lists and pairs to the given ones, in place of find().
  void set_lists(std::vector<DimList> lists, std::vector<DimPair> pairs);
  const std::vector<DimList>& lists() const { return lists_; }
  const std::vector<DimPair>& pairs() const { return pairs_; }
  // Returns the sequences of the smallest micro-batch of one replica that the model can be built
  // with.
  int64_t least_sequences() const { return least_; }

  // Returns the candidates that can be priced. For sizes {1, 1} that is a single candidate, without
  // axes. Results are cached.
  const CutSet& candidates(std::array<int64_t, 2> sizes, int64_t sequences,
                           const std::string& recompute);

  // Returns last - first + 1 ranges. Range n has the units first .. first + n - 1, each unit with
  // the candidate that makes the whole range cheapest. `of`: the candidates that may be chosen;
  // empty: all.
  std::vector<UnitRange> ranges(const CutSet& set, size_t first, size_t last,
                                const CutWeights& weights,
                                const std::vector<size_t>& of = {}) const;
  // Returns the candidates that ranges() chooses for the units first .. last - 1 in the last range.
  std::vector<size_t> chosen(const CutSet& set, size_t first, size_t last,
                             const CutWeights& weights) const;

  // Returns how many seconds a byte it takes to sum the gradients of `replicas` replicas, each on
  // `inner` devices.
  double gradient_rate(int64_t replicas, int64_t inner) const;

  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Border {  // a tensor of one unit that later units of the folded graph read
    TensorId tensor;
    double bytes = 0;  // bytes of a sequence
  };
  void find_borders();
  void fill_changes(CutSet& set) const;
  CutSet priced(const std::array<int64_t, 2>& sizes, int64_t sequences,
                const std::vector<std::vector<ChoiceAxis>>& offered, const std::string& recompute,
                bool passes_only);
  double cost_s(const UnitPrice& unit, const CutWeights& weights) const;
  // Returns the few lists among `found` and single dims that are worth pricing in every question.
  // `all`: candidates with these lists, priced.
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
