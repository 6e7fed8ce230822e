// Patterns that select ops, for several groups of ops at once.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera::recipes {

// patterns_of (writer.h) of each group of forward ops, none of which is twice in a group. The paths of
// the graph are read once, not once a group.
std::vector<std::vector<std::string>> patterns_of_each(
    const Graph& graph, const std::vector<std::vector<OpId>>& groups);

}  // namespace tessera::recipes
