// Finds, by unification, the dims of a model whose author gave them no names. A variable stands for
// one dim. Each op says which variables are the same dim (the rows of a product's left factor and
// of its result) and which must be different dims (two dims of one tensor). Dims of equal size are
// different dims unless an op makes them one.
//
// A dim of a PyTorch tensor is the product of a list of variables, outermost first. The list of a
// dim of size 1 is empty. So a view needs no op: [batch, seq, features] seen as [batch * seq,
// heads, head_dim] has the lists [batch seq], [heads], [head_dim]. The variable `features` was
// *refined* into heads and head_dim, in this tensor and in every other tensor that has `features`.
// A variable that an op needs whole (the features of a layer norm) is *solid*: it cannot be refined
// any more. The *leaves* of a list are the variables into which it is refined in the end.
//
//   DimTable table;
//   const Var features = table.fresh(64), width = table.fresh(64);
//   table.unify({features}, {width});                  // now one dim
//   table.view({{features}}, {4, 16});                 // its parts: {{heads}, {head_dim}}
//
// Complexity: a unification takes almost constant time, plus the check that the two variables may
// be one dim. The check takes time proportional to the number of variables that are in a tensor
// together with either of the two.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::pt2 {

struct Var {
  int id = -1;
  friend auto operator<=>(const Var&, const Var&) = default;
};
using Vars = std::vector<Var>;

bool holds(const Vars& vars, Var var);

class DimTable {
 public:
  Var fresh(int64_t size);
  Vars list(int64_t size);  // a list of one new variable; an empty list for size 1

  Vars all() const;

  int64_t size(Var var) const { return nodes_[index(find(var))].size; }
  int64_t size(const Vars& vars) const;  // INT64_MAX if the product is larger
  // Returns the variables into which the given ones are refined. Leaves out variables of size 1
  // unless `units`.
  Vars leaves(const Vars& vars, bool units = false) const;

  // Makes the two lists the same dims. Their products must be equal. Returns false if this is not
  // possible because two of the dims must remain distinct or a solid dim would have to be refined.
  bool unify(const Vars& a, const Vars& b);
  // Returns the lists of a view of `dims` with these sizes, and refines dims where needed. Returns
  // nothing if the dims cannot be cut at these sizes.
  std::optional<std::vector<Vars>> view(const std::vector<Vars>& dims,
                                        const std::vector<int64_t>& sizes);
  // Cuts the list into `outer` parts of equal size. Returns the list for the number of the part and
  // the list for the place in a part; nothing if the list cannot be cut so. A list of size 1 is
  // empty.
  std::optional<std::pair<Vars, Vars>> cut(const Vars& vars, int64_t outer);

  // Records that no two of these variables may be the same dim, now or later.
  void keep_distinct(const Vars& vars);
  bool distinct(Var a, Var b) const;  // whether two leaves must be different dims
  void make_solid(Var var) { nodes_[index(find(var))].solid = true; }
  bool solid(Var var) const { return nodes_[index(find(var))].solid; }
  // Marks a dim of pixels. If a view joins several such dims, the result becomes one new dim.
  void make_spatial(Var var) { nodes_[index(find(var))].spatial = true; }
  bool spatial(Var var) const { return nodes_[index(find(var))].spatial; }
  // Marks a dim that an op needs although its size is 1 (the one channel of an image).
  void keep_unit(Var var) { nodes_[index(find(var))].kept = true; }
  bool kept(Var var) const { return nodes_[index(find(var))].kept; }

  // Returns the representative of a leaf. Leaves are the same dim if their representatives are
  // equal.
  Var find(Var var) const;

 private:
  struct Node {
    int parent = -1;
    int64_t size = 0;
    Vars parts;               // the variables into which this one is refined; empty if it is not
    std::vector<int> others;  // variables that are in some tensor together with this one
    bool solid = false, spatial = false, kept = false;
  };
  static size_t index(Var var) { return static_cast<size_t>(var.id); }
  void expand(Var var, bool units, Vars& out) const;
  bool refine(Var leaf, int64_t outer);
  std::vector<Node> nodes_;
};

}  // namespace tessera::pt2
