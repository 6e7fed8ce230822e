// Functions from graph to graph that keep the results, up to rounding: they make room for a plan's
// choices (precision, splits of frozen dims, recomputation) before lowering. Each returns a new,
// verified graph; ids are numbered anew, and what remains keeps its names and paths.
//
//   forward graph -> expand_ops, reorder_dim, apply_precision, unroll -> differentiate ->
//   expand_ops -> recompute_ops -> lowering
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera {

// Sets mixed precision in a forward graph (before differentiate). Parameters, buffers and inputs
// keep their dtype; each floating one that an op reads is cast once to `compute`, by an op
// "<name>.cast" before its first reader, and the activations become `compute`. Outputs that an op
// makes in another floating dtype stay so, and so do all tensors made from them: the cross entropy
// gives float32 for narrow logits, hence the loss is float32. Where `compute` meets such an
// activation in one op, the rest is cast to it ("<name>.cast.float32"). If all is `compute`
// already, nothing changes.
//
// The gradients of the parameters have the parameters' dtype, by the derivative of the cast, unless
// differentiate() is given another dtype.
//
// With `parameter`, parameters have that dtype at rest; untrained parameters have `compute`.
Result<Graph> apply_precision(const Graph& forward, DType compute,
                              std::optional<DType> parameter = {});

// Returns the graph with every floating tensor, and every op that names a floating dtype, in
// `dtype`. In a graph that had several dtypes, casts then change nothing: its results in float64
// are exact.
Graph in_one_dtype(Graph graph, DType dtype);

// A time loop over ops, written out by unroll.
struct Unrolling {
  std::string dim;  // an op dim
  // The sizes of the steps' pieces, in order; the size of the dim is their sum or a multiple of it.
  // If empty, there are `steps` even pieces, the first ones larger.
  std::vector<int64_t> sizes = {};
  // > 1: the dim is cut in that many blocks, as even as possible, and each step takes a part of
  // each block (so that a tensor sharded in as many pieces stays where it is); divides every size
  // except the last.
  int64_t blocks = 1;
  std::string even_blocks = {};  // why the blocks must have one size; empty: they need not
  int64_t steps = 0;
  bool recompute = false;  // tensors made in the steps are not kept for the backward pass
  bool stages = false;     // the steps are stages of their own: sets Op::step
};

// Writes out a time loop over more than one op, in a forward graph (before differentiate). Each op
// of `ops` (by OpId) that has the dim is cloned for every step, as "<path>#<step>" with outputs
// "<name>#<step>", on its piece of the dim. Ops that follow one another in the loop run step by
// step. A tensor that enters the loop whole is cut ("slice", "<path of the first
// reader>@part<i>#<step>"); a tensor that leaves it is joined under its own name: by "concat", or,
// if the dim was summed over, by "add_n". Keys of a causal pair are the keys of the steps so far,
// joined anew for the backward pass. Cut parameters, buffers and inputs are not kept either. A bias
// of a summed einsum is added by step 0; dropout drops the elements that it would drop without the
// loop. A table whose rows are cut and are looked up by ops of the loop alone rests in pieces:
// parameters "<name>#<step>" (pieces.h).
//
// Ops may have the dim in several sizes. Ops that read or write pieces of the same tensors are cut
// in proportion: the steps cut the greatest common divisor of their sizes, and an op whose dim is n
// times as large (windows of heads) takes n times as much. Other ops are cut each on their own.
//
// Errors: a frozen or window dim, sizes that do not add up, more steps than elements, an output
// merged otherwise than by a sum, ids of a cut table; with `stages`, an op that reads tensors of
// later steps; uneven blocks of a bracket.
Result<Graph> unroll(const Graph& forward, const std::vector<bool>& ops, const Unrolling& how);

// Permutes a dim of a forward graph (order.h): every input, parameter and buffer that has the dim
// passes an op "<name>.reorder", and ops whose result depends on positions (attention, causal_mask)
// take the order as an attribute; other ops do not change. The graph's tensors keep their names;
// values with the dim are permuted, the loss and the gradients are not. Errors: no tensor has the
// dim; an op depends on positions otherwise (dropout, a window, ...).
Result<Graph> reorder_dim(const Graph& forward, const std::string& dim, const std::string& order);
// Checks whether reorder_dim would succeed on the graph's forward ops. The error says why not.
Status check_reorder(const Graph& graph, const std::string& dim, const std::string& order);

// Replaces each of the ops by its KindInfo::expand, in place: ops "<path>.<suffix>" of the same
// phase, the last of which make the replaced outputs under their names. Loss, `of` and `update_of`
// links follow. An output that no op reads need not be made.
//
// Mirrors: the ops of an expanded backward op have that op's mirror. If a mirror itself was
// expanded, an op of its expansion takes its place: the op that shares the most dim names with the
// backward op, and the first among equals.
Result<Graph> expand_ops(const Graph& graph, const std::vector<OpId>& ops);

// Makes the forward activations of `not_kept` anew in the backward pass instead of storing them:
// each one that a backward op reads is made by a clone of its op, and so are, transitively, the
// tensors of `not_kept` that the clone reads; other tensors are read as they were stored. Clones
// have phase backward, path "<path>@recompute", outputs "<name>@recompute" and the original as
// mirror; an op is cloned once, right before the first backward op that needs it. Attributes stay:
// a dropout keeps its key, hence its mask. Tensors that no op of the forward pass makes
// (parameters, gradients) are passed over.
Result<Graph> recompute_ops(const Graph& graph, const std::vector<TensorId>& not_kept);

}  // namespace tessera
