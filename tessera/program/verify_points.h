// For which points of an op's iteration space a value stands: with what nobody executes, as points
// behind the diagonal of a causal pair, counted for a box that is there. Private to the verifier.
#pragma once

#include <vector>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"

namespace tessera::verifying {

// Points above the diagonal of a causal pair, and those outside of a band, are executed by nobody.
// The box that sees a query's last key counts for the keys behind it, one that sees the first for
// those before it, and one that sees none for none.
Box counted_by_queries(const Op& op, Box box);
// The same for an output that has the keys and lacks the queries: the box that holds the first
// query of a key counts for the queries before it.
Box counted(const Op& op, const OperandDims& output, const Box& box);

// The elements of such an output, where the keys have a band: which queries see a key depends on
// the key. Runs of keys whose points are counted alike, with what they stand for; by tensor dim.
struct KeyStretch {
  size_t tensor_dim = 0;
  Interval keys;
  Box box;
};
std::vector<KeyStretch> stretches_of(const Op& op, const OperandDims& output, const Box& box);

}  // namespace tessera::verifying
