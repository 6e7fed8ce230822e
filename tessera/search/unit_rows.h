// Joins and borders of a model's units (fold.h), as a row and as a graph.
#pragma once

#include <vector>

#include "tessera/search/fold.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

// Joins neighbours of a row until at most about `most` groups are left, each with one unit or at
// most its share of the work. Returns the first unit of each group.
std::vector<size_t> join_units(const std::vector<double>& work, size_t most);

// A tensor that goes from a group of units to others. A group may have any number.
struct GroupBorder {
  size_t from = 0;
  std::vector<size_t> to;  // groups that read the tensor, each once, without `from`
  double bytes = 0;        // as the model has the tensor
};
// Returns the tensors that go between groups. `group_of`: the group of each unit.
std::vector<GroupBorder> group_borders(const Graph& forward, const std::vector<FoldUnit>& units,
                                       const std::vector<size_t>& group_of);

}  // namespace tessera
