// Cuts an attention box into rectangles of queries and keys, each of which is either completely
// below the causal diagonal or a square on the diagonal.
#pragma once

#include <vector>

#include "tessera/graph/order.h"

namespace tessera::kernels {

// A rectangle of queries and keys. The indices count from the box's first query and first key.
struct Rectangle {
  Interval queries, keys;
  bool causal = false;  // a square on the diagonal, of which only the lower half is computed
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// Returns the rectangles in which some query sees some key. `queries` and `keys` are intervals of
// indices in dims of `size` elements, whose tokens are in the order `order`. If not causal, returns
// one rectangle, the whole box.
std::vector<Rectangle> rectangles(Interval queries, Interval keys, bool causal, const Order& order,
                                  int64_t size);

}  // namespace tessera::kernels
