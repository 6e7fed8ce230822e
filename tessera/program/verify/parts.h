// The values of the verifier's abstract interpretation. A value says which region of which tensor a
// buffer holds, and which parts of the tensor's value have been merged so far.
//
// A value is complete (PartsRef is null) or a set of parts:
//   leaf  made by an op that reduces over dims which this output lacks. A leaf has disjoint boxes
//         in the space of these dims, and is complete when the boxes fill the space.
//   node  made by a linear op (add, scale, cast, add_n) from incomplete inputs. A node has, for
//         each input, the parts that have been counted, and is complete when every input is
//         complete.
// When two values of a tensor are merged, leaves are united box by box and nodes input by input. If
// both values have the same box or input, it would be counted twice, which is an error.
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

// Makes a leaf with one box: `box`, which is a box of the op's iteration space, projected on
// `dims`, the reduction dims that output `output` lacks.
PartsRef make_leaf(const Op& op, size_t output, const std::vector<int>& dims, const Box& box);
PartsRef make_node(const Op& op, std::vector<std::optional<PartsRef>> terms);

// Merges `from` into `into`. Returns the text of the error; "" if there is no error.
std::string merge_parts(const Graph& graph, PartsRef& into, const PartsRef& from,
                        Combiner combiner);
std::string describe(const Graph& graph, const PartsRef& parts);

// Adds a box to a set of disjoint boxes and fuses boxes that together make a box. Returns false if
// the new box overlaps a box of the set.
bool add_disjoint(std::vector<Box>& set, const Box& box);
// Adds to `set` the part of `box` that no box of the set covers.
void add_union(std::vector<Box>& set, const Box& box);
int64_t volume_of(const std::vector<Box>& set);

// A `RowsThere` says that a buffer has only some rows of a region of a table: the rows that the ids
// of the interval `rows` of the op's rows name (NamedRows, program.h).
struct RowsThere {
  OpId op;
  Interval rows;
};

// A `Piece` is a region of a tensor's value that a buffer holds. `local` and `global` are boxes of
// the same shape.
struct Piece {
  Box local;   // in the buffer (or relative to a view, for values in flight)
  Box global;  // in the tensor
  TensorId tensor;
  PartsRef parts;
  std::optional<RowsThere> named{};  // unset: all rows
};

Box moved(Box box, const Box& from, const Box& to);  // moved by the begin of `to` minus `from`'s
bool overlaps(const Box& a, const Box& b);           // boxes of equal rank; makes no copies
Piece clip(const Piece& piece, const Box& local);    // `local` lies inside piece.local
// Removes from the content of a buffer what lies inside `region`, a box in the buffer.
void erase_region(std::vector<Piece>& content, const Box& region);
// Merges a piece into the content of a buffer. Where pieces of the content cover the piece's local
// box, their parts are merged; the rest of the piece is added as it is. Returns the text of the
// error; "" if there is no error.
std::string merge_piece(const Graph& graph, std::vector<Piece>& content, const Piece& piece,
                        Combiner combiner);

}  // namespace tessera::verifying
