// Finds the embedding tables of a model. An embedding table is a parameter whose rows a forward op
// looks up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// A `LookUp` is one op that looks up rows of a table. Several ops may read one table.
struct LookUp {
  OpId op;
  TensorId table;
  std::string ops;          // the path of the op, used as a pattern that selects it
  std::string rows, width;  // names of the table's dims
};

// Returns the look-ups in the order of the ops.
std::vector<LookUp> look_ups_of(const Graph& forward);

}  // namespace tessera
