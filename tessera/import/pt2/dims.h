// Finds, by unification, the dims of a model whose author gave them no names. A dim variable stands
// for one dim; what an op does to its operands says which variables are the same dim (the rows of a
// product's left factor and of its result) and which cannot be (two dims of one tensor). Two dims
// of equal size are not the same dim unless an op makes them so.
//
// A dim of a PyTorch tensor is a list of variables, whose product it is, outermost first; a dim of
// size 1 is the empty list. So a view costs nothing: [batch, seq, features] seen as [batch * seq,
// heads, head_dim] is the lists [batch seq], [heads], [head_dim], where `features` was *refined*
// into heads and head_dim, here and in every tensor that has it. A dim that an op needs whole (the
// features of a layer norm) is *solid*: it cannot be refined any more.
//
//   DimTable table;
//   const Var features = table.fresh(64), width = table.fresh(64);
//   table.unify({features}, {width});                  // now one dim
//   table.view({{features}}, {4, 16});                 // its parts: {{heads}, {head_dim}}
//
// Complexity: almost constant for a unification, except for the check of the dims that must remain
// distinct: the number of dims that either of the two ever stood beside.
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
  // Returns what the variables are refined into, without variables of size 1 unless `units`.
  Vars leaves(const Vars& vars, bool units = false) const;

  // Makes the two lists, of equal product, one. Returns false if they cannot be: the dims must
  // remain distinct, or a solid dim would have to be refined.
  bool unify(const Vars& a, const Vars& b);
  // Returns the lists of a view with these sizes; nothing if the dims cannot be cut so.
  std::optional<std::vector<Vars>> view(const std::vector<Vars>& dims,
                                        const std::vector<int64_t>& sizes);
  // Returns the list as one of `outer` parts of equal size, and the place in a part; nothing if it
  // cannot be cut so. Either list is empty for size 1.
  std::optional<std::pair<Vars, Vars>> cut(const Vars& vars, int64_t outer);

  // Keeps these dims distinct: no two of them are the same dim, now or later.
  void keep_distinct(const Vars& vars);
  bool distinct(Var a, Var b) const;  // for leaves
  void make_solid(Var var) { nodes_[index(find(var))].solid = true; }
  bool solid(Var var) const { return nodes_[index(find(var))].solid; }
  // Marks a dim of pixels: several of them that a view joins become one dim of their own.
  void make_spatial(Var var) { nodes_[index(find(var))].spatial = true; }
  bool spatial(Var var) const { return nodes_[index(find(var))].spatial; }
  // Marks a dim of size 1 that an op needs nevertheless (the one channel of an image).
  void keep_unit(Var var) { nodes_[index(find(var))].kept = true; }
  bool kept(Var var) const { return nodes_[index(find(var))].kept; }

  // Returns the representative of a leaf, which is equal for variables that are the same dim.
  Var find(Var var) const;

 private:
  struct Node {
    int parent = -1;
    int64_t size = 0;
    Vars parts;               // empty: not refined
    std::vector<int> others;  // dims beside it in some tensor
    bool solid = false, spatial = false, kept = false;
  };
  static size_t index(Var var) { return static_cast<size_t>(var.id); }
  void expand(Var var, bool units, Vars& out) const;
  bool refine(Var leaf, int64_t outer);
  std::vector<Node> nodes_;
};

}  // namespace tessera::pt2
