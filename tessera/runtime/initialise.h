// Computes initial values of parameters, states and tables, region by region. The value of an
// element depends only on the tensor's name, the element's global index and the seed. So any cut of
// a tensor over ranks gives the same numbers, and no rank computes more than its own part.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// Writes the initial values of `region` of the tensor, which the tensor's Init defines, to `to`,
// which has the region's shape.
void initialise(const Tensor& tensor, const Box& region, uint64_t seed, const kernels::Array& to);

}  // namespace tessera
