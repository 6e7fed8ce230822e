#pragma once

#include <string>

#include "random_case.h"
#include "tessera/graph/graph.h"

namespace tessera {

// Returns a plan for the graph (TOML); adds what it uses to `features`. `meshes`: as
// random_mesh_case draws it.
std::string random_plan(Choices& choices, const Graph& graph, Features& features,
                        bool meshes = false);

}  // namespace tessera
