// Assigns a stage to each op:
//   - A forward op that a stage entry names gets the stage of the entry. Any other forward op gets
//     the stage of the op before it in graph order, or a later stage if one of its operands is made
//     there. There are two exceptions. If an op is computed from parameters and inputs alone (a
//     cast, a loop's slice of a weight) and no entry names it, it gets the first stage that reads
//     its result; if an entry names it, it is moved to an earlier stage that reads its result, but
//     never to a later one. An op whose result is for the next training step also gets the first
//     stage that reads its result.
//   - A backward op gets the stage of its mirror. A sum of gradients gets the stage of its terms if
//     they are all made at one stage.
//   - An update op gets the stage at which the tensor that it updates is at rest.
#pragma once

#include <optional>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/plan/resolve/selection.h"

namespace tessera {

class Stages {
 public:
  // Makes an object that writes the stages of `out.ops`. All arguments must outlive it.
  Stages(const Plan& plan, const Graph& graph, ResolvedPlan& out);
  // Assigns the stages. Errors: entries that select nothing.
  Status assign(Selection& selection);
  // Checks the assigned stages. Errors: a forward op reads what a later stage makes; a stage has no
  // forward ops.
  Status check() const;
  // Returns the stage at which a tensor is at rest. For a parameter this is the stage of the first
  // op that reads it. The optimizer state and the gradient of a parameter are at rest with the
  // parameter, and so is the gradient of its narrow copy. Any other tensor is at the stage of the
  // op that makes it or first reads it.
  StageId home(TensorId id) const;
  // Returns whether the tensor is computed from parameters and nothing else, as a cast of a
  // weight is.
  bool of_parameters(TensorId id) const { return of_parameters_[id.index()]; }

 private:
  StageId& stage_of(const Op& op);
  bool is_named(const Op& op) const;
  void complete_forward();
  bool may_hasten(TensorId made) const;
  void hasten_sources();
  void place_ahead(const std::vector<bool>& behind);
  void find_earliest_consumers();
  OpId reader_of(TensorId id) const;
  StageId backward(const Op& op, StageId previous) const;
  StageId update(const Op& op) const;
  std::optional<StageId> of_terms(const Op& op) const;

  const Plan& plan_;
  const Graph& graph_;
  ResolvedPlan& out_;
  const std::vector<TensorId> updates_;  // by op: the parameter that the op updates
  // By tensor: the first op that reads the tensor. If several forward ops read it, this is the
  // first op at the earliest stage of these. That op need not be the first in graph order,
  // because a loop may put an op that cuts a parameter for a later stage before all readers at
  // earlier stages.
  std::vector<OpId> first_consumer_;
  std::vector<bool> of_parameters_;
  // By tensor: whether it is computed from inputs and parameters alone, by ops that no stage
  // entry names.
  std::vector<bool> of_sources_;
};

}  // namespace tessera
