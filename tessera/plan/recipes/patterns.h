// Finds patterns that select ops, for several groups of ops at once.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera::recipes {

// Returns the result of patterns_of (writer.h) for each group of forward ops. No op may be twice
// in one group. This is faster than calls for each group, because the paths of the graph are read
// only once.
std::vector<std::vector<std::string>> patterns_of_each(
    const Graph& graph, const std::vector<std::vector<OpId>>& groups);

}  // namespace tessera::recipes
