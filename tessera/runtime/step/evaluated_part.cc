#include "tessera/runtime/step/evaluated_part.h"

#include <algorithm>

#include "tessera/program/instructions.h"
#include "tessera/program/passes/ahead_part.h"

namespace tessera {

ByBlock<std::vector<bool>> evaluated_part(const Program& program, const Graph& graph) {
  ByBlock<std::vector<bool>> part;
  const std::vector<bool> of_next_step = made_ahead(graph);
  const auto works_ahead = [&](OpId op) {
    const std::vector<TensorId>& made = graph.op(op).outputs;
    return !made.empty() && of_next_step[made[0].index()];
  };
  const auto made_forward = [&](TensorId tensor) {
    const OpId producer = graph.tensor(tensor).producer;
    return producer.valid() && graph.op(producer).phase == Phase::kForward &&
           !works_ahead(producer);
  };
  const auto moves = [&](const Issue& issue) {
    return std::any_of(issue.transfers.begin(), issue.transfers.end(),
                       [&](const Transfer& one) { return made_forward(one.tensor); });
  };
  for (const auto& [ref, block] : program.blocks) {
    std::vector<bool>& chosen = part[ref];
    const bool backward = ref.kind == BlockKind::kBackward || ref.kind == BlockKind::kWeight;
    for (const Instruction& instruction : block) {
      const OpId cause = instruction.cause;
      const bool forward =
          cause.valid() && graph.op(cause).phase == Phase::kForward && !works_ahead(cause);
      chosen.push_back(match(
          instruction, [](const Wait&) { return true; },
          [&](const Issue& issue) { return forward || (!backward && moves(issue)); },
          [&](const Copy& copy) { return forward || (!backward && made_forward(copy.tensor)); },
          [&](const FetchRows& fetch) { return forward && !fetch.ahead; },
          [&](const OneOf<Compute, Send, Recv, Load, Free, ReleaseRows> auto&) {
            return forward;
          }));
    }
  }
  return part;
}

}  // namespace tessera
