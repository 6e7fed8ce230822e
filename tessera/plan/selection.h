// The selection of ops and tensors by a plan's entries. An entry that selects nothing is an error
// with the nearest name that exists.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/selector.h"

namespace tessera {

// Returns an error "<file>:<line>: <message>"; without the line if there is none.
tl::unexpected<Error> plan_error(const Plan& plan, int line, const std::string& message);

// Returns ", did you mean '<best>'?"; "" if `best` is empty.
std::string suggestion(const std::string& best);

// `GraphNames` are the names in a graph, for plans that are resolved on it one after the other. The
// graph must outlive them.
struct GraphNames {
  explicit GraphNames(const Graph& graph);
  PathIndex ops, tensors;
};

class Selection {
 public:
  // Makes a selection. All arguments must outlive it; `names` are those of the graph.
  Selection(const Plan& plan, const Graph& graph, GraphNames& names);
  // Returns the selected ops of a phase, in graph order (selector.h).
  Result<std::vector<OpId>> ops(const std::string& pattern, Phase phase, int line);
  // Returns the tensors that the entry selects by a pattern, or by "role:gradient" and the like.
  Result<std::vector<TensorId>> tensors(const StoreEntry& entry);

 private:
  Result<Role> parse_role(const StoreEntry& entry) const;

  const Plan& plan_;
  const Graph& graph_;
  GraphNames& names_;
};

// Resolves the plan as resolve() of plan.h does, with names that are known already.
Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph, GraphNames& names);

}  // namespace tessera
