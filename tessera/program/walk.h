// The walk: lowering's pass over the graph, in graph order. It turns what a rank holds into what an
// op needs, brings what an op makes to its home (docs/theory/lowering.md sections 2 to 4), and
// writes the place texts without waits (waits.cc adds those). Private to tessera/program.
//
//   for each op, at its stage's place, in its stage's block (walk.cc):
//     need of each operand = projection of the op's piece
//       -> materialise: nothing, slice, collectives, crossing; of a time loop, step by step
//     made view of each output
//       -> its home: completed for its first reader, reduced to the holder of each step,
//          accumulated, or put back into what it updates
//
// The files of the folder walk/; each builds only on those before it:
//   facts             where and when ops run, shapes, readers: what nothing changes
//   text_writer       the texts as they are written: buffers, handles, order
//   conversion_paths  the cheapest way from one layout to another, found once
//   holds             what each place holds: homes and copies
//   convert           writes a conversion's collectives
//   loads             inputs of the step, each layout once
//   named_rows        conversions that move the rows alone that ids name
//   needs             the layout in which an op wants an operand, or a reader what is made for it
//   complete          when and how parts become complete
//   between_places    what crosses to another place
//   materialise       makes a tensor available as an op needs it
//   loop_pieces, step_operands, step_outputs   time loops
//   sums_in_place     sums that their terms write
//   linear_parts      linear ops on parts
//   sharded_gradients gradients that go to their shards each micro-batch, a bucket at a time
//   bring_home        what becomes of an op's output
//
// The block of an op: with several micro-batches, ops that have the micro-batch dim run once a
// micro-batch. Ops without that dim run before (prologue) if they depend on no op that has it, else
// after (update block). With one micro-batch the phase decides. Where the schedule runs the weight
// part of a stage's backward pass apart, backward ops on which only updates depend are in the
// weight block.
#pragma once

#include <map>
#include <set>

#include "tessera/graph/band.h"
#include "tessera/plan/path_cache.h"
#include "tessera/program/place_text.h"

namespace tessera {

// An `Analysis` is known before the walk: blocks, homes of persistent tensors, and the splits of
// ops that no entry of the plan names but that follow a tensor at rest (update ops follow the
// optimizer state, gradient sums and casts the parameter).
struct Analysis {
  ShapeRule shapes;
  std::vector<std::vector<int64_t>> tensor_shapes;  // as blocks see them
  std::vector<OpPlan> ops;                          // effective splits
  std::vector<BlockRef> blocks;                     // by op; the chunk is its stage's number
  std::vector<bool>
      once_a_step;  // by op: runs once a step (prologue, update); with one micro-batch, all
  // By tensor: the place and layout in which persistent tensors and parameter gradients rest; for
  // other tensors the place is invalid.
  std::vector<OfPlace<Layout>> homes;
  std::vector<std::vector<OpId>> consumers;
  // Returns whether the tensor is made once a micro-batch but lacks the micro-batch dim, so that
  // its sum over micro-batches is its value.
  bool sums_micro_batches(const Graph& graph, TensorId tensor) const;
};
Result<Analysis> analyse(const Graph& graph, const ResolvedPlan& plan);

struct WalkInput {
  std::shared_ptr<const Graph> graph;
  const ResolvedPlan* plan = nullptr;
  std::vector<TensorId> fetch;
  PathCache* paths = nullptr;  // paths found by other walks; null: none
};
// Writes every place's text. May change `analysis.ops`: a linear op that works on parts takes over
// their layout.
std::vector<PlaceText> write_place_texts(const WalkInput& input, Analysis& analysis);

struct LoopOf {     // the time loop of an op
  int op_dim = -1;  // the looped op dim; the first of them if the loop runs over interior and rims
  DimSplit split;
  int64_t steps = 1;
  std::vector<int> rims;  // op dims of a loop over interior and rims; empty: another loop
  bool exists() const { return op_dim >= 0; }
};
LoopOf loop_of(const OpPlan& plan);
// Returns the op's band, if the axes that cut the queries narrow the keys: a rank then reads and
// makes only what lies in the band of its queries. Returns nothing where keys are cut themselves,
// or rotate.
std::optional<Band> narrowing_band(const Op& op, const OpPlan& plan);
// `leading_dim` returns the position in a group of the op dim that is cut when the tensor dim is
// cut: the first of size > 1. `inner_size` returns the product of the sizes behind it.
int leading_dim(const Annotation& annotation, const DimGroup& group);
int64_t inner_size(const Annotation& annotation, const DimGroup& group);
// `operand_layout` returns the layout of an operand's piece without the loop. `made_layout` returns
// the layout in which an output is made, with its partial axes.
Layout operand_layout(const Op& op, const OpPlan& plan, const OperandDims& operand,
                      const Mesh& mesh, const std::vector<int64_t>& shape);
Layout made_layout(const Op& op, const OpPlan& plan, size_t output, const Mesh& mesh,
                   const std::vector<int64_t>& shape);
std::optional<StepPiece> step_piece(const Op& op, const OpPlan& plan, const OperandDims& operand,
                                    const Mesh& mesh, const Graph& graph, int64_t step);
// Returns the same layout on another mesh, with axes matched by name; nullopt if an axis is missing
// there or has another size.
std::optional<Layout> translate(const Layout& layout, const Mesh& from, const Mesh& to);
std::optional<Layout> translate(const OfPlace<Layout>& layout, const ResolvedPlan& plan,
                                PlaceId to);
// Checks that a layout has the rank of the tensor, and its axes, each once, are those of the mesh.
void check_axes(const Layout& layout, const Mesh& mesh, const Tensor& tensor);

}  // namespace tessera
