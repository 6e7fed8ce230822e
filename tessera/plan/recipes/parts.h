// Parts that several recipes share; each adds entries to a plan text. A part over an axis that the
// text's mesh lacks adds nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// Splits the batch of every op over these axes.
Status data_parallel(PlanText& text, const Graph& graph, const std::string& over = "dp");

// Cuts tensors at rest over these axes: optimizer state (stage 1), gradients too (2), parameters
// too (3).
void zero(PlanText& text, int64_t stage, const std::string& over = "dp");
// Returns the axes {groups, dp} of dp ranks in groups of the argument reshard_after_forward; dp has
// the ranks of a group; 0: one group of all. Errors: the groups do not divide the ranks; `sharded`
// is false, so that parameters do not rest in shards.
Result<Axes> dp_groups(const RecipeArguments& arguments, bool sharded, std::string_view needed);
// Keeps parameters (and their narrow copies) cut over dp from the forward to the backward pass.
void keep_in_groups(PlanText& text);
RecipeArgument groups_argument();
Status check_zero(const RecipeArguments& arguments);  // checks that the argument zero is 0..3

// Returns the dim of attention that n ranks cut: `heads` (key heads), or `group` (the query heads
// of a key head) if there are fewer key heads than ranks. `argument`: the name of n in the error
// about too few heads.
Result<std::string> heads_dim(const Graph& graph, std::string_view argument, int64_t n);

// Adds Megatron 1-D over tp: heads, ffn, vocab. With `sequence_shard` the ops between these (norms,
// residual sums, dropout, the embedding's output) are cut by seq over tp
// (docs/strategies/tensor-parallel.md section 2).
Status tensor_parallel(PlanText& text, const Graph& graph, bool sequence_shard = false);

// Returns the ops of blocks that compare queries with keys: "blocks.*.attn.core"; "" if there are
// none.
std::string attention_cores(const Graph& graph, const std::string& layers = "*");

// Checks that `seq` can be cut into slices that follow one another: a slice may read only the keys
// of slices before it. Errors: attention that is not causal, by its op.
Status check_causal(const Graph& graph);

// `tokens` splits `seq` of every op over these axes. `balance` orders the tokens ("zigzag",
// "striped", "none") so that each of `ranks` pieces has the same work under a causal mask. If the
// model has ops that depend on the position of a token, the order stays as it is, and a note says
// why.
Status tokens(PlanText& text, const Graph& graph, const std::string& axes);
void balance(PlanText& text, const Graph& graph, const std::string& order, int64_t ranks);
// Adds tokens and balance, and moves keys and values around rings of these axes.
Status ring_attention(PlanText& text, const Graph& graph, const std::string& rings,
                      const std::string& order);
RecipeArgument order_argument();

// Adds stages over the axis pp, with the schedule's name and places. The blocks make as many runs
// as there are stages, the first runs longer by one if they do not divide; ops before the blocks
// are in stage 0, ops after them in the last stage. Stages: pp; chunks * pp for "interleaved"; 2 pp
// for "zb_v" and "chimera"; for "nf1b" pp of each pass; for "interlaced" pp, and two on all ranks,
// cut by vocab over an axis `all`, for embedding and head.
Status pipeline(PlanText& text, const Graph& graph, int64_t pp, const std::string& schedule,
                int64_t chunks = 1);
// Adds the pipeline that the arguments pp, schedule and chunks ask for. Errors: an unknown name; a
// schedule of slices, which has a recipe of its own.
Status named_pipeline(PlanText& text, const Graph& graph, const RecipeArguments& arguments);
RecipeArgument schedule_argument();
RecipeArgument chunks_argument();

// Says which ops of the blocks are computed again in the backward pass; a result that another block
// reads is kept all the same. `what` is "none"; "selective": cheap ops and attention's core, which
// is all but products with weights and residual sums; "full": all. Or it names modules, several
// joined by '+': "norm", "act" (the ops between the products of an MLP or of experts), "core"
// (attention), "mla_up" (latent attention, from its narrow dim up to the core), "mlp", "moe" (all
// of it), "scan" (what a fused kernel of state space blocks makes again: all but products, their
// inputs and the scan). `layers`: a pattern of block numbers. Errors: a module of which the graph
// has no ops.
Status recompute(PlanText& text, const Graph& graph, const std::string& what,
                 const std::string& layers = "*");
// Works as recompute does, but only for the ops that are marked in `among` (by op of the graph).
Status recompute_among(PlanText& text, const Graph& graph, const std::string& what,
                       const std::vector<bool>& among);
RecipeArgument recompute_argument();

// Returns a recipe's own arguments, followed by those that decide what is done around the ranks
// that share a layer: pp, dp, zero, micro_batches, schedule, chunks, recompute.
std::vector<RecipeArgument> with_outer(std::vector<RecipeArgument> own);

// Returns a text with the mesh {pp, dp, inner...}, its stages and recomputation, from those
// arguments.
Result<PlanText> outer(const RecipeArguments& arguments, const Graph& graph, Axes inner);

}  // namespace tessera::recipes
