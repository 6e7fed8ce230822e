// Ops of a training graph that work one step ahead (a plan's split of "step",
// docs/adr/0067-steps-ahead.md): what they make of the next step's inputs is ready when that step
// begins.
//
//   moved_ahead(graph, {{look_up}, {}})
//
//   y = look_up(ids, table)              reads the batch of this step: it is gone, and
//   u = f(ahead.y)                       what read y reads a buffer
//   ... backward, table' = update(table, ...)
//   y = look_up(next.ids, table')        behind the update of what it reads, for the next batch
//   ahead.y' = carry(ahead.y, y)         the buffer's new value, at the end of the step
//
// `next.ids` is an input whose `of` is ids: the same input, one step later. So the step computes what
// it computed, in another order. A stale op reads `table` instead, as it is before the update, and
// stands where it stood: it need not wait, and its values are one step old.
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
// An Error, the end of a sentence, if an op reads what another forward op makes that is not moved
// with it.
Result<Graph> moved_ahead(const Graph& graph, const AheadOps& ops);

// Is it an input of the step to come?
inline bool is_of_next_step(const Tensor& tensor) {
  return tensor.role == Role::kInput && tensor.of.valid();
}
// Does an op read a tensor at rest, one step early, that the rest of the step changes? Then values
// of the run are a step old.
bool works_on_old_values(const Graph& graph);
// By op: update ops, and ops of other phases that read what those make.
std::vector<bool> behind_updates(const Graph& graph);
// By tensor: buffers whose new values are made of the next step's inputs.
std::vector<bool> buffers_ahead(const Graph& graph);

}  // namespace tessera
