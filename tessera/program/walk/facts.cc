// Those functions of Facts that are longer than a line.
#include "tessera/program/walk/facts.h"

namespace tessera {

const Op* Facts::first_reader(TensorId id) const {
  const std::vector<OpId>& all = readers(id);
  return all.empty() ? nullptr : &graph_.op(all.front());
}

void Facts::split_as(const Op& op, const Layout& output) {
  OpPlan& plan = analysis_.ops[op.id.index()];
  for (DimSplit& split : plan.dims) {
    split.axes.clear();
    split.grown.clear();  // the op reads its operands as they are, without a halo
  }
  const OperandDims& dims = op.annotation.outputs[0];
  for (size_t d = 0; d < dims.dims.size(); ++d) {
    const int lead = leading_dim(op.annotation, dims.dims[d]);
    if (lead >= 0) plan.dims[static_cast<size_t>(lead)].axes = output.shards[d];
  }
  if (!op.annotation.dims.empty()) plan.at = output.at;
}

PlaceId Facts::made_on(TensorId id) const {
  const OpId producer = tensor(id).producer;
  return producer.valid() ? place_of(graph_.op(producer)) : analysis_.homes[id.index()].place();
}

}  // namespace tessera
