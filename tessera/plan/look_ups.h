// The embedding tables of a model: parameters of which forward ops look up rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// One op that looks rows of a parameter up. Several may read one table.
struct LookUp {
  OpId op;
  TensorId table;
  std::string ops;          // a pattern that selects the op: its path
  std::string rows, width;  // names of the table's dims
};

// In the order of the ops.
std::vector<LookUp> look_ups_of(const Graph& forward);

}  // namespace tessera
