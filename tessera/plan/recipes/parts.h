// Functions that several recipes share. Each adds the entries of one technique to a plan text. If
// the mesh of the text lacks the axis, the function adds nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

// Splits the batch of every op over these axes.
Status data_parallel(PlanText& text, const Graph& graph, const std::string& over = "dp");

// Cuts tensors at rest over these axes, as ZeRO does: in stage 1 the optimizer state, in stage 2
// also gradients, in stage 3 also parameters.
void zero(PlanText& text, int64_t stage, const std::string& over = "dp");
// Returns the axes for the argument dp. If the argument reshard_after_forward is 0, this is one
// axis dp. Else its value is the number of ranks in a group, and the axes are {groups, dp}, where
// dp has the ranks of one group. Errors: the size of a group does not divide the number of ranks;
// `sharded` is false, which means that parameters do not rest in shards. `needed` is what the error
// then asks for.
Result<Axes> dp_groups(const RecipeArguments& arguments, bool sharded, std::string_view needed);
// Keeps the gathered copies of parameters cut over dp from the forward to the backward pass, if the
// mesh has an axis groups. PlanText::compute_in does the same for narrow copies.
void keep_in_groups(PlanText& text);
RecipeArgument groups_argument();
Status check_zero(const RecipeArguments& arguments);  // checks that the argument zero is 0..3

// Returns the dim of attention that n ranks cut. This is "heads" (key heads), or "group" (the query
// heads of a key head) if there are fewer key heads than ranks but enough query heads in a group.
// `argument`: the name of n in the error about too few heads.
Result<std::string> heads_dim(const Graph& graph, std::string_view argument, int64_t n);

// Adds Megatron's 1-D tensor parallelism: heads, ffn and vocab are cut over tp. If
// `sequence_shard`, the other ops (norms, residual sums, dropout, the embedding's output) are cut
// by seq over tp (docs/strategies/tensor-parallel.md section 2).
Status tensor_parallel(PlanText& text, const Graph& graph, bool sequence_shard = false);

// Returns a pattern of the ops of blocks that compare queries with keys, such as
// "blocks.*.attn.core"; "" if there are none.
std::string attention_cores(const Graph& graph, const std::string& layers = "*");

// Checks that `seq` can be cut into slices that are computed one after the other. A slice may
// then read only its own keys and those of earlier slices. The error names an op whose attention
// is not causal.
Status check_causal(const Graph& graph);

// `tokens` splits `seq` of every op over these axes. `balance` puts the tokens in another order
// ("zigzag" or "striped"; "none" changes nothing), so that each of `ranks` pieces has equal work
// under a causal mask. If an op of the model does not allow another order, the order stays as it
// is, and a note in the text says why.
Status tokens(PlanText& text, const Graph& graph, const std::string& axes);
void balance(PlanText& text, const Graph& graph, const std::string& order, int64_t ranks);
// Adds the entries of tokens and balance, and a loop in which keys and values move around rings of
// these axes.
Status ring_attention(PlanText& text, const Graph& graph, const std::string& rings,
                      const std::string& order);
RecipeArgument order_argument();

// Adds the stages of a pipeline over the axis pp, with the name and the places of the schedule.
// Each stage gets a run of consecutive blocks. If the number of stages does not divide the number
// of blocks, the first runs are longer by one. Ops before the blocks are in stage 0, ops after
// them in the last stage. There are pp stages; for "interleaved" chunks * pp; for "zb_v" 2 pp;
// for "nf1b" pp for each pass. "chimera" has pp stages for each half of the batch. "interlaced"
// has pp stages, and two more on all ranks for embedding and head, which are cut by vocab over an
// axis `all`.
Status pipeline(PlanText& text, const Graph& graph, int64_t pp, const std::string& schedule,
                int64_t chunks = 1);
// Adds the pipeline that the arguments pp, schedule and chunks ask for. Error: a schedule for
// slices of tokens, because it has a recipe of its own (token_pipeline).
Status named_pipeline(PlanText& text, const Graph& graph, const RecipeArguments& arguments);
RecipeArgument schedule_argument();
RecipeArgument chunks_argument();

// Adds entries that say which ops of the blocks are computed again in the backward pass. A result
// that is read outside its block is always kept. `what` is "none"; or "full", which is all ops; or
// "selective", which is all ops but products with weights and residual sums, so that cheap ops and
// the core of attention are computed again. Or it names modules, several joined by '+': "norm",
// "act" (the ops between the products of an MLP or of experts), "core" (attention), "mla_up" (the
// ops of latent attention between its narrow dim and the core), "mlp", "moe", or "scan" (what a
// fused kernel of state space blocks makes again: all ops but products, their inputs and the scan).
// `layers`: a pattern of block numbers. Error: a module of which the graph has no ops.
Status recompute(PlanText& text, const Graph& graph, const std::string& what,
                 const std::string& layers = "*");
// Adds the entries of recompute, but only for the ops that are true in `among`, which is indexed by
// op of the graph.
Status recompute_among(PlanText& text, const Graph& graph, const std::string& what,
                       const std::vector<bool>& among);
RecipeArgument recompute_argument();

// Returns a recipe's own arguments, followed by those that most recipes have in addition: pp, dp,
// zero, micro_batches, schedule, chunks and recompute.
std::vector<RecipeArgument> with_outer(std::vector<RecipeArgument> own);

// Returns a plan text with the mesh {pp, dp, inner...} and with the stages and the recomputation
// that the arguments of with_outer ask for.
Result<PlanText> outer(const RecipeArguments& arguments, const Graph& graph, Axes inner);

}  // namespace tessera::recipes
