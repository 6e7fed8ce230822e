// Orders of a dim are static permutations that give pieces of equal size equal work under a causal
// mask (docs/strategies/sequence-parallel.md section 2). Index i of a reordered dim holds the
// element that was at position(i).
//
//   ""          position(i) = i
//   "zigzag:P"  the dim in P pieces, in the order 0, P-1, 1, P-2, ...: cut in P/2, each cut has an
//               early and a late piece
//   "striped:P" every P-th element, from 0, then from 1, ...
//
// A size that P does not divide is legal (first pieces one longer); the work is then about equal.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct Order {
  enum class Kind : uint8_t { kNone, kZigzag, kStriped };
  Kind kind = Kind::kNone;
  int64_t pieces = 1;
  friend bool operator==(const Order&, const Order&) = default;
};
Result<Order> parse_order(std::string_view text);

// A run: the indices [index, index + size) hold the positions first, first + stride, ...
struct OpRun {
  int64_t index = 0, first = 0, stride = 1, size = 0;
  friend bool operator==(const OpRun&, const OpRun&) = default;
};
// Returns the runs of the indices in `interval` of a dim of `dim_size`, in order of index, none
// empty. All have the same stride.
std::vector<OpRun> runs_of(const Order& order, int64_t dim_size, Interval interval);

// Returns whether the op leaves out points whose key is behind their query (KindInfo::query_key),
// whatever the order. Attention does if it is causal.
bool is_causal(const Op& op);

// Returns whether the op leaves out points by the places of queries and keys: causal, or a window.
bool leaves_out_points(const Op& op);

// Returns the points of `box`, in the iteration space of an op with queries and keys, that the op
// does not leave out. In a causal op the diagonal counts half.
double visible_points(const Op& op, const Box& box);

}  // namespace tessera
