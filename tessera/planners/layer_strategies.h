// Describes how the devices of a stage share a layer, by Galvatron's decision tree: the leaves, the
// prices of units with a leaf, the cost of a change from one leaf to another, and how leaves are
// written as a choice. Part of the planner galvatron.h.
//
//   for (const LayerStrategy& leaf : layer_strategies(8, {0, 3}, {"none", "full"})) to_string(leaf);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/search/rank/estimate.h"

namespace tessera {

struct LayerStrategy {
  int64_t data = 1, tensor = 1;
  // Whether replicas are on neighbouring devices; else tensor-parallel ranks are.
  bool data_inside = false;
  size_t list = 0;      // index into tensor_lists(): the dims that the tensor-parallel ranks cut
  int64_t sharded = 0;  // as Choice::sharded
  std::string recompute = "none";
  friend bool operator==(const LayerStrategy&, const LayerStrategy&) = default;
};
// Returns "tp4 dp2 sharded=3 recompute=full". The kind of ranks that are neighbours comes first.
std::string to_string(const LayerStrategy& strategy);

// Returns whether the strategies cut the same dims over the same devices.
bool same_layout(const LayerStrategy& a, const LayerStrategy& b);
UnitLayout layout_of(const LayerStrategy& strategy);

// Returns two lists of dims that tensor-parallel ranks cut. Both are Megatron's; with the second,
// ops that have none of the other dims are cut along the sequence.
const std::vector<std::vector<std::string>>& tensor_lists();

// Returns the leaves of the tree for so many devices, a power of two. `sharded` and `recompute`:
// the values that leaves may have. A leaf without replicas has `sharded` 0.
std::vector<LayerStrategy> layer_strategies(int64_t devices, const std::vector<int64_t>& sharded,
                                            const std::vector<std::string>& recompute);

// Returns whether it makes a difference on this cluster which ranks of the strategy are neighbours.
bool order_matters(const Cluster& cluster, const LayerStrategy& strategy);

// Returns the question that prices units with this strategy. Returns nothing if the replicas do not
// divide the micro-batch, or if a replica's sequences are no power of two or more than `most`.
std::optional<UnitQuestion> question_for(const Cluster& cluster, const LayerStrategy& strategy,
                                         int64_t micro_batch, int64_t most);

// Prices the transfers that change the layout of activations between two units. The number of a
// rank in its stage has one bit for each halving of the devices. A layout says for each bit which
// dim of the activations these halves cut, as the op that makes or reads them is cut.
class Conversions {
 public:
  // Prepares prices. `devices`: number of devices of a stage. All arguments outlive this object.
  Conversions(const Fold& fold, const CollectiveCosts& collectives, const Cluster& cluster,
              int64_t devices);
  // Returns the seconds to change the layout between unit `from` with strategy `a` and unit `to`
  // with strategy `b`, in both passes. The units are of the folded model. `bytes`: of all
  // activations that go from one to the other, uncut.
  double seconds(int from, const LayerStrategy& a, int to, const LayerStrategy& b,
                 double bytes) const;

 private:
  using Bits = std::vector<int>;
  // Returns the dim that this bit of the rank's number cuts, of the op's first output if `is_made`,
  // else of its first input. Empty if the bit cuts none of its dims.
  std::string cut(OpId id, const LayerStrategy& strategy, int bit, bool is_made) const;
  double moved(CollectiveKind kind, const Bits& bits, double bytes) const;

  const Fold& fold_;
  const CollectiveCosts& collectives_;
  const Cluster& cluster_;
  int64_t devices_;
  std::vector<OpId> first_, last_;  // by unit of the fold: its first and its last op
};

// Writes the strategies of all units into the choice. The most frequent strategy becomes the
// choice's own; units with other strategies get settings of their own. `leaves`: by unit; equal
// strategies must be equal pointers.
void write_leaves(Choice& choice, int64_t devices, const std::vector<const LayerStrategy*>& leaves);

}  // namespace tessera
