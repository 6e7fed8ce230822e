// Finds the layouts in which ops need their operands.
#include "tessera/program/walk/needs.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {

size_t operand_index(const Graph& graph, const Op& reader, TensorId tensor) {
  const auto it = std::find(reader.inputs.begin(), reader.inputs.end(), tensor);
  TESSERA_CHECK(it != reader.inputs.end(), "'{}' does not read '{}'", reader.path,
                graph.tensor(tensor).name);
  return static_cast<size_t>(it - reader.inputs.begin());
}

Layout need_of(const Facts& facts, const Op& op, size_t operand) {
  return operand_layout(op, facts.op_plan(op), op.annotation.inputs[operand],
                        facts.mesh(facts.place_of(op)), facts.shape(op.inputs[operand]));
}

Layout staged_layout(const Layout& need, const StepPiece& piece, const Layout& hold,
                     const Mesh& mesh, const std::vector<int64_t>& shape) {
  if (piece.read || !piece.rims.empty())
    return need;  // it includes the halos of the pieces of all steps
  const auto extended = [&](const Axes& axes) {
    Layout out = need;
    out.grain[piece.dim] = piece.grain;  // as the steps cut it
    for (AxisId axis : axes) out.shards[piece.dim].push_back(axis);
    return normalise(std::move(out), mesh, shape);
  };
  if (piece.order == StepOrder::kNested) {
    Axes axes;
    for (const SkewAxis& skew : piece.skew) axes.push_back(skew.axis);
    const bool fits = std::all_of(axes.begin(), axes.end(),
                                  [&](AxisId axis) { return !need.uses(axis) && hold.uses(axis); });
    if (fits) return extended(axes);
  }
  const Axes& held = hold.shards[piece.dim];
  for (auto axis = held.rbegin(); axis != held.rend(); ++axis) {
    if (!need.uses(*axis)) return extended({*axis});
  }
  for (AxisId axis : hold.partial) {
    if (!need.uses(axis)) return extended({axis});
  }
  return need;
}

Layout landing_layout(const Facts& facts, TensorId tensor, const Op& reader,
                      const std::optional<Layout>& hint) {
  const size_t operand = operand_index(facts.graph(), reader, tensor);
  const Mesh& mesh = facts.mesh(facts.place_of(reader));
  Layout need = without_windows(need_of(facts, reader, operand), mesh, facts.shape(tensor));
  const auto piece = step_piece(reader, facts.op_plan(reader), reader.annotation.inputs[operand],
                                mesh, facts.graph(), 0);
  if (!piece || !hint) return need;
  return staged_layout(need, *piece, *hint, mesh, facts.shape(tensor));
}

std::optional<Layout> destination(const Facts& facts, TensorId tensor, PlaceId place,
                                  const Layout& made) {
  const Op* chosen = nullptr;
  for (OpId id : facts.readers(tensor)) {
    const Op& reader = facts.graph().op(id);
    const bool updates =
        !reader.outputs.empty() && facts.tensor(reader.outputs[0]).update_of.valid();
    if (chosen == nullptr || (updates && chosen->phase == Phase::kUpdate)) chosen = &reader;
  }
  if (chosen == nullptr) return std::nullopt;
  const PlaceId there = facts.place_of(*chosen);
  if (there == place) return landing_layout(facts, tensor, *chosen, made);
  const Layout need = need_of(facts, *chosen, operand_index(facts.graph(), *chosen, tensor));
  return translate(without_windows(need, facts.mesh(there), facts.shape(tensor)), facts.mesh(there),
                   facts.mesh(place));
}

}  // namespace tessera
