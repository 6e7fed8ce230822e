// Writes a text that is equal for plans that are equal but for their notation: for the names of
// axes, for axes of one device, and for an axis that is written as two neighbouring axes that
// always cut together. The two plans here have one key:
//
//   mesh = { pp = 1, dp = 32, tp = 2 }  split = [{ ops = "*", dim = "batch", over = ["dp", "tp"] }]
//   mesh = { dp = 64 }                  split = [{ ops = "*", dim = "batch", over = "dp" }]
//
// With equal keys, every rank has equal pieces of every op and tensor. The converse does not hold,
// because two axes are joined only where the sizes of the graph's dims show that nothing changes.
#pragma once

#include <string>

#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

std::string plan_key(Plan plan, const Graph& forward);

}  // namespace tessera
