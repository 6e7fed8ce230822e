#pragma once

#include <string>

#include "random_case.h"
#include "tessera/graph/graph.h"

namespace tessera {

// A plan for the graph (TOML); adds what it uses to `features`.
std::string random_plan(Choices& choices, const Graph& graph, Features& features);

}  // namespace tessera
