// Tables that rest in pieces. A loop over the rows of a table (unroll, transform.h) makes each
// piece a parameter of its own, "<name>#<step>", so that each piece is kept and cut as a plan says.
// Tensors that live across steps are known by their name and place in the whole tensor, whatever
// the plan is: by these a piece is initialised, compared, stored and loaded.
//
//   const Origins origins(graph);
//   origins.of(weight_1)     {name "tables.0.weight", rows 40000, first 1000}
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

// Checks that the attribute `within` (within.h) of an op on a piece places the rows of the piece,
// an interval, in a larger table. Ids name rows of the whole table.
Status check_rows_within(std::string_view text, const Dim& rows);
// Returns the op's first element in the larger tensor along that dim (one block), as the attribute
// says, or 0 if it does not name the dim.
int64_t begin_within(const Op& op, int op_dim);

// The whole tensor of which a tensor is a piece, and the piece's place in it.
struct PieceOrigin {
  std::string name;
  std::vector<int64_t> shape;
  int64_t first = 0;   // its first row there
  bool piece = false;  // false: it is the tensor itself
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

// Returns the tensor's name without the step of the loop that cut it.
std::string_view name_of_whole(std::string_view piece);

// Returns the whole tensor, with that name and all rows, for code that makes values by the place of
// an element.
Tensor whole_of(const Tensor& tensor, const PieceOrigin& origin);

}  // namespace tessera
