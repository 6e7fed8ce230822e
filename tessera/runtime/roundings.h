// Internal to the runtime: a run whose sums are rounded in another way. Two plans add the terms of
// a sum in different orders, so their results differ by the roundings of partial sums. A second run
// of one and the same program tells how much of a difference between two runs that explains: each
// element that an op sums from k terms is moved by a random part of sqrt(k) roundings, which is the
// size of the roundings of k additions, as they have either sign. The run itself shows how such a
// difference grows behind a norm, a division or a step of the optimizer.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/graph/graph.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Returns how many terms each element of the output is a sum of: over dims that the output lacks,
// and those that the op sums over by itself (a norm, attention, a loss). 1: nothing is summed, so
// no order changes the result.
double terms_of_sum(const Graph& graph, const Op& op, size_t output);

// Moves the elements that the op has just computed, if they are float64. Equal seeds move them
// equally.
void round_otherwise(const Graph& graph, const Op& op, std::span<const kernels::Array> outputs,
                     uint64_t seed, int64_t step);

}  // namespace tessera
