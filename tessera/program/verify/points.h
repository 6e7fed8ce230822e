// The points of an op's iteration space that a value stands for. No rank executes points above the
// diagonal of a causal pair of dims, or outside a band. So that the executed boxes can still be
// checked to fill the whole space, such points are counted for a box that is executed: the box
// stands for them. Private to the verifier.
#pragma once

#include <vector>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"

namespace tessera::verifying {

// Returns the points that the box stands for, if an output has the queries. The box that has the
// last key that a query sees also stands for the keys after it, and the box that has the first key
// also stands for the keys before it. A box with no key that its queries see stands for nothing.
Box counted_by_queries(const Op& op, Box box);
// Returns the points that the box stands for, for any output. For an output that has the keys of a
// causal pair and lacks the queries, the box that has the first query that sees a key also stands
// for the queries before it. For any other output the result is that of counted_by_queries.
Box counted(const Op& op, const OperandDims& output, const Box& box);

// A `KeyStretch` is a run of neighbouring keys of an output that has the keys and lacks the
// queries, and the box of points that the run stands for. Attention with a band needs such runs,
// because the queries that see a key depend on the key. `tensor_dim`: the output's dim of keys.
struct KeyStretch {
  size_t tensor_dim = 0;
  Interval keys;
  Box box;
};
// Returns the key stretches of the output in the box; empty if the op has no band or the output has
// the queries or lacks the keys.
std::vector<KeyStretch> stretches_of(const Op& op, const OperandDims& output, const Box& box);

}  // namespace tessera::verifying
