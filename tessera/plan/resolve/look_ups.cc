#include "tessera/plan/resolve/look_ups.h"

#include "tessera/graph/kinds.h"

namespace tessera {

std::vector<LookUp> look_ups_of(const Graph& forward) {
  std::vector<LookUp> out;
  for (const Op& op : forward.ops()) {
    if (op.phase != Phase::kForward || !looks_up_rows(op)) continue;
    const Tensor& table = forward.tensor(op.inputs[1]);
    if (table.role != Role::kParameter) continue;
    out.push_back({op.id, table.id, op.path, table.dims[0].name, table.dims[1].name});
  }
  return out;
}

}  // namespace tessera
