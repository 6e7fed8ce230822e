// Lowers the nodes of an exported program to the ops of a graph, in two passes. The first pass goes
// through the nodes in order. A result that is known at import is computed (constant.h). For every
// other node its row of the table (aten.h) says which dims are the same, and registers a step, a
// function that adds ops. After the first pass all dims are known and get their names (naming.h).
// The second pass runs the steps.
//
//   Lowering lowering(archive, program, options);
//   TESSERA_TRY(const Lowered lowered, lowering.run());
//
// Errors are one line that names the node, its module, what was expected and what was found. For an
// op that no graph op corresponds to, the error names the op, the module and the shape.
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
#include "tessera/import/pt2/routing.h"
#include "tessera/import/pt2/schema.h"

namespace tessera::pt2 {

// A parameter of the graph, with the place of its values in the archive.
struct Weight {
  std::string name;  // name in the graph
  // The shape in the program. The graph's tensor may have a dim split into several.
  std::vector<int64_t> shape;
  std::optional<Payload> payload;
  Constant values;  // the values, computed at import, if there is no payload
};

struct Lowered {
  Graph graph;
  std::vector<Weight> weights;  // in the order of the graph's parameters
  // The name in the graph of each parameter that is read from a payload, by identity() of the
  // payload.
  std::map<std::string, std::string> parameters;
};

// Returns the name of the parameter by which the graph reads a tensor that is known at import.
// `node` is the node that makes the tensor.
std::string constant_name(std::string_view node);
// Returns "linear" for "torch.ops.aten.linear.default", and "" if the target is no aten op.
std::string_view op_name(std::string_view target);
std::string shape_text(const std::vector<int64_t>& shape);  // "[2, 3]"
// Returns the names of the tensors that an argument holds.
std::vector<std::string> tensors_of(const Argument& argument);
// Returns the dtype of the graph's tensor of a value: that of the program if it is floating, else
// int64, also for truths, which are 0 and 1.
DType graph_dtype(DType dtype);

struct LowerOptions {
  // True: the module returns logits, and the loss is the cross entropy of the logits with an added
  // input `targets`.
  bool cross_entropy = false;
  // The target that cross entropies leave out where the program does not say which. Unset: none.
  std::optional<int64_t> ignored;
};

class Lowering;

// One node, with access to its arguments and results by name: the argument of the rows of the
// table.
class Call {
 public:
  Call(Lowering& lowering, const Node& node) : lowering_(lowering), node_(node) {}
  Lowering& lowering() const { return lowering_; }
  const Node& node() const { return node_; }
  DimTable& dims() const;

  bool has(std::string_view name) const;  // given, and not None
  Result<Value> value(std::string_view name) const;
  Result<std::optional<Value>> optional_value(std::string_view name) const;
  // Returns the tensors of a list argument, without those that have no elements.
  Result<std::vector<Value>> values(std::string_view name) const;
  std::string tensor_name(std::string_view name) const;  // "" if the argument is not a tensor
  // Returns the tensor argument if its values are known at import, else null.
  const Constant* constant(std::string_view name) const;
  // Returns a number argument, or the element of a tensor argument of one element whose value is
  // known at import; nothing for other arguments.
  std::optional<double> scalar(std::string_view name) const;
  Result<double> number(std::string_view name, std::optional<double> otherwise = {}) const;
  Result<int64_t> integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  Result<bool> flag(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name, std::string otherwise) const;
  Result<std::vector<int64_t>> integers(std::string_view name,
                                        std::optional<std::vector<int64_t>> otherwise = {}) const;
  // Returns the argument as a dim of a tensor of `rank` dims; a negative argument counts from the
  // end.
  Result<size_t> dim(std::string_view name, size_t rank,
                     std::optional<int64_t> otherwise = {}) const;
  // Returns the argument as a list of dims of a tensor of `rank` dims; all dims if it is absent.
  Result<std::vector<size_t>> dim_list(std::string_view name, size_t rank) const;
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
  // Sets the target that the cross entropies of later nodes leave out if they do not say which. Has
  // no effect if the import options name a target.
  void leave_out(int64_t target) {
    if (!options_.ignored) options_.ignored = target;
  }
  DimTable& dims() { return dims_; }
  Hints& hints() { return hints_; }
  int64_t size(const Value& value, size_t dim) const { return dims_.size(value.dims[dim]); }

  // Makes a new tensor. No two of its dims may be the same dim from now on.
  Value make(std::vector<Vars> dims, DType dtype);
  // Registers a step for the second pass. The path of its ops is the module's path followed by
  // `name`.
  void step(const Call& call, std::string name, std::function<void(Emitter&)> emit);
  // Returns the value with the variables `vars` for dim `dim`; their product is the dim's size.
  Value retarget(const Value& value, size_t dim, const Vars& vars);
  // Makes dim a_dim of a and dim b_dim of b the same dim. If the table of dims does not allow that,
  // gives b's dim the variables of a's dim. Returns false if the sizes differ, or if b has one of
  // these variables in another dim.
  bool align(const Value& a, size_t a_dim, Value& b, size_t b_dim);
  // Returns the value with dim `dim` as one variable that later ops cannot refine.
  Value whole(const Value& value, size_t dim);
  // Makes a tensor that is known at import a parameter of the graph, so that ops can read it. Dims
  // along which a matrix or a tensor of numbers is repeated are left out of the parameter. If all
  // numbers of a tensor that is not floating are equal, an op fills it instead.
  Value materialise(const Constant& constant, const std::string& name);
  // Makes a tensor without dims that is `value`, seen with dims of these sizes.
  Value filled(const std::vector<int64_t>& sizes, double value, DType dtype);
  // Returns the value with dims `dims` of size 1 repeated, so that it has these sizes.
  Value repeated(Value value, const std::vector<int64_t>& sizes);

  using Item = std::variant<std::monostate, Value, Constant>;
  const Item* item(std::string_view tensor);  // null if unknown; reads a buffer at its first use
  Result<Value> value_of(std::string_view tensor);
  void set(const std::string& tensor, Item item) { items_[tensor] = std::move(item); }
  const Program& program() const { return program_; }

  size_t add_routing(Routing routing) {
    routings_.push_back(std::move(routing));
    return routings_.size() - 1;
  }
  const Routing& routing(size_t number) const { return routings_[number]; }
  void set_routed(const std::string& tensor, Routed routed) { routed_[tensor] = std::move(routed); }
  // Returns null if the tensor is not routed.
  const Routed* routed(std::string_view tensor) const {
    const auto found = routed_.find(tensor);
    return found == routed_.end() ? nullptr : &found->second;
  }

  // A tensor for which no ops are added until an op reads it, because its usual reader reads the
  // tensor's operand `of` instead (the cross entropy of a log-softmax reads the logits).
  struct Late {
    Value of;
    size_t dim = 0;
    std::function<Value()> make;
  };
  // Returns the tensor that is known at import and of which `tensor`, which is too large to be kept
  // as a constant, is only repetitions; null if there is none. Its dims are those of `tensor`, with
  // size 1 where it is repeated.
  const Constant* repeated_constant(std::string_view tensor) const {
    const auto found = wide_.find(tensor);
    return found == wide_.end() ? nullptr : &found->second;
  }
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
  struct Source {  // an input or parameter: a slot that no step makes
    Role role = Role::kInput;
    std::string name;
    std::vector<Vars> dims;
    DType dtype = DType::kFloat32;
    bool trained = true;
    std::optional<Weight> weight;
    std::string tensor = {};  // for a parameter: its tensor in the program
  };
  Status add_inputs();
  Status add_parameter(const InputSpec& spec, const TensorMeta& meta);
  Result<Constant> read_constant(const Payload& payload) const;
  bool reads_routed(const Node& node) const;
  Status add_node(const Node& node);
  Status check_operands(const Call& call, std::string_view op, bool& known);
  Result<bool> keep_empty(const Call& call);
  void keep_repeated(const Call& call, std::string_view op);
  Result<bool> fold_node(const Call& call, std::string_view op);
  Status check_results(const Call& call);
  Result<Item> piece(const Call& call, const std::string& tensor, size_t dim, int64_t begin,
                     int64_t end);
  Result<Item> joint(const Call& call, const std::vector<Item>& pieces, size_t dim);
  Status write_back(const Call& call);
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
  std::vector<Routing> routings_;
  std::map<std::string, Routed, std::less<>> routed_;
  // Buffers and constants that have not been read so far, by tensor.
  std::map<std::string, const InputSpec*, std::less<>> unread_;
  std::map<std::string, int> shared_;  // slots of parameters, by identity() of the payload
  Memory memory_;
  // The node that made each tensor which is a part of another one.
  std::map<std::string, const Node*, std::less<>> makers_;
  // The number of the last node that reads each tensor.
  std::map<std::string, size_t, std::less<>> last_readers_;
  int64_t kept_ = 0, computed_ = 0;  // elements of constants: kept now, computed so far
  std::map<std::string, Value> materialised_;
  std::map<std::string, Constant, std::less<>> wide_;
  std::map<int, Source> sources_;
  std::map<int, std::vector<Vars>> slot_dims_;
  std::vector<Step> steps_;
  Error error_;  // of a buffer that could not be read
  int slots_ = 0;
  std::optional<Value> loss_;
};

}  // namespace tessera::pt2
