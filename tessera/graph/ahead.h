// Moves ops of a training graph one step ahead (a plan's split of "step",
// docs/adr/0067-steps-ahead.md): step t runs a moved op on the inputs of step t + 1, so that the
// op's values are ready when step t + 1 begins.
//
//   moved_ahead(graph, {{look_up}, {}})
//
//   y = look_up(ids, table)              is removed; the ops that read y read a buffer instead:
//   u = f(ahead.y)
//   ... backward, table' = update(table, ...)
//   y = look_up(next.ids, table')        runs after the update of its table, on the next batch
//   ahead.y' = carry(ahead.y, y)         gives the buffer its new value, at the end of the step
//
// `next.ids` is an input whose `of` is ids: the input ids of the next step. The training computes
// what it computed before the move, in another order. A stale op reads `table` as it is before the
// update, instead of table', and keeps its place in the graph. So it does not wait for the update,
// but the values that it reads are one step old.
#pragma once

#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct AheadOps {
  std::vector<OpId> exact, stale;  // forward ops
  bool empty() const { return exact.empty() && stale.empty(); }
  friend bool operator==(const AheadOps&, const AheadOps&) = default;
};
// Moves the ops. Returns an error (the end of a sentence) if a moved op reads a tensor that a
// forward op makes which is not moved in the same list (`exact` or `stale`).
Result<Graph> moved_ahead(const Graph& graph, const AheadOps& ops);

// Returns whether the tensor is an input of the next step.
inline bool is_of_next_step(const Tensor& tensor) {
  return tensor.role == Role::kInput && tensor.of.valid();
}
// Returns whether an op that is no update op works for the next step and reads a tensor at rest
// that this step still changes. The run then uses values that are one step old.
bool works_on_old_values(const Graph& graph);
// Returns for each op whether it is an update op, or reads, directly or through other ops, a result
// of an update op.
std::vector<bool> behind_updates(const Graph& graph);
// Returns for each tensor whether it is a buffer whose new value is made from the next
// step's inputs.
std::vector<bool> buffers_ahead(const Graph& graph);

}  // namespace tessera
