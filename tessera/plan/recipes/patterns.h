// Patterns that select ops, for several groups of ops at once.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera::recipes {

// Returns patterns_of (writer.h) for each group of forward ops; no op may be twice in a group. The
// paths of the graph are read once, not once for each group.
std::vector<std::vector<std::string>> patterns_of_each(
    const Graph& graph, const std::vector<std::vector<OpId>>& groups);

}  // namespace tessera::recipes
