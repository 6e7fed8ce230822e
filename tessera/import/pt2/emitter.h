// Adds ops to a graph for values whose dims are variables (dims.h). Only the emitter knows which
// dims a tensor of the graph has, and in which order. A value of the program is a view of a tensor
// of the graph, so transposes, views and broadcasts of the program make no ops. If an op needs its
// operand in another form, the emitter adds ops that bring it to this form: transpose, group,
// ungroup, rename, broadcast_to. The path of such an op is the path of the op that needs the
// operand, followed by the kind (`blocks.0.attn.q.transpose`).
//
// Invariant: dim d of the graph's tensor of a defined slot has the name name(dims[d]), where `dims`
// are the slot's variables.
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

// A tensor of the program, as a view of the graph's tensor in slot number `slot`. Dim d of the view
// is the product of the variables dims[d]. The view is repeated along variables that the slot's
// tensor does not have.
struct Value {
  int slot = -1;
  std::vector<Vars> dims;
  DType dtype = DType::kFloat32;
  // Dims that have other variables in the view than in the slot, as pairs (variables in the slot,
  // variables in the view).
  std::vector<std::pair<Vars, Vars>> renamed;
  Vars flat() const;  // the variables of all dims
};

using DimNames = std::map<Var, std::string>;  // names of variables, by leaf

class Emitter {
 public:
  struct Slot {
    TensorId id;
    Vars dims;  // leaves; one of size 1 is present only if an op needs it
  };
  // One dim of an operand: the variables that it joins, in order, and the name of the joined dim
  // (or of an added dim of size 1).
  struct Group {
    Vars vars;
    std::string name;
  };

  // Defines a slot that no op makes (an input or a parameter). Called at the first read of the
  // slot.
  using DefineSource = std::function<void(Emitter&, int slot)>;
  Emitter(std::string graph_name, const DimTable& dims, DimNames names, DefineSource source);

  GraphBuilder& builder() { return builder_; }
  const DimTable& dims() const { return dims_; }
  const std::string& name(Var leaf) const;
  Dim dim(Var leaf) const { return {name(leaf), dims_.size(leaf)}; }
  std::string spell(const Vars& leaves) const;  // the names, separated by blanks

  // Reserves a name for a tensor that is added later, so that no op gets this name.
  void reserve(const std::string& name) { taken_.insert(name); }
  // Sets the path of the ops that are added from now on.
  void begin(const std::string& path);
  const std::string& path() const { return path_; }

  // Adds an op with the current path, followed by `suffix` if there is one. If the path is taken,
  // makes it distinct by a number.
  TensorId op(std::string_view kind, std::vector<TensorId> inputs,
              const Attributes& attributes = {}, std::string_view suffix = "");
  std::vector<TensorId> ops(std::string_view kind, std::vector<TensorId> inputs,
                            const Attributes& attributes = {}, std::string_view suffix = "");

  void define(int slot, Slot value);
  bool defined(int slot) const { return slots_.contains(slot); }
  const Slot& slot(int index);

  // Returns the graph's tensor of a value. Its dims have the names of the view's variables.
  Slot read(const Value& value);
  // Returns the graph's tensor of a value, for ops that match dims by position and not by name. Its
  // dims may have other names than the view's variables, which saves an op that renames them.
  Slot read_by_position(const Value& value);
  // Returns the graph's tensor of a value, with exactly these leaves in this order.
  Slot exactly(const Value& value, const Vars& leaves);
  // Returns the graph's tensor of a value, with its dims in the order of `leaves`. The tensor may
  // lack some of these leaves.
  Slot ordered(const Value& value, const Vars& leaves);
  // Returns the graph's tensor of a value, with one dim for each group.
  TensorId grouped(const Value& value, const std::vector<Group>& groups);
  // Reverses grouped(): splits dim d of the tensor into the variables dims[d]. If dims[d] is empty,
  // dim d has size 1 and is removed.
  Slot ungrouped(TensorId id, const std::vector<Vars>& dims);
  // Adds ops that rename the tensor's dims to the names of the slot's variables.
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
