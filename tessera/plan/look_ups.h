// The embedding tables of a model: parameters of which forward ops look up rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// A `LookUp` is one op that looks rows of a parameter up. Several look-ups may read one table.
struct LookUp {
  OpId op;
  TensorId table;
  std::string ops;          // a pattern that selects the op: its path
  std::string rows, width;  // names of the table's dims
};

// Returns the look-ups in the order of the ops.
std::vector<LookUp> look_ups_of(const Graph& forward);

}  // namespace tessera
