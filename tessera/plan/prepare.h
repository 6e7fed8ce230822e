// Makes the graph that a plan can run on. Two functions do so, one on either side of differentiate:
//   - shape_forward changes the forward graph: first what the plan takes apart and reorders, then
//     precision, then the plan's loops.
//   - prepare comes after. A plan may split a dim that an op kind freezes (layer norm over a split
//     hidden dim), or compute activations again. Both are transforms of the graph
//     (graph/transform.h), after which the plan is resolved again.
//
//   TESSERA_TRY(Graph shaped, shape_forward(model.graph, plan, plan.precision.compute));
//   TESSERA_TRY(Graph differentiated, differentiate(shaped, optimizer));
//   TESSERA_TRY(Prepared prepared, prepare(differentiated, plan));
//   lower(prepared.graph, prepared.plan, rank);
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/graph/ahead.h"
#include "tessera/graph/builder.h"
#include "tessera/plan/plan.h"

namespace tessera {

// Returns the forward graph as the plan wants it. `compute`: the dtype to compute in; unset: as the
// graph is. Parameters and the loss keep their names. Errors name the plan's line.
Result<Graph> shape_forward(const Graph& forward, const Plan& plan, std::optional<DType> compute,
                            std::optional<DType> parameter = {});

// Returns the graph that is trained: the forward graph in the dtypes of `precision`, its loops
// written out, and its backward and update ops. Computing in float16 without a stated loss scale
// means a dynamic one. A float64 model gets the same ops, including casts, all in float64: such
// runs are exact references.
Result<Graph> training_graph(const Graph& forward, const Plan& plan, Precision precision,
                             OptimizerSpec optimizer);

struct Prepared {
  Graph graph;
  ResolvedPlan plan;  // of `graph`; nothing is left to expand or to recompute
};
Result<Prepared> prepare(Graph differentiated, const Plan& plan);

struct GraphNames;  // selection.h

// A `GraphVariants` is a differentiated graph that several plans share, with the graphs that they
// made of it: the next plan that takes the same ops apart or recomputes the same activations finds
// them.
class GraphVariants {
 public:
  explicit GraphVariants(std::shared_ptr<const Graph> graph);
  ~GraphVariants();
  GraphVariants(GraphVariants&&) noexcept;
  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  GraphNames& names() { return *names_; }
  // `expanded` and `recomputed` return the graph changed by expand_ops or recompute_ops
  // (graph/transform.h). The result is valid until the next call.
  Result<GraphVariants*> expanded(const std::vector<OpId>& ops);
  Result<GraphVariants*> recomputed(const std::vector<TensorId>& tensors);
  // Returns the graph changed by moved_ahead (graph/ahead.h).
  Result<GraphVariants*> ahead(const AheadOps& ops);

 private:
  struct Variant {
    std::vector<OpId> expanded;
    std::vector<TensorId> recomputed;
    AheadOps ahead;
    std::unique_ptr<GraphVariants> graphs;
  };
  template <class Transform>
  Result<GraphVariants*> variant(Variant wanted, const Transform& transform);

  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<GraphNames> names_;
  std::list<Variant> variants_;  // the variant used last comes first
};

// A `SharedPrepared` is as Prepared, but shares its graph, which is the given one if the plan
// changes nothing.
struct SharedPrepared {
  std::shared_ptr<const Graph> graph;
  ResolvedPlan plan;
};
Result<SharedPrepared> prepare_shared(GraphVariants& differentiated, const Plan& plan);

}  // namespace tessera
