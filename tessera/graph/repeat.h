// The layers of a model, found by what they compute and not by their names: runs of forward ops
// that follow one another and are equal in kinds, attributes, dims and dtypes, and each of which
// reads from itself, from the run before it or from outside in the same way. An imported model,
// whose ops are called as its author liked, is cut into pipeline stages by them.
//
//   const std::vector<std::vector<OpId>> layers = repeated_blocks(graph);
//   if (!layers.empty()) fmt::print("{} layers of {} ops\n", layers.size(), layers[0].size());
//
// The repetition that covers most ops is taken, of these the one with the shortest blocks. Where
// the first block may begin at several ops (the op behind the last block equals the first one of a
// block), it begins where the fewest tensors go from block to block. Attributes that only tell an
// op from its equals (KindInfo's AttributeInfo::identity: the key of a dropout) may differ.
//
// With Sizes::kAny dims count by their names alone: layers may be unequal, as where each has another
// number of hidden units.
//
// Time: the square of the number of ops, of comparisons of integers.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

enum class Sizes : uint8_t { kEqual, kAny };

// In order, all of the same length; empty if nothing is there twice.
std::vector<std::vector<OpId>> repeated_blocks(const Graph& graph, Sizes sizes = Sizes::kEqual);

}  // namespace tessera
