#include "tessera/sparse/graphs/node_inputs.h"

namespace tessera::sparse {
namespace {

void add_rows(const std::string& name, const CsrGraph& rows, bool valued, NodeInputs& inputs) {
  inputs.integers[name + ".begin"] = {rows.offsets.begin(), rows.offsets.end() - 1};
  inputs.integers[name + ".end"] = {rows.offsets.begin() + 1, rows.offsets.end()};
  inputs.integers[name + ".columns"] = {rows.columns.begin(), rows.columns.end()};
  if (!valued) return;
  std::vector<float>& values = inputs.numbers[name + ".values"];
  for (int64_t edge = 0; edge < rows.edges(); ++edge) values.push_back(rows.value(edge));
}

}  // namespace

NodeInputs node_inputs(const NodeData& data, bool weighted) {
  NodeInputs inputs;
  add_rows("features", normalized_rows(data.features), true, inputs);
  add_rows("edges", weighted ? normalized_symmetric(with_self_loops(data.graph)) : data.graph,
           weighted, inputs);
  return inputs;
}

}  // namespace tessera::sparse
