// Assigns the ops and tensors of a graph to units. The graph was made from a folded model (fold.h)
// by adding backward and update ops, narrow copies of parameters, and slices; the units are those
// of the folded model. Ops that belong to no op of the model, such as the norm of all gradients,
// are assigned to the last unit.
#pragma once

#include <vector>

#include "tessera/search/price/fold.h"

namespace tessera {

class OpUnits {
 public:
  // Assigns all ops and tensors. Both arguments outlive the object.
  OpUnits(const Graph& graph, const Fold& fold);

  size_t of(OpId op) const { return known(op.valid() ? of_op_[op.index()] : -1); }
  size_t of(TensorId tensor) const { return known(of_tensor_[tensor.index()]); }
  // Returns the number of the slice that the op works on, below `slices`. For an op that belongs to
  // no slice returns the last number.
  size_t slice_of(OpId id, size_t slices) const;

 private:
  size_t known(int unit) const { return static_cast<size_t>(unit < 0 ? last_ : unit); }
  // Returns the unit of an op that makes or reads gradients (undoes their scale, measures their
  // norm) if all these gradients are of parameters of one unit, else -1.
  int of_gradients(const Op& op, const std::vector<std::vector<OpId>>& readers) const;
  // Returns the unit of the first reader of a parameter; `id` is the parameter or its optimizer
  // state.
  int of_parameter(TensorId id, const std::vector<std::vector<OpId>>& readers) const;

  const Graph& graph_;
  int last_;
  std::vector<int> of_op_, of_tensor_;
};

}  // namespace tessera
