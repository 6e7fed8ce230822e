// Finds the best open path through all nodes of a small complete graph, which visits each node once
// and may start anywhere. With `worst` false the sum of the edges is least, with true the largest
// edge. The path is exact up to kExactPathNodes nodes (a dynamic program over subsets). For more
// nodes it is the best of the greedy paths from each start.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::published {

inline constexpr size_t kExactPathNodes = 16;

struct OpenPath {
  double cost = 0;
  std::vector<size_t> nodes;  // the first has a lower number than the last
};
// Returns the best path. `edges` is symmetric. `most_exact` lowers the number of nodes up to which
// the path is exact.
OpenPath best_open_path(const std::vector<std::vector<double>>& edges, bool worst,
                        size_t most_exact = kExactPathNodes);

}  // namespace tessera::published
