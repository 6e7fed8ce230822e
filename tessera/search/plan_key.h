// Writes a text by which equal plans in other words are recognised: the names of axes do not count,
// nor axes of one device, nor whether an axis is written as two neighbours that always cut
// together.
//
//   mesh = { pp = 1, dp = 32, tp = 2 }  split = [{ ops = "*", dim = "batch", over = ["dp", "tp"] }]
//   mesh = { dp = 64 }                  split = [{ ops = "*", dim = "batch", over = "dp" }]
//
// Equal keys mean equal pieces of every op and tensor on every rank. The reverse does not hold: two
// axes are joined only where that is seen from the sizes of the graph's dims.
#pragma once

#include <string>

#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

std::string plan_key(Plan plan, const Graph& forward);

}  // namespace tessera
