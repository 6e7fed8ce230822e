// The optimizers. Each is a function that writes one parameter's update as ops of the update phase:
// most are one op (`sgd`, `adamw`, `lion`), others are small graphs of ordinary ops (the norms of
// LAMB, the moments of Adafactor, the matrix products of Muon). The plan shards these ops as any
// others: they follow the optimizer's state at rest, and what they need of other shards (a norm
// over the whole tensor) is communication that lowering derives.
//
//   OptimizerSpec spec{.kind = "lamb"};
//   TESSERA_TRY(Graph training, differentiate(model.graph, spec));   // builder.h
//
// An optimizer is added by a row in optimizers.cc, whose function takes states and adds ops by the
// ParameterUpdate that it is given, and says which output is whose new value.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera {

// The scalars that every update may read. An invalid one is absent: no clipping, no loss scale.
struct UpdateScalars {
  TensorId lr, step, coefficient, skip;
};

// The gradient that one look-up adds to its table: dy, whose dims are the dims of the ids (without
// the last one if it is a bag) and the table's width, belongs to the rows that the ids name.
struct RowGradient {
  TensorId ids, dy;
  TensorId weights;   // weights of the ids of a bag; none: 1
  bool mean = false;  // dy is divided by the number of ids in the bag
};

// The gradient of a parameter: one tensor with its dims, or, for a table that is updated by rows,
// the gradients of all look-ups, in the order of the forward ops.
struct ParameterGradient {
  TensorId whole;
  std::vector<RowGradient> rows = {};
};

// Makes the ops of one parameter's update.
class ParameterUpdate {
 public:
  // Makes an update. `spec` and `builder` must outlive it; `lr` of the scalars is the parameter's
  // own.
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

  // Returns the state "optimizer.<name>.<parameter>", zeros at first, with these dims (default: the
  // parameter's), in the spec's dtype for states, else at least float32.
  TensorId state(const std::string& name);
  TensorId state(const std::string& name, std::vector<Dim> dims);
  // Returns whether the parameter is a table of which a forward op reads rows.
  bool is_looked_up() const;
  // Returns whether the parameter is a factor of a product or a convolution, and not only added.
  bool is_multiplied() const;
  // Returns the dims along which the parameter is a stack of matrices, in the parameter's order:
  // each product that reads it multiplies one matrix for each of their elements (weights of
  // experts).
  std::vector<Dim> stacked() const;
  // Adds the op "optimizer.<parameter>", or with a suffix "update.<parameter>.<suffix>". Attributes
  // that the spec knows are filled in, unless given; a parameter that is published as a vector
  // (bias, gain) does not decay.
  std::vector<TensorId> op(const std::string& suffix, const std::string& kind,
                           std::vector<TensorId> inputs, Attributes attributes = {});
  TensorId op1(const std::string& suffix, const std::string& kind, std::vector<TensorId> inputs,
               Attributes attributes = {});
  // Returns the tensor in that dtype.
  TensorId in_dtype(const std::string& suffix, TensorId id, DType dtype);
  // Makes the output the new value of the parameter or state.
  void becomes(TensorId target, TensorId output);
  // Adds one op of a kind that states its operands (KindInfo::optimizer).
  void by_one_op(const std::string& kind);
  // Adds one op of a kind that updates rows (OptimizerInfo::by_rows).
  void by_rows(const std::string& kind);
  // Adds ids, dy and weights of each look-up, behind a parameter and its states. Returns the
  // attributes that say how they are read.
  Attributes add_rows(std::vector<TensorId>& inputs) const;
  // Adds the scalars behind an update op's own: the coefficient of clipping and the flag that
  // skips.
  void add_flags(std::vector<TensorId>& inputs) const;
  double weight_decay() const;

 private:
  // Returns the forward ops of that class that read the parameter or a narrow copy, and the
  // operand.
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
  std::string rows = {};  // the kind that updates tables by rows; "": as other parameters
};

const std::vector<Optimizer>& all_optimizers();
const Optimizer* find_optimizer(std::string_view name);  // null if unknown
std::vector<std::string> optimizer_names();

// Returns whether the parameter is a table (rows, width) of which forward ops look up rows, or rows
// of its copy in another dtype, and which nothing else reads. Only such a table can be updated by
// rows.
bool is_only_looked_up(const Graph& graph, TensorId parameter);
// Returns the parameter that the tensor is, or is the copy of in another dtype; invalid if neither.
TensorId table_of(const Graph& graph, TensorId id);
// Returns the names of the parameters that are updated by rows: their optimizer can do so, and the
// model only looks them up. `forward` is the model as written: a plan does not change its training.
std::vector<std::string> tables_by_rows(const Graph& forward, const OptimizerSpec& spec);
// Returns the kind of optimizer that the spec gives to the parameter of that name.
const std::string& optimizer_of(const OptimizerSpec& spec, const std::string& parameter);
// Returns whether a group's pattern matches the parameter's name, or a prefix of it before a '.'.
bool takes(std::string_view pattern, std::string_view name);
// Returns the graph with the parameters left untrained (Tensor::trained) to which the spec gives
// the optimizer kNoOptimizer: they have neither gradients nor states.
Graph with_frozen_groups(Graph forward, const OptimizerSpec& spec);
// Checks that each group names an optimizer or kNoOptimizer, and takes a parameter of the model.
// Returns an error for the first group that does not.
Status check_groups(const OptimizerSpec& spec, const Graph& forward);
// Returns the spec without the groups that take no parameter of the graph, for a graph that is a
// part of the model for which the spec was written.
OptimizerSpec without_idle_groups(OptimizerSpec spec, const Graph& forward);
// Returns whether the spec names an optimizer that updates tables by rows.
bool may_update_rows(const OptimizerSpec& spec);

// Returns by op the parameter whose update the op is a part of. Invalid: it is part of none, or it
// serves several parameters (the norm of all gradients).
std::vector<TensorId> updated_parameters(const Graph& graph);

}  // namespace tessera
