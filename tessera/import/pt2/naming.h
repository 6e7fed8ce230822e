// Gives dims their names. An op hints at what its dims are (the keys of an attention, the rows of a
// table); the better the hint, the smaller its rank. Every dim gets the name of its best hint
// unless a dim that stands beside it in some tensor has that name: then it gets that of the next
// hint, or the name with a number.
//
// The names are those on which recipes rely (docs/reference/models.md): batch, seq, kv, heads,
// group, head_dim, hidden, ffn, vocab.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/import/pt2/dims.h"

namespace tessera::pt2 {

// Says how sure a hint is.
enum class Sure : uint8_t {
  kRole,   // the dim's meaning for an op: batch, keys, heads, rows of a table
  kWidth,  // the width that norms and residual sums share
  kInner,  // a width between two products
  kPart,   // the dim's origin: a kernel's height, an output of a layer
  kLast,   // any name
};

class Hints {
 public:
  void add(const Vars& vars, std::string name, Sure sure);
  // Adds output and input features of a product with a weight: candidates for an inner width.
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

// Returns the names of all leaves.
std::map<Var, std::string> name_dims(const DimTable& dims, const Hints& hints);

}  // namespace tessera::pt2
