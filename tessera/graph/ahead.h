// Moves ops of a training graph one step ahead (a plan's split of "step",
// docs/adr/0067-steps-ahead.md): the values that they make from the next step's inputs are ready
// when that step begins.
//
//   moved_ahead(graph, {{look_up}, {}})
//
//   y = look_up(ids, table)              the op on this step's batch: it is gone, and
//   u = f(ahead.y)                       the ops that read y read a buffer
//   ... backward, table' = update(table, ...)
//   y = look_up(next.ids, table')        stands behind the update of its table, with the next batch
//   ahead.y' = carry(ahead.y, y)         gives the buffer its new value, at the end of the step
//
// `next.ids` is an input whose `of` is ids: it is the same input, one step later. So the step
// computes what it computed, in another order. A stale op reads `table` instead, as it is before
// the update, and stands where it stood: it need not wait, and its values are one step old.
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
// Moves the ops. Returns an error (the end of a sentence) if an op reads a tensor that another
// forward op makes which is not moved with it.
Result<Graph> moved_ahead(const Graph& graph, const AheadOps& ops);

// Returns whether the tensor is an input of the next step.
inline bool is_of_next_step(const Tensor& tensor) {
  return tensor.role == Role::kInput && tensor.of.valid();
}
// Returns whether an op reads, one step early, a tensor at rest that the rest of the step changes,
// so that values of the run are one step old.
bool works_on_old_values(const Graph& graph);
// Returns by op whether it is an update op, or an op of another phase that reads their results.
std::vector<bool> behind_updates(const Graph& graph);
// Returns by tensor whether it is a buffer whose new value is made from the next step's inputs.
std::vector<bool> buffers_ahead(const Graph& graph);

}  // namespace tessera
