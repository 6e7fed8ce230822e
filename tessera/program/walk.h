// The walk: lowering's pass over the graph, in graph order, that turns hold into need and make into
// home (docs/theory/lowering.md sections 2 to 4) and writes the place texts, without
// waits (waits.cc). Private to tessera/program.
//
//   for each op, at its stage's place, in its stage's block (walk.cc):
//     need of each operand = projection of the op's piece
//       -> materialise: nothing, slice, collectives, crossing; of a time loop, step by step
//     made view of each output
//       -> its home: completed for its first reader, reduced to the holder of each step,
//          accumulated, or put back into what it updates
//
// Of the folder walk/, in the order in which one builds on those before:
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
// Which block an op is in: with several micro-batches, ops that have the micro-batch dim run once a
// micro-batch; ops without it run before (prologue) if they depend on no such op, else after
// (update block). With one micro-batch the phase decides. Where the schedule runs the weight part
// of a stage's backward pass apart, backward ops on which only updates depend are in that block.
#pragma once

#include <map>
#include <set>

#include "tessera/graph/band.h"
#include "tessera/plan/path_cache.h"
#include "tessera/program/place_text.h"

namespace tessera {

// What analysis knows before the walk: blocks, homes of persistent tensors, and the splits of ops
// that no entry of the plan names but that follow a tensor at rest (update ops follow the optimizer
// state, gradient sums and casts the parameter).
struct Analysis {
  ShapeRule shapes;
  std::vector<std::vector<int64_t>> tensor_shapes;  // as blocks see them
  std::vector<OpPlan> ops;                          // effective
  std::vector<BlockRef> blocks;                     // by op; the chunk is its stage's number
  std::vector<bool>
      once_a_step;  // op runs once a step (prologue, update) or, with one micro-batch, any
  // By tensor: where persistent ones and parameter gradients rest, and how; of others the place is
  // invalid.
  std::vector<OfPlace<Layout>> homes;
  std::vector<std::vector<OpId>> consumers;
  // Made once a micro-batch, but without the micro-batch dim: the sum over micro-batches is what
  // counts.
  bool sums_micro_batches(const Graph& graph, TensorId tensor) const;
};
Result<Analysis> analyse(const Graph& graph, const ResolvedPlan& plan);

struct WalkInput {
  std::shared_ptr<const Graph> graph;
  const ResolvedPlan* plan = nullptr;
  std::vector<TensorId> fetch;
  PathCache* paths = nullptr;  // of other walks; null: there are none
};
// Writes every place's text. `analysis.ops` may change: a linear op that works on parts takes over
// their layout.
std::vector<PlaceText> write_place_texts(const WalkInput& input, Analysis& analysis);

struct LoopOf {     // an op's time loop
  int op_dim = -1;  // the first one, of a loop over interior and rims
  DimSplit split;
  int64_t steps = 1;
  std::vector<int> rims;  // op dims of a loop over interior and rims; empty: it is none
  bool exists() const { return op_dim >= 0; }
};
LoopOf loop_of(const OpPlan& plan);
// The op's band, if the axes that cut the queries narrow the keys: a rank reads and makes what lies
// in the band of its queries alone. Not where keys are cut themselves, or rotate.
std::optional<Band> narrowing_band(const Op& op, const OpPlan& plan);
// Position in a group of the op dim that moves when the tensor dim is cut: the first of size > 1.
// And the size behind it.
int leading_dim(const Annotation& annotation, const DimGroup& group);
int64_t inner_size(const Annotation& annotation, const DimGroup& group);
// What an operand's piece is, loop left out; and the made layout of an output, with its partial
// axes.
Layout operand_layout(const Op& op, const OpPlan& plan, const OperandDims& operand,
                      const Mesh& mesh, const std::vector<int64_t>& shape);
Layout made_layout(const Op& op, const OpPlan& plan, size_t output, const Mesh& mesh,
                   const std::vector<int64_t>& shape);
std::optional<StepPiece> step_piece(const Op& op, const OpPlan& plan, const OperandDims& operand,
                                    const Mesh& mesh, const Graph& graph, int64_t step);
// The same layout on another mesh, axis by name; nullopt if an axis is missing there or has another
// size.
std::optional<Layout> translate(const Layout& layout, const Mesh& from, const Mesh& to);
std::optional<Layout> translate(const OfPlace<Layout>& layout, const ResolvedPlan& plan,
                                PlaceId to);
// Checks that a layout has the rank of the tensor, and its axes, each once, are those of the mesh.
void check_axes(const Layout& layout, const Mesh& mesh, const Tensor& tensor);

}  // namespace tessera
