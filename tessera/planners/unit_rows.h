// Joins a model's units (fold.h) into groups, and finds the tensors that go between groups.
#pragma once

#include <vector>

#include "tessera/search/price/fold.h"
#include "tessera/search/price/unit_prices.h"

namespace tessera {

// Joins neighbouring units of a row into groups, about `most` or fewer. A group has at most 1 /
// `most` of all work, or is a single unit. Returns the first unit of each group. With at most
// `most` units joins nothing.
std::vector<size_t> join_units(const std::vector<double>& work, size_t most);

// A tensor that one group of units makes and others read.
struct GroupBorder {
  size_t from = 0;
  std::vector<size_t> to;  // groups that read the tensor, each once, without `from`
  double bytes = 0;        // bytes of the tensor in the model
  TensorId tensor = {};
};
// Returns all tensors that go between groups. `group_of`: the group of each unit.
std::vector<GroupBorder> group_borders(const Graph& forward, const std::vector<FoldUnit>& units,
                                       const std::vector<size_t>& group_of);

}  // namespace tessera
