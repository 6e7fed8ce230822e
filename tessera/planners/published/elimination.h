// Solves the program of one_hot.h (without limits) exactly by taking out one node after another.
// The best choice of a node is stored in a table over the choices of its neighbours, which then
// become neighbours of each other. The work depends on how the graph hangs together, not on its
// size: layers with their gradients and updates need tables over four or five nodes, however many
// layers there are.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace tessera::published {

// Costs by choice of the first node, then of the second.
using PairCosts = std::vector<std::vector<double>>;

// Returns the best choices of the nodes; `taken` marks nodes to leave out, whose choices are
// returned as 0. Returns nothing if a table, or all tables together, would be too large.
// `neighbours` has each pair in both directions. Forbidden choices and pairs cost infinity; if
// nothing is allowed, the choices cost infinity too.
std::optional<std::vector<size_t>> choose_by_elimination(
    const std::vector<std::vector<double>>& nodes,
    const std::vector<std::map<size_t, PairCosts>>& neighbours, const std::vector<bool>& taken);

}  // namespace tessera::published
