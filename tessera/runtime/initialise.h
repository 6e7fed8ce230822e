// Computes initial values of parameters, states and tables, region by region: the value of an
// element depends on the tensor's name, its global index and the seed only, so any cut of a tensor
// over ranks gives the same numbers and no rank builds more than its own part. Also the bits of
// dropout, by the same rule.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Writes `region` of the tensor (whose Init says how) to `to`, which has the region's shape.
void initialise(const Tensor& tensor, const Box& region, uint64_t seed, const kernels::Array& to);

}  // namespace tessera
