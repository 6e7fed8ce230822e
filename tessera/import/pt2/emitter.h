// Writes ops of a graph for values whose dims are variables (dims.h). Only the emitter knows which
// dims a tensor of the graph has, and in which order: a value of the program is a view of such a
// tensor, so that transposes, views and broadcasts of the program make no ops. If an op needs its
// operand in another form, the emitter adds the ops for that: transpose, group, ungroup, rename,
// broadcast_to. They take the path of the op that they serve, with their own name behind it.
//
// Invariant: the dims of the graph's tensor of a Slot have the names that names() gives its
// variables.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/import/pt2/dims.h"

namespace tessera::pt2 {

// A tensor of the program: a view of slot `slot`. Dim d of the view is the product of dims[d]. The
// view is repeated along variables that the slot's tensor lacks.
struct Value {
  int slot = -1;
  std::vector<Vars> dims;
  DType dtype = DType::kFloat32;
  // Dims of the slot that the view names otherwise: the first list in the slot, the second in the
  // view.
  std::vector<std::pair<Vars, Vars>> renamed;
  Vars flat() const;  // the variables of all dims
};

using DimNames = std::map<Var, std::string>;  // by leaf

class Emitter {
 public:
  struct Slot {
    TensorId id;
    Vars dims;  // leaves; those of size 1 only if an op asked for them
  };
  // One dim of an operand: variables in order, and the name of a joined or added dim.
  struct Group {
    Vars vars;
    std::string name;
  };

  // Defines, at its first read, a slot that no op makes (an input or a parameter): `source`.
  using DefineSource = std::function<void(Emitter&, int slot)>;
  Emitter(std::string graph_name, const DimTable& dims, DimNames names, DefineSource source);

  GraphBuilder& builder() { return builder_; }
  const DimTable& dims() const { return dims_; }
  const std::string& name(Var leaf) const;
  Dim dim(Var leaf) const { return {name(leaf), dims_.size(leaf)}; }
  std::string spell(const Vars& leaves) const;  // names with blanks between

  // Reserves a name that no op may have, because a tensor of that name will come.
  void reserve(const std::string& name) { taken_.insert(name); }
  // Begins the path of the ops that follow.
  void begin(const std::string& path);
  const std::string& path() const { return path_; }

  // Adds an op at the path, or at the path and a suffix. Paths are made distinct.
  TensorId op(std::string_view kind, std::vector<TensorId> inputs,
              const Attributes& attributes = {}, std::string_view suffix = "");
  std::vector<TensorId> ops(std::string_view kind, std::vector<TensorId> inputs,
                            const Attributes& attributes = {}, std::string_view suffix = "");

  void define(int slot, Slot value);
  bool defined(int slot) const { return slots_.contains(slot); }
  const Slot& slot(int index);

  // Returns the tensor behind a value, with its dims named as the view names them.
  Slot read(const Value& value);
  // Returns the tensor for ops that match operands by position: dims may have other names in the
  // graph.
  Slot read_by_position(const Value& value);
  // Returns the tensor with exactly these leaves in this order.
  Slot exactly(const Value& value, const Vars& leaves);
  // Returns the tensor with those of these leaves that it has, in this order.
  Slot ordered(const Value& value, const Vars& leaves);
  // Returns the tensor with one dim for each group.
  TensorId grouped(const Value& value, const std::vector<Group>& groups);
  // Reverses grouped(): dim d of the tensor is the product of dims[d]; none: a dim of size 1.
  Slot ungrouped(TensorId id, const std::vector<Vars>& dims);
  // Brings the names of the tensor's dims to those of the slot's variables.
  Slot with_names(Slot slot);

 private:
  Slot arranged(Slot slot, const Vars& leaves, bool all);
  TensorId rename(TensorId id, const std::string& from, const std::string& to);
  TensorId join(TensorId id, size_t first, size_t count, const std::string& name);
  Slot without_units(Slot slot, const Vars& wanted);

  const DimTable& dims_;
  DimNames names_;
  DefineSource source_;
  GraphBuilder builder_;
  std::string path_;
  std::set<std::string> taken_;
  std::map<int, Slot> slots_;
};

}  // namespace tessera::pt2
