#include "tessera/graph/rows.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "tessera/graph/kinds.h"

namespace tessera {

std::vector<size_t> ids_of_rows(const Op& op) {
  if (looks_up_rows(op)) return {0};
  if (info_of(op).bytes != ByteRule::kRows || reads_sizes_alone(op, 0)) return {};
  std::vector<size_t> found;
  std::istringstream modes(op.text("modes"));
  size_t input = tables_of_rows(op);
  for (std::string mode; modes >> mode; input += operands_of_look_up(mode)) found.push_back(input);
  return found;
}

size_t operands_of_look_up(std::string_view mode) {
  return mode == kWeightedLookUp ? 3 : mode == kIdsAlone ? 1 : 2;
}

size_t tables_of_rows(const Op& op) {
  const std::vector<OperandDims>& inputs = op.annotation.inputs;
  const DimGroup& rows = inputs[0].dims[0];
  size_t count = 0;
  while (count < inputs.size() && !inputs[count].dims.empty() && inputs[count].dims[0] == rows)
    ++count;
  return count;
}

int row_dim(const Op& op, size_t input) { return op.annotation.inputs[input].dims[0][0]; }

bool reads_sizes_alone(const Op& op, size_t input) {
  if (info_of(op).bytes != ByteRule::kRows || input != 0) return false;
  const DimGroup& rows = op.annotation.inputs[0].dims[0];
  return std::none_of(
      op.annotation.outputs.begin(), op.annotation.outputs.end(),
      [&](const OperandDims& made) { return !made.dims.empty() && made.dims[0] == rows; });
}

}  // namespace tessera
