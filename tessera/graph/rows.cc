#include "tessera/graph/rows.h"

#include <sstream>
#include <string>

#include "tessera/graph/kinds.h"

namespace tessera {

std::vector<size_t> ids_of_rows(const Op& op) {
  if (looks_up_rows(op)) return {0};
  const KindInfo& kind = info_of(op);
  if (kind.bytes != ByteRule::kRows || !kind.optimizer) return {};
  std::vector<size_t> found;
  std::istringstream modes(op.text("modes"));
  size_t input = 1 + kind.optimizer->states.size();
  for (std::string mode; modes >> mode; input += operands_of_look_up(mode)) found.push_back(input);
  return found;
}

size_t operands_of_look_up(std::string_view mode) { return mode == kWeightedLookUp ? 3 : 2; }

int row_dim(const Op& op, size_t input) { return op.annotation.inputs[input].dims[0][0]; }

bool reads_sizes_alone(const Op& op, size_t input) {
  const KindInfo& kind = info_of(op);
  return kind.bytes == ByteRule::kRows && !kind.optimizer && input == 0;
}

}  // namespace tessera
