// Facts that every step of the walk asks for: where and when an op runs, the shapes that tensors
// have in a block of one micro-batch, which op makes and which ops read a tensor. Private to
// tessera/program.
#pragma once

#include <vector>

#include "tessera/program/place_text.h"
#include "tessera/program/walk.h"

namespace tessera {

// A `Site` says where instructions are written, and for which op.
struct Site {
  PlaceId place;
  BlockRef block;
  OpId cause;
  When when = When::kAlways;
};

// `Facts` refers to the graph, the plan and the analysis, which must outlive it. The walk changes
// only one kind of fact: an op that works on parts of a sum is split as the parts are (split_as,
// linear_parts.h).
class Facts {
 public:
  Facts(const Graph& graph, const ResolvedPlan& plan, Analysis& analysis)
      : graph_(graph), plan_(plan), analysis_(analysis) {}

  const Graph& graph() const { return graph_; }
  const ResolvedPlan& plan() const { return plan_; }
  const Analysis& analysis() const { return analysis_; }
  bool one_micro_batch() const { return analysis_.shapes.micro_batches == 1; }

  const Mesh& mesh(PlaceId place) const { return plan_.places[place.index()].mesh; }
  const OpPlan& op_plan(const Op& op) const { return analysis_.ops[op.id.index()]; }
  PlaceId place_of(const Op& op) const { return plan_.place_of(op_plan(op).stage); }
  BlockRef block_of(const Op& op) const { return analysis_.blocks[op.id.index()]; }
  Site site(const Op& op) const { return {place_of(op), block_of(op), op.id}; }

  const Tensor& tensor(TensorId id) const { return graph_.tensor(id); }
  const std::vector<int64_t>& shape(TensorId id) const {
    return analysis_.tensor_shapes[id.index()];
  }
  // Returns the shape in the smaller micro-batches; this is shape(id) if all micro-batches have the
  // same size.
  std::vector<int64_t> smaller_shape(TensorId id) const {
    ShapeRule rule = analysis_.shapes;
    rule.graph = &graph_;
    rule.smaller = true;
    return rule.shape(id);
  }
  const TensorPlan& tensor_plan(TensorId id) const { return plan_.tensors[id.index()]; }
  const std::vector<OpId>& readers(TensorId id) const { return analysis_.consumers[id.index()]; }
  const Op* first_reader(TensorId id) const;  // null: nobody reads it
  // Returns the place where the tensor's producer runs or, if no op makes the tensor, the place
  // where the tensor rests.
  PlaceId made_on(TensorId id) const;
  // Returns whether each micro-batch makes a term of the tensor and its value is the sum of these
  // terms.
  bool sums_micro_batches(TensorId id) const { return analysis_.sums_micro_batches(graph_, id); }
  // Returns whether the tensor is a parameter's gradient that rests in shards at the place. The
  // tensor's home layout may be used at this place only, because other places may have other
  // meshes.
  bool rests_sharded(TensorId id, PlaceId place) const {
    return !tensor_plan(id).over.numbers().empty() && graph_.is_parameter_gradient(id) &&
           analysis_.homes[id.index()].place() == place;
  }
  // Returns whether parts that a micro-batch makes at the place in the layout `made` are sent to
  // the shards of the sum over micro-batches in each micro-batch (sharded_gradients.h).
  bool scatters_each_time(TensorId id, PlaceId place, const Layout& made) const {
    return sums_micro_batches(id) && !made.complete() && rests_sharded(id, place);
  }

  // Changes the op's split so that its first output has the layout `output`. From then on the op
  // runs without a time loop and computes no halo.
  void split_as(const Op& op, const Layout& output);

 private:
  const Graph& graph_;
  const ResolvedPlan& plan_;
  Analysis& analysis_;
};

}  // namespace tessera
