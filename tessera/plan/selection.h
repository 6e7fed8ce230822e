// What the entries of a plan select in a graph; one that selects nothing is an error with the
// nearest name there is.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/selector.h"

namespace tessera {

// "<file>:<line>: <message>"; without a line where there is none.
tl::unexpected<Error> plan_error(const Plan& plan, int line, const std::string& message);

// ", did you mean '<best>'?"; "" if `best` is empty.
std::string suggestion(const std::string& best);

// The names in a graph, for plans that are resolved on it one after the other. The graph outlives
// it.
struct GraphNames {
  explicit GraphNames(const Graph& graph);
  PathIndex ops, tensors;
};

class Selection {
 public:
  // All must outlive the selection; `names` are those of the graph.
  Selection(const Plan& plan, const Graph& graph, GraphNames& names);
  // Ops of a phase, in graph order (selector.h).
  Result<std::vector<OpId>> ops(const std::string& pattern, Phase phase, int line);
  // Tensors by pattern, or "role:gradient" and the like.
  Result<std::vector<TensorId>> tensors(const StoreEntry& entry);

 private:
  Result<Role> parse_role(const StoreEntry& entry) const;

  const Plan& plan_;
  const Graph& graph_;
  GraphNames& names_;
};

// As resolve() of plan.h.
Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph, GraphNames& names);

}  // namespace tessera
