// Finds out which dims an axis inside a stage should cut, by trying: the passes of the folded model
// are priced on a small axis, a list of dims grows by one dim at a time, and what makes a sequence
// faster (or smaller for almost no time) is kept. No strategy is known here; Megatron's columns and
// rows, tokens between them, experts, Ulysses are lists that turn out to be fast.
//
//   DimListSearch search(fold, pricer, dims_to_cut(fold.graph), progress);
//   const std::vector<DimList> lists = search.find_lists(2, 1, 64);
//   const std::vector<DimPair> pairs = search.find_pairs(lists, 2, 8, 1);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/search/choice.h"
#include "tessera/search/fold.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

using DimList = std::vector<std::string>;  // ChoiceAxis::dims
bool has(const DimList& list, const std::string& name);
bool has_rings(const DimList& list);  // "seq~kv", or such of other dims

// Lists of two axes inside a stage. Devices of `inner` are neighbours.
struct DimPair {
  DimList outer, inner;
  friend bool operator==(const DimPair&, const DimPair&) = default;
};

// The axes inside a stage: one, or two of which the second one's devices are neighbours.
std::vector<ChoiceAxis> inner_axes(int64_t size, const DimList& list);
std::vector<ChoiceAxis> inner_axes(int64_t outer_size, int64_t inner_size, const DimPair& pair);

// Sums over the units of the folded model, each counted as often as the model has it.
double passes_s(const UnitPrices& prices, const std::vector<int64_t>& counts);  // of a micro-batch
double activations_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts);
// Also parameters, gradients and optimizer state, none of it in shards: so lists that cut the batch, whose
// gradients must be summed once a step, do not beat others by their short passes alone.
double held_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts);

class DimListSearch {
 public:
  // `fold` and `pricer` outlive the search. Lists are made of `dims`, which are dims_to_cut() or some
  // of them. `progress` may be empty.
  DimListSearch(const Fold& fold, UnitPricer& pricer, std::vector<std::string> dims,
                std::function<void(const std::string&)> progress);

  // A beam search whose step inserts a dim at some place of a list, until no step shortens the time
  // of a sequence (where one dim saves hardly any time, the beam is a single list); once without replicas and once from {"batch"} on. Of each, those that no other
  // list beats in both time and memory are returned, the fastest first; and each of these made
  // longer at its end by dims that save activations for at most a few percent of time.
  // Where the gradients of replicas take longer than the passes of a micro-batch, lists before
  // {"batch"} also grow by what shortens both together: ops with many parameters and little work,
  // as dense layers behind convolutions, are then cut along dims of their own (SplitBrain).
  // `size`: devices of the axis; `sequences`: of the smallest micro-batch. `one_dim_shows`: where no
  // single dim saves time, no list is made longer, since small ops are known to take as long as
  // large ones, and memory does not bind.
  std::vector<DimList> find_lists(int64_t size, int64_t sequences, bool one_dim_shows = false);

  // Pairs that are faster than every one of `lists` on one axis of outer_size * inner_size devices,
  // or hold less for at most a few percent of time. The inner list is one of the first of `lists`;
  // the outer one grows as above, unless an outer axis that saved all that its devices can would be
  // too slow.
  std::vector<DimPair> find_pairs(const std::vector<DimList>& lists, int64_t outer_size,
                                  int64_t inner_size, int64_t sequences);

  // Rings of tokens around the first of `lists`, where they take at most so many times as long as the
  // fastest of these on one axis of outer_size * inner_size devices. Even those that are slower on so
  // few devices move less than other lists on many.
  std::vector<DimPair> ring_pairs(const std::vector<DimList>& lists, int64_t outer_size,
                                  int64_t inner_size, int64_t sequences, double most_loss);

  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Tried {
    DimList list;
    std::string cuts;                                         // cuts_of its axes
    double time_s = 0, held_bytes = 0, activation_bytes = 0;  // of a sequence
  };
  struct Single {
    double time_s = 0, bytes = 0;  // of a sequence; 0: no list can be priced
  };
  // The least time and the fewest activations of one axis, in the smallest micro-batch that its list
  // allows.
  Single of_one_axis(const std::vector<DimList>& lists, int64_t size, int64_t sequences);
  using AxesOf = std::function<std::vector<ChoiceAxis>(const DimList&)>;

  // Where in tried_ the list is, or one that cuts every op alike; it is added if there is none.
  // Nothing if it cannot be priced.
  std::optional<size_t> price(const DimList& list, const AxesOf& axes, int64_t sequences);
  // Tries ever longer lists; tried_ then holds them, the fastest first.
  // It gives up when the first dim leaves the time above `most_s`.
  void grow(const DimList& first, const AxesOf& axes, int64_t sequences, size_t beam,
            double most_s);
  // The lists of the second kind in find_lists(): at most two, the fastest first.
  std::vector<DimList> lists_for_gradients(const AxesOf& axes, int64_t sequences);
  DimList save_memory(const DimList& list, const AxesOf& axes, int64_t sequences);

  const Fold& fold_;
  UnitPricer& pricer_;
  std::function<void(const std::string&)> progress_;
  std::vector<int64_t> counts_;
  std::vector<std::string> dims_;
  bool one_dim_shows_ = false;
  bool counts_gradients_ = false;  // among Tried::time_s: what replicas move once a step
  std::vector<Tried> tried_;
  std::string refusal_;
};

}  // namespace tessera
