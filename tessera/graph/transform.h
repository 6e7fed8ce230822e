// Functions from graph to graph that keep the results, up to rounding. Before lowering, they give
// the graph the form that a plan's choices need (precision, splits of frozen dims, recomputation).
// Each returns a new, verified graph. Ids are numbered anew; tensors and ops that remain keep their
// names and paths.
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
// keep their dtype. If an op reads a floating tensor of these, the tensor is cast once to
// `compute`, by an op "<name>.cast" before its first reader. The activations become `compute`. If
// an op makes an output in another floating dtype, the output and all tensors made from it keep
// that dtype: the cross entropy gives float32 for narrow logits, hence the loss is float32. If an
// op reads such a wider tensor, its inputs in `compute` are cast to the wider dtype
// ("<name>.cast.float32"). If everything is in `compute` already, nothing changes.
//
// The gradients of the parameters have the parameters' dtype, by the derivative of the cast, unless
// differentiate() is given another dtype.
//
// If `parameter` is given, trained parameters have that dtype at rest. Untrained parameters have
// the dtype `compute`.
Result<Graph> apply_precision(const Graph& forward, DType compute,
                              std::optional<DType> parameter = {});

// Returns the graph with every floating tensor in `dtype`, and with `dtype` in every op that names
// a floating dtype. Casts between several dtypes of the given graph then change nothing, so that
// the results in float64 are exact.
Graph in_one_dtype(Graph graph, DType dtype);

// How unroll writes out a time loop over ops.
struct Unrolling {
  std::string dim;  // an op dim
  // The sizes of the steps' pieces, in order. The size of the dim is their sum or a multiple of the
  // sum. If empty, there are `steps` pieces as equal as possible, the first ones larger by one.
  std::vector<int64_t> sizes = {};
  // If above 1, the dim is cut into that many blocks, as even as possible, and each step takes a
  // part of each block, so that a tensor that is sharded in as many pieces need not move. Every
  // element of `sizes` but the last must be a multiple of `blocks`.
  int64_t blocks = 1;
  // Why all blocks must have one size (for an error); empty: they may differ.
  std::string even_blocks = {};
  int64_t steps = 0;
  // Whether tensors made in the steps are made again in the backward pass instead of kept.
  bool recompute = false;
  bool stages = false;  // whether each step is a stage of its own, so that Op::step is set
};

// Writes out a time loop over more than one op, in a forward graph (before differentiate). Each op
// of `ops` (by OpId) that has the dim is cloned for every step, as "<path>#<step>" with outputs
// "<name>#<step>", and the clone works on the step's piece of the dim. Consecutive ops of the loop
// run step by step.
//   - A tensor from outside the loop is cut by ops "slice" ("<path of the first
//     reader>@part<i>#<step>").
//   - A tensor that ops after the loop read is joined under its own name: by "concat", or by
//     "add_n" if the dim was summed over.
//   - Keys of a causal pair: each step reads the keys of the steps so far, which are joined for it,
//     and joined again for the backward pass. Pieces cut from parameters, buffers and inputs are
//     not kept for the backward pass either.
//   - The bias of a summed einsum is added by step 0. A dropout drops the elements that it would
//     drop without the loop.
//   - A table whose rows are cut, and which only ops of the loop look up, is kept in pieces:
//     parameters "<name>#<step>" (pieces.h).
//
// Ops may have the dim in several sizes. Ops that read or write pieces of the same tensors are cut
// in proportion: the steps cut the greatest common divisor of the sizes, and an op whose dim is n
// times that divisor (windows of heads) takes n times as much in each step. Ops that share no
// tensors are cut independently of each other.
//
// Returns an error for a frozen or window dim, sizes that do not add up, more steps than elements,
// an output merged otherwise than by a sum, ids of a cut table, uneven blocks of a bracket, and,
// with `stages`, an op that reads tensors of later steps.
Result<Graph> unroll(const Graph& forward, const std::vector<bool>& ops, const Unrolling& how);

// Permutes a dim of a forward graph (order.h). Every input, parameter and buffer that has the dim
// is passed through an op "<name>.reorder". Ops whose result depends on positions (attention,
// causal_mask) get the order as an attribute. Other ops do not change. The graph's tensors keep
// their names; the values of tensors with the dim are permuted, but the loss and the gradients of
// inputs, parameters and buffers are not. Returns an error if no tensor has the dim, or if an op
// depends on positions in another way (dropout, a window, ...).
Result<Graph> reorder_dim(const Graph& forward, const std::string& dim, const std::string& order);
// Checks whether reorder_dim would succeed on the graph's forward ops. The error says why not.
Status check_reorder(const Graph& graph, const std::string& dim, const std::string& order);

// Replaces each of the ops, in place, by the ops that its KindInfo::expand adds. These have paths
// "<path>.<suffix>" and the phase of the replaced op. The last of them make the replaced outputs
// under their names. The graph's loss and the links `of` and `update_of` are set to the new
// tensors. An output that no op reads need not be made.
//
// The ops of an expanded backward op have that op's mirror. If a mirror itself was expanded, the
// mirror becomes the op of its expansion that shares the most dim names with the backward op, and
// the first one among equals.
Result<Graph> expand_ops(const Graph& graph, const std::vector<OpId>& ops);

// Makes the forward activations of `not_kept` anew in the backward pass instead of storing them.
// Each of them that a backward op reads is made by a clone of its op. If the clone reads tensors of
// `not_kept`, these are made by clones too, and so on; all other tensors are read as they were
// stored. A clone has the phase backward, the path "<path>@recompute", outputs "<name>@recompute"
// and the original op as mirror. An op is cloned once, right before the first backward op that
// needs the clone. The clone has the attributes of the original: a dropout keeps its key, hence its
// mask. Tensors of `not_kept` that no forward op makes (parameters, gradients) are ignored.
Result<Graph> recompute_ops(const Graph& graph, const std::vector<TensorId>& not_kept);

}  // namespace tessera
