#include "tessera/planners/unit_rows.h"

#include <algorithm>
#include <numeric>

namespace tessera {

std::vector<size_t> join_units(const std::vector<double>& work, size_t most) {
  const double share = std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(most);
  std::vector<size_t> out;
  double own = 0;
  for (size_t u = 0; u < work.size(); ++u) {
    if (out.empty() || work.size() <= most || own + work[u] > share) {
      out.push_back(u);
      own = 0;
    }
    own += work[u];
  }
  return out;
}

std::vector<GroupBorder> group_borders(const Graph& forward, const std::vector<FoldUnit>& units,
                                       const std::vector<size_t>& group_of) {
  std::vector<size_t> group_of_op(forward.ops().size());
  for (size_t u = 0; u < units.size(); ++u) {
    for (const OpId op : units[u].ops) group_of_op[op.index()] = group_of[u];
  }
  const auto readers = forward.consumers();
  std::vector<GroupBorder> out;
  for (const Tensor& tensor : forward.tensors()) {
    if (!tensor.producer.valid()) continue;
    GroupBorder border{
        group_of_op[tensor.producer.index()], {}, static_cast<double>(tensor.bytes()), tensor.id};
    for (const OpId reader : readers[tensor.id.index()]) {
      const size_t group = group_of_op[reader.index()];
      if (group == border.from) continue;
      if (std::find(border.to.begin(), border.to.end(), group) == border.to.end())
        border.to.push_back(group);
    }
    if (!border.to.empty()) out.push_back(std::move(border));
  }
  return out;
}

}  // namespace tessera
