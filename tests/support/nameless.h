// A model as an author may write it who does not know our names, for tests of code that finds the
// parts of a model by what they compute.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// Returns the forward graph with ops called n0, n1, ..., their results named like them, and
// parameters p0, p1, ... Inputs keep their names, because a run fills them by name; dims keep
// theirs, because plans name dims.
inline Graph nameless(const Graph& forward) {
  Graph out;
  out.name = "nameless";
  std::vector<int> made_by(forward.tensors().size(), -1);
  for (const Op& op : forward.ops()) {
    for (const TensorId id : op.outputs) made_by[id.index()] = static_cast<int>(op.id.index());
  }
  for (const Tensor& tensor : forward.tensors()) {
    Tensor copy = tensor;
    const std::string number = std::to_string(tensor.id.index());
    if (tensor.role == Role::kParameter) copy.name = "p" + number;
    if (const int op = made_by[tensor.id.index()]; op >= 0)
      copy.name = "n" + std::to_string(op) + "_" + number;
    copy.producer = {};
    out.add_tensor(std::move(copy));
  }
  for (const Op& op : forward.ops()) {
    Op copy = op;
    copy.path = "n" + std::to_string(op.id.index());
    out.add_op(std::move(copy));
  }
  out.loss = forward.loss;
  return out;
}

}  // namespace tessera
