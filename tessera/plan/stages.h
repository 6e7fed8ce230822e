// The stage of each op:
//   - a forward op: as the plan's entries say, else with the op before it, but at no stage before
//     one that makes an operand. An op that no entry names and that is made of parameters and
//     inputs alone (a cast, a loop's slice of a weight) is at the first stage that reads it, and so
//     is an op whose result is for the next step. A named op of that kind is moved to an earlier
//     stage that reads it, never to a later one;
//   - a backward op: with the op that it mirrors; a sum of gradients with its terms;
//   - an update op: where the tensor that it updates is at rest.
#pragma once

#include <optional>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/plan/selection.h"

namespace tessera {

class Stages {
 public:
  // Makes the assignment, which writes the stages of `out.ops`. All arguments must outlive it.
  Stages(const Plan& plan, const Graph& graph, ResolvedPlan& out);
  // Assigns the stages. Errors: entries that select nothing.
  Status assign(Selection& selection);
  // Checks the stages. Errors: an op that reads what a later stage makes, a stage without ops.
  Status check() const;
  // Returns where a tensor is at rest: a parameter with the first op that reads it, and its state
  // and its gradient (that of its narrow copy, too) with the parameter.
  StageId home(TensorId id) const;
  // Returns whether the tensor is made of parameters and nothing else (a cast).
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
  const std::vector<TensorId> updates_;  // by op: the parameter that it updates
  // By tensor: the first op that reads it. If forward ops read it, it is the first of them at the
  // earliest stage, which need not be the first in graph order: a loop may put the op that cuts a
  // parameter for a later stage before every reader at an earlier stage.
  std::vector<OpId> first_consumer_;
  std::vector<bool> of_parameters_;
  // By tensor: whether it is made, by ops that no entry names, from inputs and parameters alone.
  std::vector<bool> of_sources_;
};

}  // namespace tessera
