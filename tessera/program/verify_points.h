// The points of an op's iteration space that a value stands for. Points that nobody executes, such
// as those behind the diagonal of a causal pair, are counted for a box that is executed. Private to
// the verifier.
#pragma once

#include <vector>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"

namespace tessera::verifying {

// Returns the box with the points that it counts for. Nobody executes points above the diagonal of
// a causal pair, or outside of a band. The box that sees a query's last key counts for the keys
// behind it, the box that sees the first key for those before it, and a box that sees no key counts
// for nothing.
Box counted_by_queries(const Op& op, Box box);
// Returns the counted box as above, but for an output that has the keys and lacks the queries: the
// box that holds the first query of a key counts for the queries before it.
Box counted(const Op& op, const OperandDims& output, const Box& box);

// A `KeyStretch` is a run of keys of such an output whose points are counted alike, by tensor dim,
// with the box that it stands for. It serves keys with a band, where the key decides which queries
// see it.
struct KeyStretch {
  size_t tensor_dim = 0;
  Interval keys;
  Box box;
};
std::vector<KeyStretch> stretches_of(const Op& op, const OperandDims& output, const Box& box);

}  // namespace tessera::verifying
