// Gives dims their names. Ops give hints at what their dims are (the keys of an attention, the rows
// of a table); `Sure` says how reliable a hint is. Every dim gets the name of its most reliable
// hint, unless another dim of some tensor that has the dim already has this name. In that case the
// dim gets the name of its next hint, or a name with a number.
//
// The names are the ones that recipes look for (docs/reference/models.md): batch, seq, kv, heads,
// group, head_dim, hidden, ffn, vocab.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/import/pt2/dims.h"

namespace tessera::pt2 {

// How reliable a hint is, the most reliable first.
enum class Sure : uint8_t {
  kRole,   // an op gives the dim a meaning: batch, keys, heads, rows of a table
  kWidth,  // the width that norms and residual sums share
  kInner,  // a width between two products
  kPart,   // the dim's origin: filters of a convolution, a part of a cut dim
  kLast,   // a name for dims that have no better hint
};

class Hints {
 public:
  void add(const Vars& vars, std::string name, Sure sure);
  // Adds the input and output features of a product with a weight. A dim that is the output of one
  // product and the input of another is an inner width (kInner).
  void add_product(const Vars& in, const Vars& out);
  struct Product {
    Vars in, out;
  };
  struct Hint {
    Vars vars;
    std::string name;
    Sure sure;
  };
  const std::vector<Hint>& hints() const { return hints_; }
  const std::vector<Product>& products() const { return products_; }

 private:
  std::vector<Hint> hints_;
  std::vector<Product> products_;
};

// Returns the name of each leaf (dims.h).
std::map<Var, std::string> name_dims(const DimTable& dims, const Hints& hints);

}  // namespace tessera::pt2
