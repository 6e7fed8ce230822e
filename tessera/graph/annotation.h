// A dimension annotation is a text in a small language that describes each operand of an op as a
// list of the op's own named dims (its iteration space). The inputs are written first, then an
// arrow, then the outputs. Commas separate the operands.
//
//   text                                        what it shows
//   ------------------------------------------  -------------------------------------------------
//   b s k+, k+ n -> b s n                       A matrix product. k+ is a reduction dim: pieces of
//                                               it make parts of the output.
//   b s v+, b s -> b s {logsumexp}, b s         An output may name the combiner that merges its
//                                               parts. Without a name it is the sum.
//   b q h g d^, b kv^ h d^, b kv^ h d^ -> ...   ^ freezes a dim: it is never split.
//   (h p) w -> h p w                            Brackets make one tensor dim of several op dims,
//                                               row-major. Only the first of them can be split.
//   b i+ y~3/2/1, o i+ 3 -> b o y               y~kernel/stride/padding is a window: a piece of y
//                                               needs its region and a halo. The mark is written at
//                                               each tensor dim that is read through the window; y
//                                               without the mark is the position of the window.
//   b o x~-3/2/1, o i 3 -> b i x                x~-3/2/1 is the other direction: x counts the
//                                               elements under the windows, and a piece of x needs
//                                               the positions of all windows that contain an
//                                               element of the piece.
//   b x~-2/2/0, b x~~2/2/0 -> b x               x~~2/2/0: a piece of x needs all elements of the
//                                               windows that contain an element of the piece.
//   b q h d^, b kv<q h d^ -> ...                kv<q is a causal pair: a box of q needs kv up to
//                                               its last element.
//
// A mark may be written at any occurrence of a dim and holds for the whole op. Two
// different marks for one dim are an error. A dim that some output lacks is a reduction
// dim, with or without `+`. A number is a frozen dim of that size, and `()` is a scalar.
// Grammar: docs/reference/annotations.md.
//
//   TESSERA_TRY(Annotation annotation, parse_annotation("b k+, k+ n -> b n"));
//   TESSERA_TRY_VOID(bind_sizes(annotation, {{8, 4}, {4, 16}}, {{8, 16}}));
//   annotation.dims[annotation.find("n")].size;  // 16
//
// Annotations are values. Equal ops share the lists of their annotations in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/base/shared_list.h"

namespace tessera {

enum class Mark : uint8_t {
  kSpatial,    // pieces of the op make pieces of every output that has the dim
  kReduction,  // some output lacks it: pieces make parts of that output, merged by its combiner
  kFrozen,     // never split
};

struct Window {
  int64_t kernel = 1, stride = 1, padding = 0;
  friend bool operator==(const Window&, const Window&) = default;
  friend auto operator<=>(const Window&, const Window&) = default;
};

// A `WindowUse` says how a tensor dim is read through the windows of its op dim.
//   kUnder   the op dim counts windows, the tensor dim counts the elements under the windows
//   kOver    the op dim counts elements under the windows, the tensor dim has one entry per window
//   kBeside  both dims count elements: an element of the op dim reads all those of the tensor dim
//            that are in a window together with it
enum class WindowUse : uint8_t { kUnder, kOver, kBeside };

// A dim of an op's iteration space.
struct OpDim {
  std::string name;   // "batch", "hidden"; a literal dim is named by its number ("3")
  int64_t size = -1;  // -1: not bound yet
  Mark mark = Mark::kSpatial;
  std::optional<Window> window;
  // The size of the tensor dims that are read through the window as kUnder or kOver (as kBeside
  // they have `size`); -1: not bound yet.
  int64_t window_extent = -1;
  // If this dim counts the places in each block of a tensor dim, and the blocks differ in size,
  // this is the size of that tensor dim. Then the first blocks have `size` places and the other
  // blocks one place less. -1: all blocks are equal.
  int64_t uneven_extent = -1;
  int causal_of = -1;   // index of the query dim if this is the key dim of a causal pair
  bool hidden = false;  // frozen only because it is not the first dim of its bracket
  bool literal() const { return !name.empty() && name[0] >= '0' && name[0] <= '9'; }
  friend bool operator==(const OpDim&, const OpDim&) = default;
};

// A tensor dim as a row-major product of op dims (usually one op dim). The numbers are indices
// in Annotation::dims.
using DimGroup = std::vector<int>;

struct OperandDims {
  std::vector<DimGroup> dims;          // for each tensor dim
  Combiner combiner = Combiner::kSum;  // outputs only: how parts of the output are merged
  struct Windowed {
    int dim = 0;  // the tensor dim that is read through the window of its op dim
    WindowUse use = WindowUse::kUnder;
    friend bool operator==(const Windowed&, const Windowed&) = default;
  };
  std::vector<Windowed> windowed;
  bool contains(int op_dim) const;
  bool is_windowed(size_t tensor_dim) const { return window_use(tensor_dim).has_value(); }
  std::optional<WindowUse> window_use(size_t tensor_dim) const;
  friend bool operator==(const OperandDims&, const OperandDims&) = default;
};

// Says which part of a tensor dim of size `extent` is read, through windows, by a piece of an op
// dim of size `size`.
struct WindowRead {
  Window window;
  WindowUse use = WindowUse::kUnder;
  int64_t size = 0, extent = 0;
  // Returns the interval that `piece` reads: it contains the halo, and is cut off where the padding
  // begins. The whole op dim reads the whole tensor dim, also elements that no window reaches. An
  // empty piece reads nothing.
  Interval of(Interval piece) const;
  friend bool operator==(const WindowRead&, const WindowRead&) = default;
  friend auto operator<=>(const WindowRead&, const WindowRead&) = default;
};

// Returns the size of the tensor dim that the bracket `group` makes, if the blocks in the bracket
// are uneven, else -1.
int64_t uneven_extent(const std::vector<OpDim>& dims, const DimGroup& group);

struct Annotation {
  SharedList<OpDim> dims;  // iteration space, in order of first occurrence
  SharedList<OperandDims> inputs;
  SharedList<OperandDims> outputs;
  int find(std::string_view name) const;  // index or -1
  // Returns whether output `output` lacks `op_dim`, so that a split of `op_dim` makes parts of
  // that output.
  bool reduces(int op_dim, size_t output) const;
  // Returns how the operand reads that tensor dim through a window, or nothing if it reads the dim
  // without a window.
  std::optional<WindowRead> window_read(const OperandDims& operand, size_t tensor_dim) const;
  friend bool operator==(const Annotation&, const Annotation&) = default;
};

// Parses the text. Sizes stay unbound, except those of literals. An error names the column:
// "annotation column 7: ...".
Result<Annotation> parse_annotation(std::string_view text);
// Prints the canonical text, with marks at the first occurrence only. The text parses back to an
// equal value, except for sizes.
std::string to_string(const Annotation& annotation);
// Binds sizes from the shapes of inputs and outputs, and checks that equal names have equal sizes
// and that the products of brackets match. One unknown size in a bracket is inferred. Sizes and
// extents of uneven blocks that were bound before are kept and checked.
Status bind_sizes(Annotation& annotation, const std::vector<std::vector<int64_t>>& input_shapes,
                  const std::vector<std::vector<int64_t>>& output_shapes);

}  // namespace tessera
