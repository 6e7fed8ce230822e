#include "tessera/search/question/op_units.h"

#include <map>
#include <string>

#include "tessera/base/text.h"

namespace tessera {

OpUnits::OpUnits(const Graph& graph, const Fold& fold)
    : graph_(graph), last_(fold.folded_units - 1) {
  std::map<std::string, int> by_path;
  for (const Op& op : fold.graph.ops()) by_path[op.path] = fold.unit_of[op.id.index()];
  const auto readers = graph.consumers();
  of_op_.assign(graph.ops().size(), -1);
  // Forward ops that the model does not have (narrow copies of parameters) get the unit of their
  // reader, which is later in the graph.
  for (size_t i = graph.ops().size(); i-- > 0;) {
    const Op& op = graph.ops()[i];
    if (op.phase != Phase::kForward) continue;
    // The paths of ops of a slice, and of ops that cut a slice's operands:
    // "<path>#<slice>", "<path>@part<i>#<slice>".
    auto it = by_path.find(op.path);
    if (it == by_path.end()) it = by_path.find(op.path.substr(0, op.path.find_first_of("@#")));
    if (it != by_path.end()) {
      of_op_[i] = it->second;
      continue;
    }
    for (const TensorId output : op.outputs) {
      for (const OpId reader : readers[output.index()])
        of_op_[i] = of_op_[i] < 0 ? of_op_[reader.index()] : of_op_[i];
    }
  }
  for (const Op& op : graph.ops()) {
    int& unit = of_op_[op.id.index()];
    if (unit >= 0 || op.phase == Phase::kForward) continue;
    if (op.mirror.valid()) unit = of_op_[op.mirror.index()];
    for (const TensorId output : op.outputs) {
      const TensorId updated = graph.tensor(output).update_of;
      if (unit < 0 && updated.valid()) unit = of_parameter(updated, readers);
    }
    for (const TensorId input : op.inputs) {
      const OpId producer = graph.tensor(input).producer;
      if (op.phase == Phase::kBackward && unit < 0 && producer.valid())
        unit = of_op_[producer.index()];
    }
    if (unit < 0 && op.phase == Phase::kUpdate) unit = of_gradients(op, readers);
  }
  of_tensor_.assign(graph.tensors().size(), -1);
  for (const Tensor& tensor : graph.tensors()) {
    int& unit = of_tensor_[tensor.id.index()];
    unit = tensor.producer.valid() ? of_op_[tensor.producer.index()]
                                   : of_parameter(tensor.id, readers);
  }
}

size_t OpUnits::slice_of(OpId id, size_t slices) const {
  if (id.valid() && graph_.op(id).mirror.valid()) id = graph_.op(id).mirror;
  const std::string path = id.valid() ? graph_.op(id).path : "";
  const size_t mark = path.rfind('#');
  if (mark == std::string::npos) return slices - 1;
  return static_cast<size_t>(parse_int(path.substr(mark + 1)).value_or(0)) % slices;
}

int OpUnits::of_gradients(const Op& op, const std::vector<std::vector<OpId>>& readers) const {
  int out = -1;
  for (const auto* tensors : {&op.outputs, &op.inputs}) {
    for (const TensorId id : *tensors) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.role != Role::kGradient || !tensor.of.valid()) continue;
      const TensorId parameter = graph_.parameter_of(tensor.of);
      const int unit = parameter.valid() ? of_parameter(parameter, readers) : -1;
      if (out >= 0 && unit != out) return -1;
      out = unit;
    }
  }
  return out;
}

int OpUnits::of_parameter(TensorId id, const std::vector<std::vector<OpId>>& readers) const {
  const Tensor& tensor = graph_.tensor(id);
  const TensorId parameter = tensor.role == Role::kOptimizerState ? tensor.of : id;
  if (!parameter.valid()) return -1;
  for (const OpId reader : readers[parameter.index()]) {
    if (graph_.op(reader).phase == Phase::kForward) return of_op_[reader.index()];
  }
  return -1;
}

}  // namespace tessera
