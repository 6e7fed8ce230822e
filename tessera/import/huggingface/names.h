// Names and layouts of Hugging Face's arrays beside ours: for each family a table of rows, one
// definition that is used in both directions. A row says how our tensor lies in theirs:
//
//   ours                     theirs                        layout
//   blocks.*.attn.q.weight   h.*.attn.c_attn.weight        hidden (1/3 heads group head_dim)
//
// Here their first dim is our `hidden`, and their second the first of three equal parts, whose
// index runs over our heads, group and head_dim, row-major. `*` is the number of a block. `#` in
// their name is the index of our first dim, with an array for each index (experts). With an empty
// layout the dims are ours.
//
// A TensorView is a row applied to a tensor: our tensor as a strided view of arrays of theirs.
// Every element of theirs belongs to exactly one tensor of ours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/models/model.h"

namespace tessera {

struct TensorView {
  std::string name;                  // of our tensor
  std::vector<int64_t> shape;        // of our tensor
  std::vector<std::string> arrays;   // theirs: one, or one for each index of our first dim
  std::vector<int64_t> array_shape;  // of each of their arrays, as in their files
  // Their array with more dims: each is a dim of ours (its number), or kPart: the index of the
  // parts of a fused array, of which ours is the part `part`.
  static constexpr int kPart = -1;
  std::vector<int64_t> split_shape;
  std::vector<int> dims;
  int64_t part = 0;

  bool stacked = false;  // our first dim is no dim of theirs, but an array for each index

  // Returns the place of our region, in split dims, in the array of index `at` of the first dim
  // (stacked), or in the only array.
  Box box(const Box& region) const;
  // Returns whether the elements of a region have the same order there.
  bool same_order() const;
};

// Returns the views of all parameters of the model, in the order of its graph. Returns an error if
// the family has no table, or the model has a parameter that no row names.
Result<std::vector<TensorView>> huggingface_views(const Model& model);

// Names in the files of a family that the table of parameters does not cover.
struct HuggingFaceFiles {
  // Older or shorter spellings: a text in a name and the text that may replace it.
  std::vector<std::pair<std::string, std::string>> spellings;
  // Arrays that no model needs: the end of their names.
  std::vector<std::string> unused;
  // Arrays that may be copies of another array, if no view has their name.
  struct Copy {
    std::string name, original;
    // The key of the family that is 1 if the two are one array; "": they always are. If they have
    // different values in the files, the key is 0 whatever config.json says, as in transformers.
    std::string key = "";
    bool alone = false;  // if the files have one array, or equal ones, the key is 1 too
  };
  std::vector<Copy> copies;
  // Keys of the family whose value is the number of a token of the tokenizer: the tokenizer's name
  // for the token, and the token's text if the tokenizer does not say.
  struct Token {
    std::string key, role, text;
  };
  std::vector<Token> tokens = {};
};
// Returns the rules of the files of a family, or null if the family has no table.
const HuggingFaceFiles* huggingface_files(std::string_view family);

}  // namespace tessera
