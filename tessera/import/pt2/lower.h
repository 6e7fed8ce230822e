// Lowers the nodes of an exported program to the ops of a graph, in two passes. The first goes
// through the nodes in order: known values are computed (constant.h), and each other node says by
// its row of the table (aten.h) which dims are the same, and leaves a step behind. When all dims
// are known they get their names (naming.h), and the second pass runs the steps, which add the ops.
//
//   Lowering lowering(archive, program, options);
//   TESSERA_TRY(const Lowered lowered, lowering.run());
//
// Errors are one line: the node, its module, what was expected, what was found. For an op without a
// counterpart the error names the op, the module and the shape.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/import/pt2/constant.h"
#include "tessera/import/pt2/dims.h"
#include "tessera/import/pt2/emitter.h"
#include "tessera/import/pt2/memory.h"
#include "tessera/import/pt2/naming.h"
#include "tessera/import/pt2/schema.h"

namespace tessera::pt2 {

// A parameter of the graph and where its values are.
struct Weight {
  std::string name;            // in the graph
  std::vector<int64_t> shape;  // in the program; the graph's tensor may have its dims cut in parts
  std::optional<Payload> payload;
  Constant values;  // without a payload: computed at import
};

struct Lowered {
  Graph graph;
  std::vector<Weight> weights;  // in the order of the graph's parameters
  // By identity() of a payload that the graph reads: the name of its parameter in the graph.
  std::map<std::string, std::string> parameters;
};

// Returns the name of a tensor known at import where the graph reads it as a parameter.
std::string constant_name(std::string_view node);

struct LowerOptions {
  // The module returns logits: the loss is their cross entropy with an input `targets`.
  bool cross_entropy = false;
  // A target that cross entropies leave out if the program does not name one.
  std::optional<int64_t> ignored;
};

class Lowering;

// One node, as the rows of the table see it.
class Call {
 public:
  Call(Lowering& lowering, const Node& node) : lowering_(lowering), node_(node) {}
  Lowering& lowering() const { return lowering_; }
  const Node& node() const { return node_; }
  DimTable& dims() const;

  bool has(std::string_view name) const;  // given, and not none
  Result<Value> value(std::string_view name) const;
  Result<std::optional<Value>> optional_value(std::string_view name) const;
  // Returns those tensors of a list that have elements.
  Result<std::vector<Value>> values(std::string_view name) const;
  std::string tensor_name(std::string_view name) const;  // "" if it is not a tensor
  // Returns the tensor if it is known at import, else null.
  const Constant* constant(std::string_view name) const;
  // Returns a number, or the value of a known tensor of one element.
  std::optional<double> scalar(std::string_view name) const;
  Result<double> number(std::string_view name, std::optional<double> otherwise = {}) const;
  Result<int64_t> integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  Result<bool> flag(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name, std::string otherwise) const;
  Result<std::vector<int64_t>> integers(std::string_view name,
                                        std::optional<std::vector<int64_t>> otherwise = {}) const;
  // Returns a dim of a tensor of `rank` dims; negative dims count from the end.
  Result<size_t> dim(std::string_view name, size_t rank,
                     std::optional<int64_t> otherwise = {}) const;
  Result<std::vector<size_t>> dim_list(std::string_view name, size_t rank) const;  // absent: all
  const TensorMeta* output_meta(size_t output = 0) const;

  void set(Value value, size_t output = 0) const;
  void set(Constant constant, size_t output = 0) const;
  // Returns the error "node 'linear' (aten.linear) in module 'blocks.0': <message>".
  tl::unexpected<Error> failed(const std::string& message) const;

 private:
  const Argument* argument(std::string_view name) const;
  Lowering& lowering_;
  const Node& node_;
};

class Lowering {
 public:
  Lowering(const Archive& archive, const Program& program, LowerOptions options);
  Result<Lowered> run();

  // ---- for the rows of the table
  const LowerOptions& options() const { return options_; }
  // Makes cross entropies that name no target leave out this one from now on, unless the import was
  // asked for another.
  void leave_out(int64_t target) {
    if (!options_.ignored) options_.ignored = target;
  }
  DimTable& dims() { return dims_; }
  Hints& hints() { return hints_; }
  int64_t size(const Value& value, size_t dim) const { return dims_.size(value.dims[dim]); }

  // Makes a new tensor; all its dims are distinct from now on.
  Value make(std::vector<Vars> dims, DType dtype);
  // Adds a step that runs in the second pass, under the module's path and this name.
  void step(const Call& call, std::string name, std::function<void(Emitter&)> emit);
  // Returns the value with dim `dim` named by these variables, which have its size.
  Value retarget(const Value& value, size_t dim, const Vars& vars);
  // Makes the two dims one; renames b's if they cannot be. Returns false if b has `to` elsewhere.
  bool align(const Value& a, size_t a_dim, Value& b, size_t b_dim);
  // Returns the value with a dim that is one variable, which stays whole.
  Value whole(const Value& value, size_t dim);
  // Makes a known tensor one that is read from the weights.
  Value materialise(const Constant& constant, const std::string& name);

  using Item = std::variant<std::monostate, Value, Constant>;
  const Item* item(std::string_view tensor);  // reads a buffer at its first use
  Result<Value> value_of(std::string_view tensor);
  void set(const std::string& tensor, Item item) { items_[tensor] = std::move(item); }
  const Program& program() const { return program_; }

  // A tensor that is made only when an op reads it, because its usual reader reads the tensor's
  // operand instead (the logarithm of a softmax).
  struct Late {
    Value of;
    size_t dim = 0;
    std::function<Value()> make;
  };
  void set_late(const std::string& tensor, Late late) { late_[tensor] = std::move(late); }
  const Late* late(std::string_view tensor) const {
    const auto found = late_.find(tensor);
    return found == late_.end() ? nullptr : &found->second;
  }

 private:
  struct Step {
    std::string module, name;
    std::function<void(Emitter&)> emit;
  };
  struct Source {  // source of a slot that no step makes
    Role role = Role::kInput;
    std::string name;
    std::vector<Vars> dims;
    DType dtype = DType::kFloat32;
    bool trained = true;
    std::optional<Weight> weight;
    std::string tensor = {};  // tensor of the program, for a parameter
  };
  Status add_inputs();
  Status add_parameter(const InputSpec& spec, const TensorMeta& meta);
  Result<Constant> read_constant(const Payload& payload) const;
  Status add_node(const Node& node);
  Status check_operands(const Call& call, std::string_view op, bool& known);
  Result<bool> keep_empty(const Call& call);
  Result<bool> fold_node(const Call& call, std::string_view op);
  Status check_results(const Call& call);
  tl::unexpected<Error> changed_in_place(const Node& writer, const std::string& tensor,
                                         const std::string& reader);
  Status keep_constant(const std::string& tensor, Constant constant);
  void find_last_readers();
  void drop_constants(size_t node);
  Result<std::string> choose_loss();
  Status add_loss(const std::string& output);
  Vars visible_leaves(const std::vector<Vars>& dims) const;
  void define_input(Emitter& emitter, int slot, const Source& source) const;
  void define_inputs(Emitter& emitter) const;
  std::vector<std::string> step_paths() const;

  const Archive& archive_;
  const Program& program_;
  LowerOptions options_;
  DimTable dims_;
  Hints hints_;
  std::map<std::string, Item, std::less<>> items_;
  std::map<std::string, Late, std::less<>> late_;
  std::map<std::string, const InputSpec*, std::less<>> unread_;  // buffers and constants
  std::map<std::string, int> shared_;                            // slots of parameters by payload
  Memory memory_;
  std::map<std::string, size_t, std::less<>> last_readers_;  // nodes
  int64_t kept_ = 0, computed_ = 0;                          // elements of constants
  std::map<std::string, int> materialised_;
  std::map<int, Source> sources_;
  std::map<int, std::vector<Vars>> slot_dims_;
  std::vector<Step> steps_;
  Error error_;  // from reading a buffer
  int slots_ = 0;
  std::optional<Value> loss_;
};

}  // namespace tessera::pt2
