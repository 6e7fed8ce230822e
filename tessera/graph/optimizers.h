// The optimizers. Each is a function that writes one parameter's update as ops of the update phase.
// Most write one op (`sgd`, `adamw`, `lion`); others write small graphs of ordinary ops (the norms
// of LAMB, the moments of Adafactor, the matrix products of Muon). The plan shards these ops as it
// shards any others: they are cut as the optimizer's state at rest, and lowering derives the
// communication for values of other shards that they need (a norm over the whole tensor).
//
//   OptimizerSpec spec{.kind = "lamb"};
//   TESSERA_TRY(Graph training, differentiate(model.graph, spec));   // builder.h
//
// To add an optimizer, add a row in optimizers.cc. The function in the row takes states and adds
// ops through the ParameterUpdate that it receives, and says which output is the new value of
// which tensor.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera {

// The scalars that every update may read. An invalid one is absent (without clipping there is no
// `coefficient`, without a loss scale no `skip`).
struct UpdateScalars {
  TensorId lr, step, coefficient, skip;
};

// The gradient that one look-up adds to its table. Row i of dy is added to the row of the table
// that id i names. The dims of dy are the dims of the ids (without the last one if it is a bag) and
// the table's width.
struct RowGradient {
  TensorId ids, dy;
  TensorId weights;   // weights of the ids of a bag; invalid: each weight is 1
  bool mean = false;  // dy is divided by the number of ids in the bag
};

// The gradient of a parameter. It is one tensor with the parameter's dims (`whole`), or, for
// a table that is updated by rows, the gradients of all look-ups in the order of the forward
// ops (`rows`).
struct ParameterGradient {
  TensorId whole;
  std::vector<RowGradient> rows = {};
};

// Makes the ops of one parameter's update.
class ParameterUpdate {
 public:
  // Makes an update. `spec` and `builder` must outlive it. The scalar `given.lr` is the learning
  // rate of this parameter.
  ParameterUpdate(GraphBuilder& builder, const OptimizerSpec& spec, TensorId of,
                  ParameterGradient its_gradient, UpdateScalars given)
      : builder_(builder),
        spec_(spec),
        parameter_(of),
        gradient_(std::move(its_gradient)),
        scalars_(given) {}

  TensorId parameter() const { return parameter_; }
  TensorId gradient() const { return gradient_.whole; }
  const UpdateScalars& scalars() const { return scalars_; }
  const Tensor& tensor(TensorId id) const { return builder_.tensor(id); }
  const OptimizerSpec& spec() const { return spec_; }

  // Returns the state "optimizer.<name>.<parameter>", adding it if needed. It is zero at first and
  // has these dims (first function: the parameter's dims). Its dtype is the spec's dtype for
  // states, or without one the parameter's, but at least float32.
  TensorId state(const std::string& name);
  TensorId state(const std::string& name, std::vector<Dim> dims);
  // Returns whether the parameter is a table of which a forward op reads rows.
  bool is_looked_up() const;
  // Returns whether the parameter is a factor of a product or a convolution, and not only added.
  bool is_multiplied() const;
  // Returns the dims along which the parameter is a stack of matrices, in the parameter's order.
  // Along such a dim, each product that reads the parameter multiplies one matrix for each index
  // (the dim of experts in their weights).
  std::vector<Dim> stacked() const;
  // Adds the op "optimizer.<parameter>", or with a suffix "update.<parameter>.<suffix>". Attributes
  // that the spec has values for are filled in, unless `attributes` has them. A parameter that is
  // published as a vector (bias, gain) gets no weight decay.
  std::vector<TensorId> op(const std::string& suffix, const std::string& kind,
                           std::vector<TensorId> inputs, Attributes attributes = {});
  TensorId op1(const std::string& suffix, const std::string& kind, std::vector<TensorId> inputs,
               Attributes attributes = {});
  // Returns the tensor converted to that dtype.
  TensorId in_dtype(const std::string& suffix, TensorId id, DType dtype);
  // Makes `output` the new value of `target`, the parameter or a state.
  void becomes(TensorId target, TensorId output);
  // Adds an op of a kind that lists its operands (KindInfo::optimizer) as the whole update.
  void by_one_op(const std::string& kind);
  // Adds an op of a kind that updates rows (OptimizerInfo::by_rows) as the whole update.
  void by_rows(const std::string& kind);
  // Appends ids, dy and weights of each look-up to `inputs`, which holds a parameter and its
  // states. Returns the attributes that say how to read them.
  Attributes add_rows(std::vector<TensorId>& inputs) const;
  // Appends to the inputs of an update op the scalars that are present: the coefficient of clipping
  // and the flag that skips the step.
  void add_flags(std::vector<TensorId>& inputs) const;
  double weight_decay() const;

 private:
  // Returns the forward ops of that class that read the parameter or a copy of it in a narrow
  // dtype, each with the number of the input that it reads.
  std::vector<std::pair<const Op*, size_t>> readers(WorkClass work) const;

  GraphBuilder& builder_;
  const OptimizerSpec& spec_;
  TensorId parameter_;
  ParameterGradient gradient_;
  UpdateScalars scalars_;
};

struct Optimizer {
  std::string name, summary;
  void (*update)(ParameterUpdate&);
  // The kind that updates tables by rows; "": tables are updated as other parameters.
  std::string rows = {};
};

const std::vector<Optimizer>& all_optimizers();
const Optimizer* find_optimizer(std::string_view name);  // null if the name is unknown
std::vector<std::string> optimizer_names();

// Returns whether the parameter is a table (rows, width) whose rows forward ops look up, in the
// table or in a copy of it in another dtype, and which no other op reads. Only such a table can be
// updated by rows.
bool is_only_looked_up(const Graph& graph, TensorId parameter);
// Returns the parameter that the tensor is, or of which it is the copy in another dtype. Returns an
// invalid id if it is neither.
TensorId table_of(const Graph& graph, TensorId id);
// Returns the names of the parameters that are updated by rows, because their optimizer can do so
// and the model only looks them up. `forward` is the model as written, before a plan's transforms,
// so that a plan does not change how the model is trained.
std::vector<std::string> tables_by_rows(const Graph& forward, const OptimizerSpec& spec);
// Returns the kind of optimizer that the spec gives to the parameter of that name.
const std::string& optimizer_of(const OptimizerSpec& spec, const std::string& parameter);
// Returns whether a group's pattern matches the parameter's name, or a prefix of the name before a
// '.' or a '#'.
bool takes(std::string_view pattern, std::string_view name);
// Returns the graph in which those parameters are untrained (Tensor::trained is false) to which the
// spec gives the optimizer kNoOptimizer. They have neither gradients nor states.
Graph with_frozen_groups(Graph forward, const OptimizerSpec& spec);
// Checks that each group names an optimizer or kNoOptimizer, and matches a parameter of the model.
// Returns an error for the first group that does not.
Status check_groups(const OptimizerSpec& spec, const Graph& forward);
// Returns the spec without the groups that match no parameter of the graph. It is for a graph that
// is only a part of the model for which the spec was written.
OptimizerSpec without_idle_groups(OptimizerSpec spec, const Graph& forward);
// Returns whether the spec names an optimizer that updates tables by rows.
bool may_update_rows(const OptimizerSpec& spec);

// Returns for each op the parameter whose update the op is a part of. Invalid: the op is part of no
// update, or of the updates of several parameters (the norm of all gradients).
std::vector<TensorId> updated_parameters(const Graph& graph);

}  // namespace tessera
