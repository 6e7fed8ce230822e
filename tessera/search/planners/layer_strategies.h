// Describes how the devices of a stage share a layer, by Galvatron's decision tree: the leaves, how
// each is priced, what a change from one to another costs, and how they are written as a choice.
// Part of the planner galvatron.h.
//
//   for (const LayerStrategy& leaf : layer_strategies(8, {0, 3}, {"none", "full"})) to_string(leaf);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/search/estimate.h"

namespace tessera {

struct LayerStrategy {
  int64_t data = 1, tensor = 1;
  bool data_inside = false;  // replicas are neighbours; else tensor-parallel ranks are
  size_t list = 0;           // the dims that the tensor-parallel ranks cut: of tensor_lists()
  int64_t sharded = 0;       // as Choice::sharded
  std::string recompute = "none";
  friend bool operator==(const LayerStrategy&, const LayerStrategy&) = default;
};
// Returns "tp4 dp2 sharded=3 recompute=full", neighbours first.
std::string to_string(const LayerStrategy& strategy);

// Returns whether the strategies cut the same dims over the same devices.
bool same_layout(const LayerStrategy& a, const LayerStrategy& b);
UnitLayout layout_of(const LayerStrategy& strategy);

// Returns the dims that tensor-parallel ranks cut: Megatron's, with whole sequences between, or
// with sequences cut.
const std::vector<std::vector<std::string>>& tensor_lists();

// Returns the leaves of the tree for so many devices, a power of two. `sharded` and `recompute` are
// the values that a leaf may have; without replicas nothing rests in shards.
std::vector<LayerStrategy> layer_strategies(int64_t devices, const std::vector<int64_t>& sharded,
                                            const std::vector<std::string>& recompute);

// Returns whether it matters who are neighbours.
bool order_matters(const Cluster& cluster, const LayerStrategy& strategy);

// Returns the question that prices a unit of this strategy; nothing if the replicas do not divide
// the micro-batch, or their share is no power of two of at most `most` sequences.
std::optional<UnitQuestion> question_for(const Cluster& cluster, const LayerStrategy& strategy,
                                         int64_t micro_batch, int64_t most);

// Prices the transfers where the activations between two units change their layout. The layout is,
// per bit of the rank's number in its stage, the dim that is cut by who makes the activations or
// reads them.
class Conversions {
 public:
  // Prepares prices. `devices`: of a stage. All arguments outlive this object.
  Conversions(const Fold& fold, const CollectiveCosts& collectives, const Cluster& cluster,
              int64_t devices);
  // Returns the seconds of both passes, between two units of the folded model. `bytes`: of all
  // activations that cross, uncut.
  double seconds(int from, const LayerStrategy& a, int to, const LayerStrategy& b,
                 double bytes) const;

 private:
  using Bits = std::vector<int>;
  // Returns the dim of the op's output (or first input) that the devices of this bit cut; empty:
  // none.
  std::string cut(OpId id, const LayerStrategy& strategy, int bit, bool is_made) const;
  double moved(CollectiveKind kind, const Bits& bits, double bytes) const;

  const Fold& fold_;
  const CollectiveCosts& collectives_;
  const Cluster& cluster_;
  int64_t devices_;
  std::vector<OpId> first_, last_;  // by unit of the fold
};

// Writes the strategies of the units into the choice, by unit; the most frequent strategy becomes
// that of the model. Equal pointers are equal strategies.
void write_leaves(Choice& choice, int64_t devices, const std::vector<const LayerStrategy*>& leaves);

}  // namespace tessera
