// Finds by trial which dims an axis inside a stage should cut. A list of dims grows by one dim at a
// time. After each step the forward and backward passes of the folded model are priced on a small
// axis that cuts by the list. A dim is kept if it makes a sequence faster, or if it saves memory
// and costs almost no time. This file knows no strategy. Megatron's columns and rows, sequence
// parallelism between them, expert parallelism and Ulysses are lists that the search finds because
// they are fast.
//
//   DimListSearch search(fold, pricer, dims_to_cut(fold.graph), progress);
//   const std::vector<DimList> lists = search.find_lists(2, 1);
//   const std::vector<DimPair> pairs = search.find_pairs(lists, 2, 8, 1);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/search/choices/choice.h"
#include "tessera/search/price/fold.h"
#include "tessera/search/price/unit_prices.h"

namespace tessera {

using DimList = std::vector<std::string>;  // ChoiceAxis::dims
bool has(const DimList& list, const std::string& name);
bool has_rings(const DimList& list);  // whether an entry has a dim that travels: "seq~kv"

// The lists of dims for two axes inside a stage. The devices of the `inner` axis are neighbours.
struct DimPair {
  DimList outer, inner;
  friend bool operator==(const DimPair&, const DimPair&) = default;
};

// Returns the axes inside a stage: none if `size` is 1, else one axis; for a pair two axes, of
// which the second is the inner one.
std::vector<ChoiceAxis> inner_axes(int64_t size, const DimList& list);
std::vector<ChoiceAxis> inner_axes(int64_t outer_size, int64_t inner_size, const DimPair& pair);

// Returns the number of pieces into which the axes cut the batch.
int64_t over_batch(const std::vector<ChoiceAxis>& axes);

// Returns the seconds of the forward and backward passes of a micro-batch. This function and the
// next two sum over the units of the folded model, each counted as often as the model has it.
double passes_s(const UnitPrices& prices, const std::vector<int64_t>& counts);
double activations_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts);
// Returns the bytes of activations, parameters, gradients and optimizer state, if nothing rests in
// shards. Comparing these bytes too keeps lists that cut the batch from winning by their short
// passes alone: they leave the parameters whole, and their gradients must be summed once a step.
double held_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts);

class DimListSearch {
 public:
  // Makes a search. `fold` and `pricer` outlive the search. Lists are made of `dims`, which are all
  // or some of dims_to_cut(). `progress` may be empty.
  DimListSearch(const Fold& fold, UnitPricer& pricer, std::vector<std::string> dims,
                std::function<void(const std::string&)> progress);

  // Returns the best lists of dims for an axis of `size` devices. A beam search tries in each step
  // to insert one more dim at any position of the lists that it keeps, until a step no longer
  // shortens the time of a sequence. (If the best single dim saves hardly any time, only one list
  // is kept.) The search runs once from the empty list and once from {"batch"}. Each run adds,
  // fastest first, up to three or two lists that no other list beats in both time and memory. Each
  // of these lists is added again with more dims at its end, which save activations and cost at
  // most a few percent of time. A third run is made where replicas need longer to sum their
  // gradients than for the passes of a micro-batch. It starts from {"batch"} and minimises the
  // passes and the sums together, so that ops with many parameters and little work, as dense layers
  // after convolutions, are cut along dims of their own (SplitBrain). `sequences`: of the smallest
  // micro-batch. `one_dim_shows`: stop if no single dim saves time; the caller sets this where
  // memory does not bind and small ops are known to take as long as large ones.
  std::vector<DimList> find_lists(int64_t size, int64_t sequences, bool one_dim_shows = false);

  // Returns pairs of lists that are faster than each of `lists` on one axis of outer_size *
  // inner_size devices, or that hold clearly fewer activations and cost at most a few percent of
  // time. The inner list is one of the first of `lists`. The outer list grows as in find_lists(),
  // but is not tried at all if the pair would be too slow even with perfect speedup over the
  // outer axis.
  std::vector<DimPair> find_pairs(const std::vector<DimList>& lists, int64_t outer_size,
                                  int64_t inner_size, int64_t sequences);

  // Returns pairs whose outer list is a ring of tokens ("seq~kv") and whose inner list is one of
  // the first of `lists`. A pair is returned if it takes at most `most_loss` times as long as the
  // fastest of `lists` on one axis of outer_size * inner_size devices. Slower rings are allowed
  // because on many devices they move less than other lists do.
  std::vector<DimPair> ring_pairs(const std::vector<DimList>& lists, int64_t outer_size,
                                  int64_t inner_size, int64_t sequences, double most_loss);

  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Tried {
    DimList list;
    std::string cuts;                                         // cuts_of() for the list's axes
    double time_s = 0, held_bytes = 0, activation_bytes = 0;  // of a sequence
  };
  struct Single {
    double time_s = 0, bytes = 0;  // for a sequence; 0: no list can be priced
  };
  // Returns the least time of a sequence and the fewest bytes of its activations among all `lists`,
  // each on one axis of `size` devices and in the smallest micro-batch that the list allows.
  Single of_one_axis(const std::vector<DimList>& lists, int64_t size, int64_t sequences);
  using AxesOf = std::function<std::vector<ChoiceAxis>(const DimList&)>;

  // Returns the position in tried_ of the list, or of a list that cuts every op alike. If there is
  // neither, prices the list and adds it. Returns nothing if the list cannot be priced.
  std::optional<size_t> price(const DimList& list, const AxesOf& axes, int64_t sequences);
  // Tries ever longer lists, beginning with `first`, and keeps `beam` lists in each step. tried_
  // then holds all tried lists, the fastest first. Gives up if after a step the fastest list takes
  // more than `most_s`.
  void grow(const DimList& first, const AxesOf& axes, int64_t sequences, size_t beam,
            double most_s);
  // Makes the third run of find_lists(), in which the sums of gradients count. Returns at most two
  // lists, the fastest first; none if the sums take no longer than the passes.
  std::vector<DimList> lists_for_gradients(const AxesOf& axes, int64_t sequences);
  DimList save_memory(const DimList& list, const AxesOf& axes, int64_t sequences);

  const Fold& fold_;
  UnitPricer& pricer_;
  std::function<void(const std::string&)> progress_;
  std::vector<int64_t> counts_;
  std::vector<std::string> dims_;
  bool one_dim_shows_ = false;
  // Whether Tried::time_s includes the costs that come once a step, such as sums of gradients.
  bool counts_gradients_ = false;
  std::vector<Tried> tried_;
  std::string refusal_;
};

}  // namespace tessera
