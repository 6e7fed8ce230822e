// The dims of a model whose author gave them no names, found by unification. A dim variable stands
// for one dim; what an op does to its operands says which variables are the same (the rows of a
// product's left factor and those of its result) and which cannot be (two dims of one tensor). Two
// dims of equal size are not the same dim unless an op makes them so.
//
// A dim of a PyTorch tensor is a list of variables, whose product it is, outermost first; of size 1
// it is the empty list. So a view costs nothing: [batch, seq, features] seen as [batch * seq,
// heads, head_dim] is the lists [batch seq], [heads], [head_dim], where `features` was *refined*
// into heads and head_dim, here and in every tensor that has it. A dim that an op needs whole
// (the features of a layer norm) is *solid*: it cannot be refined any more.
//
//   DimTable table;
//   const Var features = table.fresh(64), width = table.fresh(64);
//   table.unify({features}, {width});                  // now one dim
//   table.view({{features}}, {4, 16});                 // its parts: {{heads}, {head_dim}}
//
// Complexity: almost constant a unification, but for the look at what must stay distinct: the
// number of dims that either of the two ever stood beside.
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
  Vars list(int64_t size);  // a fresh variable; none for size 1

  Vars all() const;

  int64_t size(Var var) const { return nodes_[index(find(var))].size; }
  int64_t size(const Vars& vars) const;  // INT64_MAX if the product is more than that
  // What the variables are refined into, those of size 1 left out unless `units`.
  Vars leaves(const Vars& vars, bool units = false) const;

  // Makes the two lists, of the same product, one. False if they cannot be: the dims must stay
  // distinct, or a solid one would have to be refined.
  bool unify(const Vars& a, const Vars& b);
  // The lists of a view with these sizes; nothing if the dims cannot be cut so.
  std::optional<std::vector<Vars>> view(const std::vector<Vars>& dims,
                                        const std::vector<int64_t>& sizes);
  // The list as one of `outer` parts of equal size, and the place in a part; nothing if it cannot
  // be cut so. Either list is empty for size 1.
  std::optional<std::pair<Vars, Vars>> cut(const Vars& vars, int64_t outer);

  // No two of these are the same dim, now or later.
  void keep_distinct(const Vars& vars);
  bool distinct(Var a, Var b) const;  // of leaves
  void make_solid(Var var) { nodes_[index(find(var))].solid = true; }
  bool solid(Var var) const { return nodes_[index(find(var))].solid; }
  // A dim of pixels: several of them that a view joins become one dim of their own.
  void make_spatial(Var var) { nodes_[index(find(var))].spatial = true; }
  bool spatial(Var var) const { return nodes_[index(find(var))].spatial; }
  // A dim of size 1 that an op wants to see all the same (the one channel of an image).
  void keep_unit(Var var) { nodes_[index(find(var))].kept = true; }
  bool kept(Var var) const { return nodes_[index(find(var))].kept; }

  // The representative of a leaf: equal for variables that are the same dim.
  Var find(Var var) const;

 private:
  struct Node {
    int parent = -1;
    int64_t size = 0;
    Vars parts;               // empty: not refined
    std::vector<int> others;  // stand beside it in some tensor
    bool solid = false, spatial = false, kept = false;
  };
  static size_t index(Var var) { return static_cast<size_t>(var.id); }
  void expand(Var var, bool units, Vars& out) const;
  bool refine(Var leaf, int64_t outer);
  std::vector<Node> nodes_;
};

}  // namespace tessera::pt2
