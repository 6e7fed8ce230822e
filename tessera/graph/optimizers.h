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

// One parameter's update under construction.
class ParameterUpdate {
 public:
  // `spec` and `builder` must outlive it. `lr` of the scalars is the parameter's own.
  ParameterUpdate(GraphBuilder& builder, const OptimizerSpec& spec, TensorId of,
                  TensorId its_gradient, UpdateScalars given)
      : builder_(builder), spec_(spec), parameter_(of), gradient_(its_gradient), scalars_(given) {}

  TensorId parameter() const { return parameter_; }
  TensorId gradient() const { return gradient_; }
  const UpdateScalars& scalars() const { return scalars_; }
  const Tensor& tensor(TensorId id) const { return builder_.tensor(id); }
  const OptimizerSpec& spec() const { return spec_; }

  // The state "optimizer.<name>.<parameter>", zeros at first, with these dims (default: the
  // parameter's), in the spec's dtype for states, else at least float32.
  TensorId state(const std::string& name);
  TensorId state(const std::string& name, std::vector<Dim> dims);
  // Is it a table of which a forward op reads rows?
  bool is_looked_up() const;
  // The dims along which the parameter is a stack of matrices, in the order that it has them: each
  // product that reads it multiplies one matrix for each of their elements (the weights of experts).
  std::vector<Dim> stacked() const;
  // Adds the op "optimizer.<parameter>", or with a suffix "update.<parameter>.<suffix>". The
  // attributes that the spec knows are filled in, unless given; vectors (biases, gains) do not
  // decay.
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
  // The scalars behind an update op's own: the coefficient of clipping and the flag that skips.
  void add_flags(std::vector<TensorId>& inputs) const;
  double weight_decay() const;

 private:
  // The forward ops of that class which read the parameter or a narrow copy of it, and where.
  std::vector<std::pair<const Op*, size_t>> readers(WorkClass work) const;

  GraphBuilder& builder_;
  const OptimizerSpec& spec_;
  TensorId parameter_, gradient_;
  UpdateScalars scalars_;
};

struct Optimizer {
  std::string name, summary;
  void (*update)(ParameterUpdate&);
};

const std::vector<Optimizer>& all_optimizers();
const Optimizer* find_optimizer(std::string_view name);  // null if unknown
std::vector<std::string> optimizer_names();

// By op: the parameter whose update the op is a part of. Invalid: it is none, or it serves several
// (the norm of all gradients).
std::vector<TensorId> updated_parameters(const Graph& graph);

}  // namespace tessera
