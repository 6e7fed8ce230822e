// The values of the verifier's abstract interpretation: which region of which tensor a buffer
// holds, and which parts of it have been merged so far.
//
// A value is complete (PartsRef is null) or a set of parts:
//   leaf  made by an op with reduction dims that this output lacks: disjoint boxes in the space of
//         those dims. Complete when they fill that space.
//   node  made by a linear op (add, scale, cast, add_n) from incomplete inputs: the parts of each
//         input that have been counted. Complete when every input is complete.
// When two values of a tensor are merged, leaves are united box by box and nodes input by input. A
// box or an input that both sides have would be counted twice, which is an error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/graph/graph.h"

namespace tessera::verifying {

struct Parts;
using PartsRef = std::shared_ptr<const Parts>;  // null: complete

struct Parts {
  OpId op;
  size_t output = 0;
  std::vector<Box> boxes;                      // leaf
  std::vector<std::optional<PartsRef>> terms;  // node: by input of `op`; unset: not counted yet
  bool is_node() const { return !terms.empty(); }
};

// Makes a leaf. `dims`: the op dims that output `output` lacks; `box`: of the iteration space.
PartsRef make_leaf(const Op& op, size_t output, const std::vector<int>& dims, const Box& box);
PartsRef make_node(const Op& op, std::vector<std::optional<PartsRef>> terms);

// Merges `from` into `into`. Returns the error's text; "" if there is none.
std::string merge_parts(const Graph& graph, PartsRef& into, const PartsRef& from,
                        Combiner combiner);
std::string describe(const Graph& graph, const PartsRef& parts);

// Adds a box to a set of disjoint boxes and fuses neighbours. Returns false if the box overlaps one
// of them.
bool add_disjoint(std::vector<Box>& set, const Box& box);
// Adds the part of `box` that `set` lacks.
void add_union(std::vector<Box>& set, const Box& box);
int64_t volume_of(const std::vector<Box>& set);

// A `RowsThere` says that a region of a table contains only the rows that these rows of the op name
// (NamedRows).
struct RowsThere {
  OpId op;
  Interval rows;
};

// A `Piece` is a region of a tensor's value that lies in a buffer. `local` and `global` have the
// same shape.
struct Piece {
  Box local;   // in the buffer (or relative to a view, for values in flight)
  Box global;  // in the tensor
  TensorId tensor;
  PartsRef parts;
  std::optional<RowsThere> named{};  // unset: all rows
};

Box moved(Box box, const Box& from, const Box& to);  // moves by the distance of their begins
bool overlaps(const Box& a, const Box& b);           // boxes of equal rank; makes no copies
Piece clip(const Piece& piece, const Box& local);    // `local` lies inside piece.local
// Removes the part of the content that lies in `region` (local).
void erase_region(std::vector<Piece>& content, const Box& region);
// Merges a piece into the content, by local box. Parts of the piece that the content lacks are
// added as they are.
std::string merge_piece(const Graph& graph, std::vector<Piece>& content, const Piece& piece,
                        Combiner combiner);

}  // namespace tessera::verifying
