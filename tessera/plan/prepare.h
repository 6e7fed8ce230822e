// Makes the graph on which a plan can run. shape_forward does the first part, before
// differentiate() appends the backward and update ops; prepare does the second part, after it:
//   - shape_forward changes the forward graph: first it expands and reorders what the plan says,
//     then it applies the precision, then the plan's loops.
//   - prepare changes the differentiated graph. A plan may split a dim that an op kind freezes
//     (layer norm over a split hidden dim), or compute activations again. Both need a transform of
//     the graph (graph/transform.h), after which the plan is resolved again.
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

// Returns the forward graph as the plan wants it. `compute` is the dtype of the computation and
// `parameter` that of the parameters at rest; unset: as in the graph. Parameters and the loss keep
// their names. Errors name the line of the plan.
Result<Graph> shape_forward(const Graph& forward, const Plan& plan, std::optional<DType> compute,
                            std::optional<DType> parameter = {});

// Returns the graph that is trained: the forward graph in the dtypes of `precision` with its loops
// written out, and its backward and update ops. If the computation is in float16 and no loss scale
// is given, the loss scale is dynamic. A model with float64 parameters gets the ops of a float32
// model, including casts, but all its tensors are float64, so that its runs are exact references.
Result<Graph> training_graph(const Graph& forward, const Plan& plan, Precision precision,
                             OptimizerSpec optimizer);

struct Prepared {
  Graph graph;
  ResolvedPlan plan;  // resolved on `graph`; nothing is left to expand or to recompute
};
Result<Prepared> prepare(Graph differentiated, const Plan& plan);

struct GraphNames;  // selection.h

// A `GraphVariants` is a differentiated graph that several plans share, and a cache of the graphs
// that were made from it. A plan that expands the same ops or recomputes the same activations as an
// earlier plan gets the graph from the cache.
class GraphVariants {
 public:
  explicit GraphVariants(std::shared_ptr<const Graph> graph);
  ~GraphVariants();
  GraphVariants(GraphVariants&&) noexcept;
  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  GraphNames& names() { return *names_; }
  // `expanded` and `recomputed` return the variant whose graph is this graph after expand_ops or
  // recompute_ops (graph/transform.h). The pointer is valid until the next call.
  Result<GraphVariants*> expanded(const std::vector<OpId>& ops);
  Result<GraphVariants*> recomputed(const std::vector<TensorId>& tensors);
  // Returns the variant whose graph is this graph after moved_ahead (graph/ahead.h).
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

// A `SharedPrepared` is a Prepared whose graph is shared with a GraphVariants. If the plan needs no
// transform, it is the graph that was given.
struct SharedPrepared {
  std::shared_ptr<const Graph> graph;
  ResolvedPlan plan;
};
Result<SharedPrepared> prepare_shared(GraphVariants& differentiated, const Plan& plan);

}  // namespace tessera
