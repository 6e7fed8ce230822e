// Maps the names and layouts of Hugging Face's arrays ("theirs") to those of our tensors ("ours").
// Each model type has a table of rows, which import and export both use. A row says which part of
// their array is our tensor, and in which order of dims:
//
//   ours                     theirs                        layout
//   blocks.*.attn.q.weight   h.*.attn.c_attn.weight        hidden (1/3 heads group head_dim)
//
// Here their first dim is our `hidden`. Their second dim has three equal parts, and our tensor is
// the first part (1/3). The index in this part runs over our heads, group and head_dim, row-major.
// `*` is the number of a block. `#` in their name is an index of our first dim: they have one array
// for each index (each expert). If the layout is empty, their dims are our dims.
//
// Where the parts of a fused array have different sizes, the row names our tensors that follow each
// other in it (NameRow::fused), once or for each index of a dim, as for each head. In a|b the dim
// counts that our tensor has.
//
// A TensorView is a row applied to one of our tensors: it describes our tensor as a strided view of
// their arrays. Every element of their arrays belongs to exactly one of our tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/models/model.h"
#include "tessera/state/source.h"

namespace tessera {

struct TensorView {
  std::string name;                  // name of our tensor
  std::vector<int64_t> shape;        // shape of our tensor
  std::vector<std::string> arrays;   // their arrays: one, or one for each index of our first dim
  std::vector<int64_t> array_shape;  // shape of each of their arrays, as in their files
  // The shape of their array after its dims are split further, so that each split dim is either one
  // of our dims or the index of the parts of a fused array. `dims` has for each split dim the number
  // of our dim, or kPart for the index of the parts.
  static constexpr int kPart = -1;
  std::vector<int64_t> split_shape;
  std::vector<int> dims;
  // For each split dim, the first index that our tensor has: the number of a part, else 0.
  std::vector<int64_t> starts;
  // Where their array also has the rows of other tensors, the split shape is that of our rows alone.
  // Every `period` elements of their array then have a `run` of ours, from number `first` on.
  int64_t first = 0, run = 0, period = 0;  // period 0: all elements are in the split shape

  bool stacked = false;  // they have one array for each index of our first dim

  // Returns where a region of our tensor is in their array, in split dims. If `stacked`, the index of
  // our first dim chooses the array and is not used here.
  Box box(const Box& region) const;
  // Returns the ranges of their array that hold a box of split dims, in order.
  std::vector<ByteRange> ranges(const Box& box, int64_t bytes_per_element) const;
  // Returns whether the elements of our tensor have the same order in their arrays.
  bool same_order() const;
};

// Returns the model type whose names the model's arrays have: that of its config.json, or the first
// one that computes the model. Returns an error if there is none.
Result<std::string> huggingface_type_of(const Model& model);

// Returns the views of all parameters of the model, in the order of its graph. Returns an error if
// no model type with a table computes the model, or the model has a parameter that no row names.
Result<std::vector<TensorView>> huggingface_views(const Model& model);

// Rules for names in the files of a model type that have no row in the table of parameters.
struct HuggingFaceFiles {
  // Other spellings of names, older or shorter: a text in a name of the table, and the text that
  // files may have in its place.
  std::vector<std::pair<std::string, std::string>> spellings;
  // Ends of the names of arrays that no model needs, or beginnings, with a `*` behind them.
  std::vector<std::string> unused;
  // Arrays that may be in the files as copies of another array, `original`, unless a view has their
  // name. A `*` in a name stands for the number of a block.
  struct Copy {
    std::string name, original;
    // The key of the family that is 1 if the model uses one array for both names, else 0. Empty:
    // the model always uses one array. If the files have different values for the two names, the
    // key becomes 0 whatever config.json says, as in transformers.
    std::string key = "";
    bool alone = false;  // true: the key becomes 1 if the files have only one, or two equal arrays
  };
  std::vector<Copy> copies;
  // Keys of the family whose value is the number of a token. `role` is the tokenizer's name for the
  // token; `text` is the token to look for if the tokenizer has no such name.
  struct Token {
    std::string key, role, text;
  };
  std::vector<Token> tokens = {};
  // The end of the name of an array that only blocks for further tokens have, or "". The arrays of such
  // a block are left out unless the model has the block.
  std::string further = "";
};
// Returns the rules of the files of a model's type, or null if no type with a table computes it.
const HuggingFaceFiles* huggingface_files(const Model& model);

}  // namespace tessera
