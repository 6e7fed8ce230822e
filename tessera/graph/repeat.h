// Finds the layers of a model from its computation, without the names of its ops. A layer is a run
// of consecutive forward ops. The layers that follow one another are equal in kinds, attributes,
// dims and dtypes, and each reads in the same way from itself, from the layer before it and from
// ops outside. With these layers an imported model, whose op names its author chose, is cut into
// pipeline stages.
//
//   const std::vector<std::vector<OpId>> layers = repeated_blocks(graph);
//   if (!layers.empty()) fmt::print("{} layers of {} ops\n", layers.size(), layers[0].size());
//
// The repetition that covers most ops is taken, and among several of equal coverage the one with
// the shortest blocks. If the op after the last block equals the first op of a block, the first
// block may begin at several ops. It then begins where the fewest tensors go from block to block.
// Attributes that only distinguish equal ops (AttributeInfo::identity in kinds.h, such as the key
// of a dropout) may differ.
//
// With Sizes::kAny only the names of dims are compared. Layers may then have unequal sizes, for
// example different numbers of hidden units.
//
// Time: the square of the number of ops, in comparisons of integers.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

enum class Sizes : uint8_t { kEqual, kAny };

// Returns the blocks in order, all of the same length; empty if nothing repeats.
std::vector<std::vector<OpId>> repeated_blocks(const Graph& graph, Sizes sizes = Sizes::kEqual);

// The layers of a block that consists of several unlike ones. Hybrid models have such blocks: five
// layers whose attention has a window and one without, or state spaces with attention between them.
struct BlockLayers {
  std::vector<size_t> begins;  // by layer: its first op, as a position in the block
  std::vector<int> kinds;      // by layer: layers that are equal have the same number, from 0 on
  // Layers of these kinds directly before the first block and directly behind the last one, where
  // the model does not begin or end with a whole block.
  struct Beside {
    int kind = 0;
    std::vector<OpId> ops;
  };
  std::vector<Beside> beside;
};

// Cuts the blocks of repeated_blocks() into layers. A block can be cut where no more tensors go from
// op to op than from block to block. If one of the pieces between such places occurs more than
// twice, each of its occurrences ends a layer (the MLPs of six layers do). Otherwise the block is
// one layer.
BlockLayers layers_of_blocks(const Graph& graph, const std::vector<std::vector<OpId>>& blocks);

}  // namespace tessera
