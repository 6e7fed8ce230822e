// Internal to the runtime: a run whose sums are rounded in another way. Two plans add the terms of a
// sum in different orders, so what they make differs by the roundings of its partial sums. How much
// of a difference between two runs that explains, a second run of one and the same program tells:
// each element that an op adds up of k terms is moved by a random part of sqrt(k) roundings, which is
// what the roundings of k additions come to, as they have either sign. What a difference of that
// size becomes behind a norm, a division or a step of the optimizer, the run itself shows.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/graph/graph.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// How many terms each element of the output is a sum of: of dims that the output lacks, and of
// those that the op sums over by itself (a norm, attention, a loss). 1: nothing is added up, so that
// no order changes what comes out.
double terms_of_sum(const Graph& graph, const Op& op, size_t output);

// Moves the elements of what the op has just made, in float64 alone. The same for the same seed.
void round_otherwise(const Graph& graph, const Op& op, std::span<const kernels::Array> outputs,
                     uint64_t seed, int64_t step);

}  // namespace tessera
