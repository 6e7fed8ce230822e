// reorder_dim; see transform.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/graph/transform.h"

namespace tessera {
namespace {

class ReorderPass {
 public:
  ReorderPass(const Graph& from, const std::string& dim, const std::string& order)
      : from_(from),
        dim_(dim),
        order_(order),
        to_(from.name),
        tensors_(from.tensors().size()),
        ordered_(from.tensors().size()) {}

  Result<Graph> run() {
    for (const Op& op : from_.ops()) {
      if (op.phase == Phase::kForward) continue;
      return invalid_input(
          fmt::format("expected a forward graph, found {} op '{}'", phase_name(op.phase), op.path));
    }
    TESSERA_TRY_VOID(reorder_forward());
    if (to_.ok() && from_.loss.valid()) to_.graph().loss = tensors_[from_.loss.index()];
    return to_.finish();
  }

  Status reorder_forward() {
    TESSERA_TRY_VOID(parse_order(order_));
    find_names();
    bool found = false;
    for (const Tensor& tensor : from_.tensors()) {
      found = found || has_dim(tensor);
      if (tensor.producer.valid()) continue;
      tensors_[tensor.id.index()] = to_.graph().add_tensor(tensor);
      for (const Dim& dim : tensor.dims)
        ordered_[tensor.id.index()].push_back(names_.contains(dim.name));
    }
    if (!found) {
      return invalid_input(fmt::format("no tensor of the graph has the dim '{}'", dim_));
    }
    for (const Op& op : from_.ops()) {
      if (op.phase == Phase::kForward) TESSERA_TRY_VOID(reorder(op));
      if (!to_.ok()) break;
    }
    return {};
  }

 private:
  // Finds the names of the dims to reorder. A table with a dim of queries and one of keys (a bias
  // of scores) is reordered along both, so the name of the keys' dim is added.
  void find_names() {
    names_.insert(dim_);
    for (const Op& op : from_.ops()) {
      const std::optional<QueryKey> dims = query_key_of(op);
      if (!dims) continue;
      const OpDim &query = op.annotation.dims[static_cast<size_t>(dims->query)],
                  &key = op.annotation.dims[static_cast<size_t>(dims->key)];
      if (query.name == dim_ && query.size == key.size) names_.insert(key.name);
    }
  }

  bool has_dim(const Tensor& tensor) const {
    return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                       [&](const Dim& dim) { return dim.name == dim_; });
  }

  // Returns for each dim of the op whether its elements are in the new order, because the elements
  // of an operand are. For a dim that no operand has, the name decides, as for sources.
  Result<std::vector<bool>> ordered_dims(const Op& op) const {
    const auto& dims = op.annotation.dims;
    std::vector<bool> ordered(dims.size()), read(dims.size());
    // The first pass collects from the operands, the second checks.
    for (const bool first : {true, false}) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const OperandDims& operand = op.annotation.inputs[i];
        for (size_t t = 0; t < operand.dims.size(); ++t) {
          const bool in_order = ordered_[op.inputs[i].index()][t];
          for (const int member : operand.dims[t]) {
            const auto d = static_cast<size_t>(member);
            read[d] = true;
            if (first && in_order) {
              if (operand.dims[t].size() > 1 || operand.is_windowed(t)) return refuse(op);
              ordered[d] = true;
            } else if (!first && ordered[d] && !in_order && dims[d].size > 1) {
              return refuse(op);
            }
          }
        }
      }
    }
    for (size_t d = 0; d < dims.size(); ++d) {
      ordered[d] = ordered[d] || (!read[d] && dims[d].name == dim_);
    }
    return ordered;
  }

  tl::unexpected<Error> refuse(const Op& op) const {
    return invalid_input(
        fmt::format("dim '{}' cannot be reordered: what op '{}' ({}) does with an element depends "
                    "on its place",
                    dim_, op.path, op.kind));
  }

  // Returns whether the op has an expansion over the dim. Such an op takes sums or maxima over the
  // dim, which are the same in any order.
  static bool expands_over(const Op& op, const std::string& dim) {
    const KindInfo& info = info_of(op);
    if (info.expandable == nullptr) return false;
    const std::vector<std::string> dims = info.expandable(op);
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  }

  // Checks, for each reordered dim, that the op treats all elements alike, whatever their position,
  // or that it takes the order as an attribute. In the second case both queries and keys must be
  // reordered. Returns whether the op takes the order.
  Result<bool> follows(const Op& op, const std::vector<bool>& ordered) const {
    bool follows = false;
    for (size_t d = 0; d < ordered.size(); ++d) {
      if (!ordered[d]) continue;
      const OpDim& dim = op.annotation.dims[d];
      if (dim.window || (dim.mark == Mark::kFrozen && !expands_over(op, dim.name))) {
        return refuse(op);
      }
      switch (position_rule(op, static_cast<int>(d))) {
        case PositionRule::kFree:
        case PositionRule::kSize: break;
        case PositionRule::kOrder:
        case PositionRule::kCausal: follows = true; break;
        case PositionRule::kUnknown:
        case PositionRule::kIndex:
        case PositionRule::kWithin: return refuse(op);
      }
    }
    if (!follows) return false;
    const std::optional<QueryKey> dims = query_key_of(op);
    const bool both = dims && ordered[static_cast<size_t>(dims->query)] &&
                      ordered[static_cast<size_t>(dims->key)];
    if (!both || !op.text("order").empty()) return refuse(op);
    return true;
  }

  Status reorder(const Op& op) {
    TESSERA_TRY(const std::vector<bool> ordered, ordered_dims(op));
    TESSERA_TRY(const bool takes_order, follows(op, ordered));
    std::vector<TensorId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(in_order(input));
    Attributes attributes = op.attributes;
    if (takes_order) attributes["order"] = order_;
    const std::vector<TensorId> outputs = to_.op(op.path, op.kind, inputs, attributes);
    if (!to_.ok()) return {};
    for (size_t i = 0; i < outputs.size(); ++i) {
      to_.graph().tensor(outputs[i]).name = from_.tensor(op.outputs[i]).name;
      tensors_[op.outputs[i].index()] = outputs[i];
      const OperandDims& operand = op.annotation.outputs[i];
      for (size_t t = 0; t < operand.dims.size(); ++t) {
        const bool any = std::any_of(operand.dims[t].begin(), operand.dims[t].end(),
                                     [&](int d) { return ordered[static_cast<size_t>(d)]; });
        if (any && (operand.dims[t].size() > 1 || operand.is_windowed(t))) return refuse(op);
        ordered_[op.outputs[i].index()].push_back(any);
      }
    }
    return {};
  }

  TensorId in_order(TensorId id) {
    const Tensor& tensor = from_.tensor(id);
    const auto& along = ordered_[id.index()];
    const bool any = std::find(along.begin(), along.end(), true) != along.end();
    if (tensor.producer.valid() || !any) return tensors_[id.index()];
    const auto [at, is_new] = reordered_.try_emplace(id, tensors_[id.index()]);
    if (!is_new) return at->second;
    for (const Dim& dim : tensor.dims) {
      if (!names_.contains(dim.name)) continue;
      const std::string path =
          tensor.name + (dim.name == dim_ ? ".reorder" : ".reorder_" + dim.name);
      at->second = to_.op1(path, "reorder", {at->second}, {{"dim", dim.name}, {"order", order_}});
    }
    return at->second;
  }

  const Graph& from_;
  const std::string& dim_;
  const std::string& order_;
  std::set<std::string> names_;  // names of dims that are reordered in sources
  GraphBuilder to_;
  std::vector<TensorId> tensors_;  // by tensor of from_
  // By tensor of from_ and by its dims: whether the elements along the dim are in the new order.
  // The dim's name does not tell it, because an op may have renamed the dim.
  std::vector<std::vector<bool>> ordered_;
  // For each source: the op output that holds it in the new order.
  std::map<TensorId, TensorId> reordered_;
};

}  // namespace

Result<Graph> reorder_dim(const Graph& forward, const std::string& dim, const std::string& order) {
  return ReorderPass(forward, dim, order).run();
}

Status check_reorder(const Graph& graph, const std::string& dim, const std::string& order) {
  return ReorderPass(graph, dim, order).reorder_forward();
}

}  // namespace tessera
