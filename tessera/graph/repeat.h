// Finds the layers of a model by their computation and not by their names: runs of forward ops that
// follow one another and are equal in kinds, attributes, dims and dtypes, and each of which reads
// from itself, from the run before it or from outside in the same way. By these layers an imported
// model, whose op names its author chose, is cut into pipeline stages.
//
//   const std::vector<std::vector<OpId>> layers = repeated_blocks(graph);
//   if (!layers.empty()) fmt::print("{} layers of {} ops\n", layers.size(), layers[0].size());
//
// The repetition that covers most ops is taken, and among equals the one with the shortest blocks.
// Where the first block may begin at several ops (the op behind the last block equals the first op
// of a block), it begins where the fewest tensors go from block to block. Attributes that only
// distinguish equal ops (KindInfo's AttributeInfo::identity: the key of a dropout) may differ.
//
// With Sizes::kAny only the names of dims count: layers may be unequal, for example if each has
// another number of hidden units.
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

}  // namespace tessera
