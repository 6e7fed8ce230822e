#include "tessera/graph/rows.h"

#include <algorithm>
#include <array>
#include <optional>
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

const RowNaming* naming_of(const Op& op) {
  const std::optional<RowNaming>& naming = info_of(op).names_rows;
  return naming ? &*naming : nullptr;
}

std::vector<size_t> ids_of_naming(const Op& op) {
  const RowNaming& naming = *naming_of(op);
  return {naming.begin, naming.end, naming.columns};
}

bool name_alike(const Op& a, const Op& b) {
  const RowNaming *one = naming_of(a), *other = naming_of(b);
  if (one == nullptr || other == nullptr) return false;
  const bool same_ids = a.inputs[one->begin] == b.inputs[other->begin] &&
                        a.inputs[one->end] == b.inputs[other->end] &&
                        a.inputs[one->columns] == b.inputs[other->columns];
  constexpr std::array<const char*, 4> kSample = {"sampler", "width", "seed", "each_step"};
  return same_ids && std::ranges::all_of(kSample, [&](const char* name) {
           return a.attributes.at(name) == b.attributes.at(name);
         });
}

int64_t most_named(const Op& op) {
  const RowNaming& naming = *naming_of(op);
  const auto size = [&](size_t input) {
    return op.annotation.dims[static_cast<size_t>(op.annotation.inputs[input].dims[0][0])].size;
  };
  const int64_t all = size(naming.columns), width = op.integer("width");
  return width > 0 ? std::min(all, width * size(naming.begin)) : all;
}

}  // namespace tessera
