#pragma once

#include "random_case.h"
#include "tessera/graph/graph.h"

namespace tessera {

// Returns a forward graph in float64 with a loss that every parameter influences. If there are ops
// "pass.*", the graph begins with them: they have no gradient. `weights_apart`: parameters are
// called "weights.op3.bias", not "op3.bias", so that no selector of ops also takes tensors made of
// them.
Graph random_graph(Choices& choices, bool weights_apart = false);

}  // namespace tessera
