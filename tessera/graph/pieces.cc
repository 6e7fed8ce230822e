#include "tessera/graph/pieces.h"

#include <fmt/format.h>

#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/within.h"

namespace tessera {

Status check_rows_within(std::string_view text, const Dim& rows) {
  TESSERA_TRY(const std::vector<Within> within, parse_within(text));
  for (const Within& one : within) {
    if (one.dim == rows.name && one.blocks == 1 && one.begin + rows.size <= one.whole) continue;
    return invalid_input(
        fmt::format("expected 'within' to place the rows {}={} in a larger table, found \"{}\"",
                    rows.name, rows.size, text));
  }
  return {};
}

int64_t begin_within(const Op& op, int op_dim) {
  if (!op.attributes.contains("within")) return 0;
  const auto within = parse_within(op.text("within"));
  const std::string& dim = op.annotation.dims[static_cast<size_t>(op_dim)].name;
  for (const Within& one : within.value_or(std::vector<Within>())) {
    if (one.dim == dim) return one.begin;
  }
  return 0;
}

Box PieceOrigin::in_whole(Box region) const {
  if (piece && region.rank() > 0) region.dims[0].begin += first;
  return region;
}

Origins::Origins(const Graph& graph) : graph_(graph) {
  for (const Op& op : graph.ops()) {
    if (!looks_up_rows(op) || !op.attributes.contains("within")) continue;
    const TensorId read = table_of(graph, op.inputs[1]);
    if (!read.valid()) continue;
    const Tensor& table = graph.tensor(read);
    const auto within = parse_within(op.text("within"));
    if (!within || within->empty()) continue;
    const TensorId parameter = table.update_of.valid() ? table.update_of : table.id;
    pieces_[parameter] = {within->front().begin, within->front().whole};
  }
}

PieceOrigin Origins::of(TensorId id) const {
  const Tensor& tensor = graph_.tensor(id);
  PieceOrigin origin{tensor.name, tensor.shape()};
  TensorId parameter = tensor.role == Role::kParameter ? id : tensor.of;
  if (parameter.valid() && graph_.tensor(parameter).update_of.valid())
    parameter = graph_.tensor(parameter).update_of;
  const auto found = parameter.valid() ? pieces_.find(parameter) : pieces_.end();
  const std::vector<Dim>& dims = tensor.dims;
  // Some states of a table lack the dim of its rows. They are not cut with the table.
  if (found == pieces_.end() || dims.empty() || dims[0] != graph_.tensor(parameter).dims[0])
    return origin;
  origin.name = name_of_whole(tensor.name);
  origin.shape[0] = found->second.whole;
  origin.first = found->second.first;
  origin.piece = true;
  return origin;
}

std::string_view name_of_whole(std::string_view piece) { return piece.substr(0, piece.rfind('#')); }

Tensor whole_of(const Tensor& tensor, const PieceOrigin& origin) {
  Tensor whole = tensor;
  whole.name = origin.name;
  for (size_t d = 0; d < whole.dims.size(); ++d) whole.dims[d].size = origin.shape[d];
  return whole;
}

}  // namespace tessera
