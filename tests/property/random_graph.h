#pragma once

#include "random_case.h"
#include "tessera/graph/graph.h"

namespace tessera {

// A forward graph in float64 with a loss that every parameter influences. With ops "pass.*" it
// begins with those: they have no gradient.
Graph random_graph(Choices& choices);

}  // namespace tessera
