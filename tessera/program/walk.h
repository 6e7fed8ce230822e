// The walk: lowering's pass over the graph, in graph order. It turns what a rank holds into what an
// op needs, brings what an op makes to its home (docs/theory/lowering.md sections 2 to 4), and
// writes the place texts without waits (waits.cc adds those). Private to tessera/program.
//
//   for each op, at its stage's place, in its stage's block (walk.cc):
//     need of each operand = projection of the op's piece
//       -> made available by nothing, a slice, collectives or a crossing; step by step if the op
//          has a time loop
//     made view of each output
//       -> brought to the tensor's home: completed for its first reader, reduced to the holder of
//          each step, accumulated, or put back into the tensor that it updates
//
// The files of the folder walk/, in an order in which each uses only those above it:
//   facts             where and when ops run, shapes, readers; nothing in the walk changes them
//   text_writer       the texts as they are written: buffers, handles, order
//   conversion_paths  the cheapest way from one layout to another, found once
//   holds             what each place holds: homes and copies
//   convert           writes the collectives of a conversion
//   loads             inputs of the step, loaded once in each layout
//   named_rows        conversions that move only the rows that ids name
//   needs             the layout in which an op needs an operand or wants to receive a tensor
//   complete          when and how parts become complete
//   between_places    what crosses to another place
//   materialise       makes a tensor available as an op needs it
//   loop_pieces, step_operands, step_outputs   ops with time loops
//   sums_in_place     sums whose terms are written into one buffer one after the other
//   linear_parts      linear ops that work on parts of a sum
//   sharded_gradients gradients whose parts go to shards in each micro-batch, a bucket at a time
//   bring_home        brings an op's output to its home and its readers
//
// Each op gets a block as follows. With several micro-batches, ops that have the micro-batch dim
// run once a micro-batch. Ops without that dim run in the prologue if they depend on no op that has
// the dim, else in the update block. With one micro-batch the op's phase decides. If the schedule
// splits the backward pass of a stage, backward ops on which only updates depend are in the weight
// block.
#pragma once

#include <map>
#include <set>

#include "tessera/graph/band.h"
#include "tessera/plan/resolve/path_cache.h"
#include "tessera/program/place_text.h"

namespace tessera {

// An `Analysis` has what is known before the walk: the blocks of ops, the homes of persistent
// tensors, and the splits of ops. An op that no entry of the plan names and that touches a tensor
// at rest is split as that tensor is: update ops as the optimizer state, gradient sums and casts as
// the parameter.
struct Analysis {
  ShapeRule shapes;
  std::vector<std::vector<int64_t>> tensor_shapes;  // as blocks see them
  std::vector<OpPlan> ops;                          // effective splits
  std::vector<BlockRef> blocks;                     // by op; the chunk is its stage's number
  // By op: whether it runs once a step (prologue, update). With one micro-batch all ops do.
  std::vector<bool> once_a_step;
  // By tensor: the place and layout in which persistent tensors and parameter gradients rest; for
  // other tensors the place is invalid.
  std::vector<OfPlace<Layout>> homes;
  std::vector<std::vector<OpId>> consumers;
  // Returns whether the tensor's value is a sum over micro-batches, because each micro-batch makes
  // a term and the tensor lacks the micro-batch dim.
  bool sums_micro_batches(const Graph& graph, TensorId tensor) const;
};
Result<Analysis> analyse(const Graph& graph, const ResolvedPlan& plan);

struct WalkInput {
  std::shared_ptr<const Graph> graph;
  const ResolvedPlan* plan = nullptr;
  std::vector<TensorId> fetch;
  PathCache* paths = nullptr;  // conversion paths shared with other walks; null: not shared
};
// Writes the texts of all places. May change `analysis.ops`: a linear op that works on parts of a
// sum is split as the parts are.
std::vector<PlaceText> write_place_texts(const WalkInput& input, Analysis& analysis);

struct LoopOf {  // the time loop of an op
  // The looped op dim; -1: no loop. If the loop runs over interior and rims (plan/resolve/halos.h), the
  // first of the looped dims.
  int op_dim = -1;
  DimSplit split;
  int64_t steps = 1;
  std::vector<int> rims;  // all looped op dims if the loop is over interior and rims; else empty
  bool exists() const { return op_dim >= 0; }
};
LoopOf loop_of(const OpPlan& plan);
// Returns the op's band if each rank needs only the keys in the band of its own queries. This is so
// if axes cut the queries. Returns nothing if the op has no band, or if the keys are cut too or
// rotate.
std::optional<Band> narrowing_band(const Op& op, const OpPlan& plan);
// `leading_dim` returns the position, in a group of op dims that make one tensor dim, of the op dim
// that is cut when the tensor dim is cut: the first of size > 1. `inner_size` returns the product
// of the sizes of the op dims after it.
int leading_dim(const Annotation& annotation, const DimGroup& group);
int64_t inner_size(const Annotation& annotation, const DimGroup& group);
// `operand_layout` returns the layout of what the op reads or writes of an operand in all steps of
// its time loop together. `made_layout` returns the layout in which an output is made, with its
// partial axes.
Layout operand_layout(const Op& op, const OpPlan& plan, const OperandDims& operand,
                      const Mesh& mesh, const std::vector<int64_t>& shape);
Layout made_layout(const Op& op, const OpPlan& plan, size_t output, const Mesh& mesh,
                   const std::vector<int64_t>& shape);
// Returns the piece of the operand that a step of the op's time loop touches; nothing if the op has
// no loop or the loop does not cut the operand.
std::optional<StepPiece> step_piece(const Op& op, const OpPlan& plan, const OperandDims& operand,
                                    const Mesh& mesh, const Graph& graph, int64_t step);
// Returns the layout with the axes of another mesh, matched by name; nullopt if an axis of the
// layout is missing there or has another size.
std::optional<Layout> translate(const Layout& layout, const Mesh& from, const Mesh& to);
std::optional<Layout> translate(const OfPlace<Layout>& layout, const ResolvedPlan& plan,
                                PlaceId to);
// Checks that a layout has as many dims as the tensor, and that all axes of the layout are axes of
// the mesh and occur only once.
void check_axes(const Layout& layout, const Mesh& mesh, const Tensor& tensor);

}  // namespace tessera
