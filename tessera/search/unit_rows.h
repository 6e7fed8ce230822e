// Units of a model (fold.h) as a row and as a graph.
#pragma once

#include <vector>

#include "tessera/search/fold.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

// Joins neighbours of a row until at most about `most` are left, each with at most its share of the
// work or one unit; the first unit of each.
std::vector<size_t> join_units(const std::vector<double>& work, size_t most);

// A tensor that goes from a group of units to others. Groups: by unit, any numbers.
struct GroupBorder {
  size_t from = 0;
  std::vector<size_t> to;  // groups that read it, each once, without `from`
  double bytes = 0;        // as the model has it
};
std::vector<GroupBorder> group_borders(const Graph& forward, const std::vector<FoldUnit>& units,
                                       const std::vector<size_t>& group_of);

}  // namespace tessera
