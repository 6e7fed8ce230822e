// Finds the ops and tensors that the entries of a plan select. If an entry selects nothing, the
// result is an error that suggests the nearest name in the graph.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/resolve/selector.h"

namespace tessera {

// Returns an error "<file>:<line>: <message>", or "<file>: <message>" if `line` is 0.
tl::unexpected<Error> plan_error(const Plan& plan, int line, const std::string& message);

// Returns ", did you mean '<best>'?"; "" if `best` is empty.
std::string suggestion(const std::string& best);

// `GraphNames` are indexes of the op paths and tensor names of a graph. They are made once for all
// plans that are resolved on the graph. The graph must outlive them.
struct GraphNames {
  explicit GraphNames(const Graph& graph);
  PathIndex ops, tensors;
};

class Selection {
 public:
  // Makes a selection. All arguments must outlive it. `names` must be made from `graph`.
  Selection(const Plan& plan, const Graph& graph, GraphNames& names);
  // Returns the ops of the phase that the pattern selects (selector.h), in graph order. `line`: the
  // line of the entry, for the error.
  Result<std::vector<OpId>> ops(const std::string& pattern, Phase phase, int line);
  // Returns the tensors that the entry selects, by a pattern or by a role such as "role:gradient".
  Result<std::vector<TensorId>> tensors(const StoreEntry& entry);

 private:
  Result<Role> parse_role(const StoreEntry& entry) const;

  const Plan& plan_;
  const Graph& graph_;
  GraphNames& names_;
};

// Resolves the plan as resolve() of plan.h does, but does not build the names of the graph again.
Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph, GraphNames& names);

}  // namespace tessera
