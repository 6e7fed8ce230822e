// Functions from graph to graph that keep what is computed, up to rounding: they make room for a
// plan's choices (precision, splits of frozen dims, recomputation) before lowering. Each returns a
// new, verified graph; ids are numbered anew, names and paths of what stays are kept.
//
//   forward graph -> expand_ops, reorder_dim, apply_precision, unroll -> differentiate ->
//   expand_ops -> recompute_ops -> lowering
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// Mixed precision, on a forward graph (before differentiate). Parameters, buffers and inputs keep
// their dtype; each floating one that an op reads is cast once to `compute`, by an op "<name>.cast"
// before its first reader, and the activations become `compute`. What an op makes in another
// floating dtype stays so, and so does all that is made of it: the cross entropy gives float32 for
// narrow logits, hence the loss is float32. Where `compute` meets such an activation in one op, the
// rest is cast to it ("<name>.cast.float32"). If all is `compute` already, nothing changes.
//
// The gradients of the parameters come out in the parameters' dtype, by the derivative of the cast,
// unless differentiate() is told another.
//
// With `parameter`, parameters have that dtype at rest; those that are not trained have `compute`.
Result<Graph> apply_precision(const Graph& forward, DType compute,
                              std::optional<DType> parameter = {});

// The same graph with every floating tensor, and every op that names a floating dtype, in `dtype`.
// A graph of several dtypes becomes one in which casts change nothing: what is left of it in
// float64 is exact.
Graph in_one_dtype(Graph graph, DType dtype);

// A time loop over ops, written out.
struct Unrolling {
  std::string dim;  // an op dim
  // The sizes of the steps' pieces, in order; the dim has their sum or a multiple of it. If it is
  // empty, there are `steps` even pieces, the first ones larger.
  std::vector<int64_t> sizes = {};
  // > 1: the dim is cut in that many blocks, as even as they can be, and each step takes a part of
  // each (so that what is sharded in as many pieces stays where it is); divides every size but the
  // last one.
  int64_t blocks = 1;
  std::string even_blocks = {};  // why the blocks must be of one size; empty: they need not
  int64_t steps = 0;
  bool recompute = false;  // what the steps make inside is not kept for the backward pass
  bool stages = false;     // the steps are stages of their own: sets Op::step
};

// Time loops whose scope is wider than one op, on a forward graph (before differentiate): each op
// of `ops` (by OpId) that has the dim is cloned for every step, as "<path>#<step>" with outputs
// "<name>#<step>", on its piece of the dim. Ops that follow one another in the loop run step by
// step. What enters the loop whole is cut ("slice", "<path of the first reader>@part<i>#<step>");
// what leaves it is joined under its own name: by "concat", or, where the dim was summed over, by
// "add_n". Keys of a causal pair: those of the steps so far, joined anew for the backward pass.
// Cut parameters, buffers and inputs are not kept either. A bias of a summed einsum is added by
// step 0; dropout drops what it would drop unlooped. A table whose rows are cut, and of which ops of
// the loop alone look up rows, rests in pieces: parameters "<name>#<step>" (pieces.h).
// Ops may have the dim in several sizes. Those that read or write pieces of the same tensors are
// cut in proportion: the steps cut the greatest common divisor of their sizes, and an op whose dim
// is n times as large (windows of heads) takes n times as much. Others are cut each on their own.
//
// Errors: a frozen or window dim, sizes that do not add up, more steps than elements, an output
// merged by other than a sum, ids of a cut table; with `stages`, an op that reads what later steps
// make; uneven blocks of a bracket.
Result<Graph> unroll(const Graph& forward, const std::vector<bool>& ops, const Unrolling& how);

// Permutes a dim of a forward graph (order.h): every input, parameter and buffer that has it passes
// an op "<name>.reorder", and ops whose result depends on positions (attention, causal_mask) take
// the order as an attribute; all others do not notice. What the graph makes keeps its names; values
// with the dim are permuted, the loss and the gradients are not.
// Errors: no tensor has the dim; an op that depends on positions otherwise (dropout, a window,
// ...).
Result<Graph> reorder_dim(const Graph& forward, const std::string& dim, const std::string& order);
// Would it succeed on the graph's forward ops? The error says why not.
Status check_reorder(const Graph& graph, const std::string& dim, const std::string& order);

// Replaces each of the ops by its KindInfo::expand, in place: ops "<path>.<suffix>" of the same
// phase, the last of which make the replaced outputs under their names. Loss, `of` and `update_of`
// links follow. An output that no op reads need not be made.
//
// Mirrors: the ops of an expanded backward op have that op's mirror. If a mirror itself was
// expanded, an op of its expansion takes its place: the one that shares the most dim names with the
// backward op, the first of equals.
Result<Graph> expand_ops(const Graph& graph, const std::vector<OpId>& ops);

// Forward activations of `not_kept` are not stored for the backward pass: each one that a backward
// op reads is made again by a clone of its op, and so are, transitively, the tensors of `not_kept`
// that the clone reads; what is not in `not_kept` is read as it was stored. Clones have phase
// backward, path "<path>@recompute", outputs
// "<name>@recompute" and the original as mirror; an op is cloned once, right before the first
// backward op that needs it. Attributes stay: a dropout keeps its key, hence its mask. Tensors that
// no op of the forward pass makes (parameters, gradients) are passed over.
Result<Graph> recompute_ops(const Graph& graph, const std::vector<TensorId>& not_kept);

}  // namespace tessera
