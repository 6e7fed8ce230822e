// An order of a dim is a static permutation of its elements. It makes the work of equally large
// pieces equal under a causal mask (docs/strategies/sequence-parallel.md section 2). Index i of a
// reordered dim holds the element whose position was position(i).
//
//   ""          position(i) = i
//   "zigzag:P"  the dim is in P pieces, in the order 0, P-1, 1, P-2, ...: if the dim is then cut in
//               P/2, each part has an early and a late piece
//   "striped:P" every P-th element from 0 on, then every P-th from 1 on, ...
//
// A size that P does not divide is legal. The first pieces are then longer by one element, and the
// work is only about equal.
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

// A run: the indices [index, index + size) hold the positions first, first + stride, and so on.
struct OpRun {
  int64_t index = 0, first = 0, stride = 1, size = 0;
  friend bool operator==(const OpRun&, const OpRun&) = default;
};
// Returns the runs of the indices in `interval`, a part of a dim of `dim_size`, in order of index.
// No run is empty, and all runs have the same stride.
std::vector<OpRun> runs_of(const Order& order, int64_t dim_size, Interval interval);

// Returns whether the op leaves out, in every order, the pairs of a query and a key at a later
// position (KindInfo::query_key), as causal attention does.
bool is_causal(const Op& op);

// Returns whether the op leaves out pairs of queries and keys because of their positions: it is
// causal or has a window.
bool leaves_out_points(const Op& op);

// Returns the number of points of `box` that the op, which has queries and keys, does not leave
// out. `box` is in the op's iteration space. In a causal op each point of the diagonal counts half.
double visible_points(const Op& op, const Box& box);

}  // namespace tessera
