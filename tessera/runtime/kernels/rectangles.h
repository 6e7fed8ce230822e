// Cuts an attention box into rectangles of queries and keys, each wholly below the causal diagonal
// or a square on it.
#pragma once

#include <vector>

#include "tessera/graph/order.h"

namespace tessera::kernels {

// Queries and keys in local indices of the box.
struct Rectangle {
  Interval queries, keys;
  bool causal = false;  // a square on the diagonal: its upper half is left out
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// Returns the rectangles of the queries and keys (intervals of indices of dims of `size` elements
// in `order`) in which some query sees some key. If not causal, there is one.
std::vector<Rectangle> rectangles(Interval queries, Interval keys, bool causal, const Order& order,
                                  int64_t size);

}  // namespace tessera::kernels
