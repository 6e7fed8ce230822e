// Internal to the runtime: changes the rounding of a run's sums, to find out how large an effect
// roundings have. Two plans add the terms of a sum in different orders, so their results differ by
// the roundings of partial sums. To measure how much of a difference between two plans comes from
// roundings, the same program is run a second time with other roundings: each element that an op
// sums from k terms is moved by a random part of sqrt(k) roundings. This is the expected size of
// the roundings of k additions, because roundings have either sign. The second run then also shows
// how such a small difference grows in later ops (a norm, a division, a step of the optimizer).
#pragma once

#include <cstdint>
#include <span>

#include "tessera/graph/graph.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Returns the number of terms that are summed for one element of the output. This is the product of
// the sizes of the dims that the output lacks and of the dims that the op sums over internally (a
// norm, attention, a loss). Returns 1 if nothing is summed, so that the order of additions cannot
// matter, and for outputs that are not float64.
double terms_of_sum(const Graph& graph, const Op& op, size_t output);

// Changes the float64 elements of the outputs that the op has just computed by such random
// roundings. Equal seeds give equal changes. Outputs of other types stay as they are.
void round_otherwise(const Graph& graph, const Op& op, std::span<const kernels::Array> outputs,
                     uint64_t seed, int64_t step);

}  // namespace tessera
