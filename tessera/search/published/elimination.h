// Makes exact choices for a program of nodes and pairs (one_hot.h without limits) by taking out one
// node after another: the best choice of a node is a table over its neighbours, which become
// neighbours of each other. The work depends on how the graph hangs together, not on its size:
// layers with their gradients and updates need tables over four or five nodes, however many layers
// there are.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace tessera::published {

// Costs by choice of the first node, then of the second.
using PairCosts = std::vector<std::vector<double>>;

// Returns the best choices of the nodes that `taken` does not name (choice 0 stands for the
// others), or none if a table over neighbours, or all tables together, would be too large.
// `neighbours` has each pair in both directions. Forbidden choices and pairs cost infinity; if
// nothing is allowed, the choices cost infinity too.
std::optional<std::vector<size_t>> choose_by_elimination(
    const std::vector<std::vector<double>>& nodes,
    const std::vector<std::map<size_t, PairCosts>>& neighbours, const std::vector<bool>& taken);

}  // namespace tessera::published
