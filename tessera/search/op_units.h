// Which unit of a folded model (fold.h) each op and tensor of a graph belongs to that was made from it:
// with backward and update ops, narrow copies, slices. What belongs to no op of the model (the norm of
// all gradients) goes with the last unit.
#pragma once

#include <vector>

#include "tessera/search/fold.h"

namespace tessera {

class OpUnits {
 public:
  // Both outlive the object.
  OpUnits(const Graph& graph, const Fold& fold);

  size_t of(OpId op) const { return known(op.valid() ? of_op_[op.index()] : -1); }
  size_t of(TensorId tensor) const { return known(of_tensor_[tensor.index()]); }
  // The slice that the op works on, of so many; the last one for what belongs to none.
  size_t slice_of(OpId id, size_t slices) const;

 private:
  size_t known(int unit) const { return static_cast<size_t>(unit < 0 ? last_ : unit); }
  // Of an op that makes or reads gradients of the parameters of one unit (their scale is undone, their
  // norm is measured); -1: of none, or of several units.
  int of_gradients(const Op& op, const std::vector<std::vector<OpId>>& readers) const;
  // Of a parameter or what belongs to one: the unit of its first reader.
  int of_parameter(TensorId id, const std::vector<std::vector<OpId>>& readers) const;

  const Graph& graph_;
  int last_;
  std::vector<int> of_op_, of_tensor_;
};

}  // namespace tessera
