// The optimizers. Each is a function that writes one parameter's update as ops of the update phase:
// most are one op (`sgd`, `adamw`, `lion`), others are small graphs of ordinary ops (the norms of
// LAMB, the moments of Adafactor, the matrix products of Muon). The plan shards them as it shards
// anything else: they follow the optimizer's state where it rests, and what they need of other
// shards (a norm over the whole tensor) is communication that lowering derives.
//
//   OptimizerSpec spec{.kind = "lamb"};
//   TESSERA_TRY(Graph training, differentiate(model.graph, spec));   // builder.h
//
// To add an optimizer: a row in optimizers.cc, whose function takes states and adds ops by the
// ParameterUpdate that it is given, and says which output is the new value of what.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera {

// Scalars that every update may read. An invalid one is not there: no clipping, no loss scale.
struct UpdateScalars {
  TensorId lr, step, coefficient, skip;
};

// What one look-up adds to the gradient of its table: dy, whose dims are those of the ids (but that
// of a bag, which is the last) and the table's width, belongs to the rows that the ids name.
struct RowGradient {
  TensorId ids, dy;
  TensorId weights;   // of the ids of a bag; none: 1
  bool mean = false;  // divided by the number of ids in the bag
};

// The gradient of a parameter: one tensor with its dims, or, of a table that is updated by rows,
// what each look-up adds, in the order of the forward ops.
struct ParameterGradient {
  TensorId whole;
  std::vector<RowGradient> rows = {};
};

// One parameter's update under construction.
class ParameterUpdate {
 public:
  // `spec` and `builder` must outlive it. `lr` of the scalars is the parameter's own.
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

  // The state "optimizer.<name>.<parameter>", zeros at first, with these dims (default: the
  // parameter's), in the spec's dtype for states, else at least float32.
  TensorId state(const std::string& name);
  TensorId state(const std::string& name, std::vector<Dim> dims);
  // Is it a table of which a forward op reads rows?
  bool is_looked_up() const;
  // Is it a factor of a product or a convolution, and not only added?
  bool is_multiplied() const;
  // The dims along which the parameter is a stack of matrices, in the order that it has them: each
  // product that reads it multiplies one matrix for each of their elements (the weights of experts).
  std::vector<Dim> stacked() const;
  // Adds the op "optimizer.<parameter>", or with a suffix "update.<parameter>.<suffix>". The
  // attributes that the spec knows are filled in, unless given; what is published as a vector
  // (biases, gains) does not decay.
  std::vector<TensorId> op(const std::string& suffix, const std::string& kind,
                           std::vector<TensorId> inputs, Attributes attributes = {});
  TensorId op1(const std::string& suffix, const std::string& kind, std::vector<TensorId> inputs,
               Attributes attributes = {});
  // The tensor in that dtype.
  TensorId in_dtype(const std::string& suffix, TensorId id, DType dtype);
  // The output is the new value of the parameter or state.
  void becomes(TensorId target, TensorId output);
  // One op of a kind that says what it reads (KindInfo::optimizer).
  void by_one_op(const std::string& kind);
  // The same for a kind that updates rows (OptimizerInfo::by_rows).
  void by_rows(const std::string& kind);
  // Behind a parameter and its states: ids, dy and weights of each look-up. Returns the attributes that say
  // how they are read.
  Attributes add_rows(std::vector<TensorId>& inputs) const;
  // The scalars behind an update op's own: the coefficient of clipping and the flag that skips.
  void add_flags(std::vector<TensorId>& inputs) const;
  double weight_decay() const;

 private:
  // The forward ops of that class which read the parameter or a narrow copy of it, and where.
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
  std::string rows = {};  // the kind that updates tables by rows; "": tables are as the others
};

const std::vector<Optimizer>& all_optimizers();
const Optimizer* find_optimizer(std::string_view name);  // null if unknown
std::vector<std::string> optimizer_names();

// Is the parameter a table (rows, width) of which forward ops look up rows, or rows of its copy in
// another dtype, and which nothing else reads? Only then can it be updated by rows.
bool is_only_looked_up(const Graph& graph, TensorId parameter);
// The parameter that the tensor is, or of which it is the copy in another dtype; invalid: neither.
TensorId table_of(const Graph& graph, TensorId id);
// The names of the parameters that are updated by rows: what their optimizer can, and the model
// only looks up. Of the model as it is written: a plan does not change how it trains.
std::vector<std::string> tables_by_rows(const Graph& forward, const OptimizerSpec& spec);
// The kind of optimizer that the spec gives to the parameter of that name.
const std::string& optimizer_of(const OptimizerSpec& spec, const std::string& parameter);
// Does the pattern of a group match the parameter's name, or a prefix of it before a '.'?
bool takes(std::string_view pattern, std::string_view name);
// The graph with the parameters that the spec gives the optimizer kNoOptimizer left as they are
// (Tensor::trained): they have neither gradients nor states.
Graph with_frozen_groups(Graph forward, const OptimizerSpec& spec);
// Does each group name an optimizer or kNoOptimizer, and take some parameter of the model? Errors: the first that
// does not.
Status check_groups(const OptimizerSpec& spec, const Graph& forward);
// The spec without the groups that take no parameter of the graph: for a graph that is a part of the
// model for which the spec was written.
OptimizerSpec without_idle_groups(OptimizerSpec spec, const Graph& forward);
// Does the spec name an optimizer that updates tables by rows?
bool may_update_rows(const OptimizerSpec& spec);

// By op: the parameter whose update the op is a part of. Invalid: it is none, or it serves several
// (the norm of all gradients).
std::vector<TensorId> updated_parameters(const Graph& graph);

}  // namespace tessera
