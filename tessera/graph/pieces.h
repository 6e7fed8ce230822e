// Tables that are kept in pieces. A loop over the rows of a table (unroll, transform.h) makes each
// piece a parameter of its own, "<name>#<step>", so that a plan can keep and cut each piece on its
// own. Code that initialises, compares, stores or loads a tensor identifies a piece by the name of
// the whole tensor and the piece's place in it, which do not depend on the plan.
//
//   const Origins origins(graph);
//   origins.of(weight_1)        {name "tables.0.weight", rows 40000, first 1000}
//   origins.of(anything else)   the tensor itself, first 0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

// Checks that the text, the attribute `within` (within.h) of an op on a piece of a table, places
// the piece's rows as one interval in a larger table. The ids of such an op name rows of the
// larger table.
Status check_rows_within(std::string_view text, const Dim& rows);
// Returns the index, in the larger tensor, of the op's first element along that dim. The attribute
// `within` tells it (with one block); 0 if the attribute does not name the dim.
int64_t begin_within(const Op& op, int op_dim);

// The whole tensor from which a piece was cut, and the piece's place in it.
struct PieceOrigin {
  std::string name;
  std::vector<int64_t> shape;
  int64_t first = 0;   // the number of the piece's first row in the whole tensor
  bool piece = false;  // false: the tensor is no piece
  Box in_whole(Box region) const;
};

// Finds the origins of parameters, and of gradients and optimizer states of parameters.
class Origins {
 public:
  explicit Origins(const Graph& graph);
  PieceOrigin of(TensorId tensor) const;

 private:
  struct Rows {
    int64_t first = 0, whole = 0;
  };
  const Graph& graph_;
  std::map<TensorId, Rows> pieces_;  // by parameter
};

// Returns the name of the whole tensor: the piece's name without "#<step>".
std::string_view name_of_whole(std::string_view piece);

// Returns the tensor with the name and all rows of the whole that `origin` describes. It is for
// code that makes values from the index of an element in the whole.
Tensor whole_of(const Tensor& tensor, const PieceOrigin& origin);

}  // namespace tessera
