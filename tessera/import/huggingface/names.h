// Names and layouts of Hugging Face's arrays beside ours: for each family a table of rows, one
// definition that is used in both directions. A row says how our tensor lies in theirs:
//
//   ours                     theirs                        layout
//   blocks.*.attn.q.weight   h.*.attn.c_attn.weight        hidden (1/3 heads group head_dim)
//
// Their first dim is our `hidden`, their second the first of three equal parts, whose index runs
// over our heads, group and head_dim, row-major. `*` is the number of a block, `#` in their name the
// index of our first dim, an array for each (experts). An empty layout: the dims are ours.
//
// A TensorView is a row applied to a tensor: our tensor as a strided view of arrays of theirs. Every
// element of theirs belongs to exactly one of ours.
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
  std::vector<int64_t> shape;        // of ours
  std::vector<std::string> arrays;   // theirs: one, or one for each index of our first dim
  std::vector<int64_t> array_shape;  // of each of them, as in their files
  // The same array with more dims: each is one of ours (its number), or kPart: a part of a fused
  // array, of which ours has the one at `part`.
  static constexpr int kPart = -1;
  std::vector<int64_t> split_shape;
  std::vector<int> dims;
  int64_t part = 0;

  bool stacked = false;  // an array for each index of our first dim, which no dim of theirs is

  // Where a region of ours lies in the array of the index `at` of the first dim (stacked), or in the
  // only one: in split dims.
  Box box(const Box& region) const;
  // Do the elements of a region have the same order there?
  bool same_order() const;
};

// The views of all parameters of the model, in the order of its graph. Error: the family has no
// table, or the model has a parameter that no row names.
Result<std::vector<TensorView>> huggingface_views(const Model& model);

// Names in the files of a family that the table of parameters does not cover.
struct HuggingFaceFiles {
  // Older or shorter spellings: a text in a name and what may stand for it.
  std::vector<std::pair<std::string, std::string>> spellings;
  // Arrays that no model needs: the end of their names.
  std::vector<std::string> unused;
  // Arrays that may be another one again, where their name is not of a view.
  struct Copy {
    std::string name, original;
    // The key of the family that is 1 where the two are one array; "": they always are. Where they have
    // other values in the files, the key is 0 whatever config.json says, as in transformers.
    std::string key = "";
    bool alone = false;  // where the files have one array, or equal ones, the key is 1 as surely
  };
  std::vector<Copy> copies;
  // Keys of the family whose value is the number of a token of the tokenizer: what the tokenizer calls
  // it, and what it is if that says nothing.
  struct Token {
    std::string key, role, text;
  };
  std::vector<Token> tokens = {};
};
// Null: the family has no table.
const HuggingFaceFiles* huggingface_files(std::string_view family);

}  // namespace tessera
