// reorder_dim; see transform.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/graph/transform.h"

namespace tessera {
namespace {

class ReorderPass {
 public:
  ReorderPass(const Graph& from, const std::string& dim, const std::string& order)
      : from_(from), dim_(dim), order_(order), to_(from.name), tensors_(from.tensors().size()) {}

  Result<Graph> run() {
    TESSERA_TRY_VOID(parse_order(order_));
    bool found = false;
    for (const Tensor& tensor : from_.tensors()) {
      found = found || has_dim(tensor);
      if (!tensor.producer.valid()) tensors_[tensor.id.index()] = to_.graph().add_tensor(tensor);
    }
    if (!found) {
      return invalid_input(fmt::format("no tensor of the graph has the dim '{}'", dim_));
    }
    for (const Op& op : from_.ops()) {
      TESSERA_TRY_VOID(check(op));
      copy(op);
      if (!to_.ok()) break;
    }
    if (to_.ok() && from_.loss.valid()) to_.graph().loss = tensors_[from_.loss.index()];
    return to_.finish();
  }

 private:
  bool has_dim(const Tensor& tensor) const {
    return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                       [&](const Dim& dim) { return dim.name == dim_; });
  }

  // Ops that follow the order of the tokens by an attribute.
  bool follows(const Op& op) const {
    const auto name = [&](size_t input) { return from_.tensor(op.inputs[input]).dims[1].name; };
    return (op.kind == "attention" && name(0) == dim_ && name(1) == dim_) ||
           (op.kind == "causal_mask" && dim_ == "seq");
  }

  // All others must do the same with each element of the dim, wherever it stands.
  Status check(const Op& op) const {
    if (op.phase != Phase::kForward) {
      return invalid_input(
          fmt::format("expected a forward graph, found {} op '{}'", phase_name(op.phase), op.path));
    }
    if (follows(op) && op.text("order").empty()) return {};
    // Dropout draws by index, tables are looked up by index, a causal mask compares indices.
    const bool by_position =
        op.kind == "dropout" || op.kind == "attention" || op.kind == "causal_mask";
    bool as_whole =
        (op.kind == "embedding" && from_.tensor(op.inputs[1]).dims.front().name == dim_) ||
        (op.kind == "cross_entropy" && from_.tensor(op.inputs[0]).dims.back().name == dim_);
    const auto look = [&](TensorId id, const OperandDims& operand) {
      const Tensor& tensor = from_.tensor(id);
      for (size_t d = 0; d < operand.dims.size(); ++d) {
        if (tensor.dims[d].name != dim_) continue;
        as_whole = as_whole || operand.dims[d].size() > 1 || operand.is_windowed(d);
        for (int member : operand.dims[d]) {
          const OpDim& dim = op.annotation.dims[static_cast<size_t>(member)];
          const bool places = dim.name == "seq" || dim.name == "kv" || op.kind == "dropout";
          as_whole = as_whole || dim.mark == Mark::kFrozen || (by_position && places);
        }
      }
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) look(op.inputs[i], op.annotation.inputs[i]);
    for (size_t i = 0; i < op.outputs.size(); ++i) look(op.outputs[i], op.annotation.outputs[i]);
    if (!as_whole) return {};
    return invalid_input(
        fmt::format("dim '{}' cannot be reordered: what op '{}' ({}) does with an element depends "
                    "on its place",
                    dim_, op.path, op.kind));
  }

  void copy(const Op& op) {
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(in_order(input));
    Attributes attributes = op.attributes;
    if (follows(op)) attributes["order"] = order_;
    const std::vector<TensorId> outputs = to_.op(op.path, op.kind, inputs, attributes);
    if (!to_.ok()) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      to_.graph().tensor(outputs[i]).name = from_.tensor(op.outputs[i]).name;
      tensors_[op.outputs[i].index()] = outputs[i];
    }
  }

  TensorId in_order(TensorId id) {
    const Tensor& tensor = from_.tensor(id);
    if (tensor.producer.valid() || !has_dim(tensor)) return tensors_[id.index()];
    const auto [at, is_new] = reordered_.try_emplace(id);
    if (is_new) {
      at->second = to_.op1(tensor.name + ".reorder", "reorder", {tensors_[id.index()]},
                           {{"dim", dim_}, {"order", order_}});
    }
    return at->second;
  }

  const Graph& from_;
  const std::string& dim_;
  const std::string& order_;
  GraphBuilder to_;
  std::vector<TensorId> tensors_;           // by tensor of from_
  std::map<TensorId, TensorId> reordered_;  // sources
};

}  // namespace

Result<Graph> reorder_dim(const Graph& forward, const std::string& dim, const std::string& order) {
  return ReorderPass(forward, dim, order).run();
}

}  // namespace tessera
