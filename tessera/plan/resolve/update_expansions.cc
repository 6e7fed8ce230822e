#include "tessera/plan/resolve/update_expansions.h"

#include <algorithm>
#include <string>

#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"

namespace tessera {
namespace {

bool is_read_in_pieces(const Graph& graph, const std::vector<OpPlan>& ops, TensorId parameter,
                       size_t dim) {
  return std::any_of(graph.ops().begin(), graph.ops().end(), [&](const Op& op) {
    for (size_t i = 0; op.phase == Phase::kForward && i < op.inputs.size(); ++i) {
      if (op.inputs[i] != parameter) continue;
      for (const int of : op.annotation.inputs[i].dims[dim]) {
        if (!ops[op.id.index()].dims[static_cast<size_t>(of)].axes.empty()) return true;
      }
    }
    return false;
  });
}

}  // namespace

std::vector<OpId> updates_to_expand(const Graph& graph, const std::vector<OpPlan>& ops) {
  std::vector<OpId> out;
  const std::vector<TensorId> updated = updated_parameters(graph);
  for (const Op& op : graph.ops()) {
    const TensorId parameter = updated[op.id.index()];
    if (!parameter.valid() || op.info == nullptr || op.info->expandable == nullptr) continue;
    if (ops[op.id.index()].named()) continue;
    const std::vector<std::string> freed = op.info->expandable(op);
    const std::vector<Dim>& dims = graph.tensor(parameter).dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (std::find(freed.begin(), freed.end(), dims[d].name) == freed.end()) continue;
      if (!is_read_in_pieces(graph, ops, parameter, d)) continue;
      out.push_back(op.id);
      break;
    }
  }
  return out;
}

}  // namespace tessera
