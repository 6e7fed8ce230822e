// Finds by trial which dims an axis inside a stage should cut. The passes of the folded model are
// priced on a small axis while a list of dims grows by one dim at a time; a dim that makes a
// sequence faster (or smaller for almost no time) is kept. No strategy is known here; Megatron's
// columns and rows, tokens between them, experts, Ulysses are lists that turn out to be fast.
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
bool has_rings(const DimList& list);  // whether it has "seq~kv", or such of other dims

// Lists of two axes inside a stage. The devices of the `inner` axis are neighbours.
struct DimPair {
  DimList outer, inner;
  friend bool operator==(const DimPair&, const DimPair&) = default;
};

// Returns the axes inside a stage: one, or two of which the second one's devices are neighbours.
std::vector<ChoiceAxis> inner_axes(int64_t size, const DimList& list);
std::vector<ChoiceAxis> inner_axes(int64_t outer_size, int64_t inner_size, const DimPair& pair);

// Returns the seconds of both passes of a micro-batch. This and the next two functions sum over the
// units of the folded model, each counted as often as the model has it.
double passes_s(const UnitPrices& prices, const std::vector<int64_t>& counts);
double activations_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts);
// Returns the bytes of activations, parameters, gradients and optimizer state, none of it in
// shards. Lists that cut the batch, whose gradients must be summed once a step, then do not beat
// others by their short passes alone.
double held_bytes(const UnitPrices& prices, const std::vector<int64_t>& counts);

class DimListSearch {
 public:
  // Makes a search. `fold` and `pricer` outlive it. Lists are made of `dims`, which are
  // dims_to_cut() or some of them. `progress` may be empty.
  DimListSearch(const Fold& fold, UnitPricer& pricer, std::vector<std::string> dims,
                std::function<void(const std::string&)> progress);

  // Returns the best lists of dims for an axis of `size` devices. A beam search inserts one dim at
  // any place of a list in each step, until no step shortens the time of a sequence (where one dim
  // saves hardly any time, the beam is a single list). It runs once without replicas and once
  // starting from {"batch"}. From each run come, fastest first, the lists that no other one beats
  // in both time and memory; then each of these made longer at its end by dims that save
  // activations for at most a few percent of time. Where the gradients of replicas take longer than
  // the passes of a micro-batch, lists before {"batch"} also grow by what shortens both together:
  // ops with many parameters and little work, as dense layers behind convolutions, are then cut
  // along dims of their own (SplitBrain). `sequences`: of the smallest micro-batch.
  // `one_dim_shows`: where no single dim saves time, no list is made longer, since small ops are
  // known to take as long as large ones, and memory does not bind.
  std::vector<DimList> find_lists(int64_t size, int64_t sequences, bool one_dim_shows = false);

  // Returns pairs that are faster than every one of `lists` on one axis of outer_size * inner_size
  // devices, or hold less for at most a few percent of time. The inner list is one of the first of
  // `lists`; the outer one grows as in find_lists(), but not at all if even an outer axis that
  // saved all that its devices can would be too slow.
  std::vector<DimPair> find_pairs(const std::vector<DimList>& lists, int64_t outer_size,
                                  int64_t inner_size, int64_t sequences);

  // Returns rings of tokens around the first of `lists` that take at most `most_loss` times as long
  // as the fastest of `lists` on one axis of outer_size * inner_size devices. Even rings that are
  // slower on so few devices move less than other lists on many.
  std::vector<DimPair> ring_pairs(const std::vector<DimList>& lists, int64_t outer_size,
                                  int64_t inner_size, int64_t sequences, double most_loss);

  const std::string& last_refusal() const { return refusal_; }

 private:
  struct Tried {
    DimList list;
    std::string cuts;                                         // cuts_of() the list's axes
    double time_s = 0, held_bytes = 0, activation_bytes = 0;  // of a sequence
  };
  struct Single {
    double time_s = 0, bytes = 0;  // of a sequence; 0: no list can be priced
  };
  // Returns the least time and the fewest activations of one axis, in the smallest micro-batch that
  // its list allows.
  Single of_one_axis(const std::vector<DimList>& lists, int64_t size, int64_t sequences);
  using AxesOf = std::function<std::vector<ChoiceAxis>(const DimList&)>;

  // Returns the position in tried_ of the list, or of one that cuts every op alike, and adds the
  // list if there is none. Returns nothing if it cannot be priced.
  std::optional<size_t> price(const DimList& list, const AxesOf& axes, int64_t sequences);
  // Tries ever longer lists; tried_ then holds them, the fastest first. Gives up when the first dim
  // leaves the time above `most_s`.
  void grow(const DimList& first, const AxesOf& axes, int64_t sequences, size_t beam,
            double most_s);
  // Returns the lists for gradients of replicas (see find_lists()): at most two, the fastest first.
  std::vector<DimList> lists_for_gradients(const AxesOf& axes, int64_t sequences);
  DimList save_memory(const DimList& list, const AxesOf& axes, int64_t sequences);

  const Fold& fold_;
  UnitPricer& pricer_;
  std::function<void(const std::string&)> progress_;
  std::vector<int64_t> counts_;
  std::vector<std::string> dims_;
  bool one_dim_shows_ = false;
  bool counts_gradients_ = false;  // Tried::time_s includes what replicas move once a step
  std::vector<Tried> tried_;
  std::string refusal_;
};

}  // namespace tessera
