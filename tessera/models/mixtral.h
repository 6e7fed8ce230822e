// Mixtral and Switch: a Llama whose blocks have a mixture of experts in place of the MLP. Ops of a
// block: ln_1, attn.*, ln_2, moe.{router,probabilities,route,dispatch,gate,act,up,mul,down,combine,
// balance,aux,loss_before,losses,residual}; with a shared MLP also
// moe.shared.{gate,act,up,mul,down}, moe.sum; if tokens have another width at the experts
// moe.{narrow,widen}; if experts weigh moe.{slot_weight,arrive_weight,weigh}; dense blocks have the
// ops of a Llama. The loss is `loss.total` = loss.mean + the auxiliary losses, which are added up
// from block to block, beginning with the zero embed.no_loss (of embed.zeros).
//
// Each expert has capacity = ceil(capacity_factor * top_k * seq / experts) slots for each sequence
// (at most seq: a sequence cannot send it more). A token that finds no slot is dropped: it passes
// the expert by on the residual. Routing, capacity and the auxiliary loss are per sequence
// (GShard's groups are sequences), so no plan changes the result.
#pragma once

#include <optional>
#include <vector>

#include "tessera/models/llama.h"

namespace tessera {

struct MixtralConfig : LlamaConfig {
  int64_t experts = 8, top_k = 2;
  // Whether the weights of a token's experts are divided by their sum, as in Mixtral. A single
  // expert then has weight 1. -1: only if there are several experts; a single expert keeps its
  // probability (Switch), through which the router learns.
  int64_t normalize = -1;
  double capacity_factor = 1.25;
  int64_t shared_ffn = 0;  // width of an MLP beside the experts that every token passes; 0: none
  int64_t latent = 0;  // width of tokens at the experts, by products before and behind; 0: hidden
  int64_t dense_layers = 0;  // the first blocks have an MLP of width dense_ffn in place of experts
  int64_t dense_ffn = 0;     // 0: ffn * top_k
  // The coefficient of each layer's load balance (Switch Transformer, eq. 4), 0: none. With f_e the
  // share of a sequence's choices that fall on expert e and P_e the mean probability of e over the
  // sequence: balance * experts * sum_e f_e P_e, averaged over sequences. f has no derivative.
  double balance = 0.01;
  double z_loss = 0;  // coefficient of the mean squared log-sum-exp of the router's logits (ST-MoE)
  // Whether experts weigh their results, instead of `combine` weighing the returned ones. The sum
  // is equal; the returned results need not be kept then, but the weights travel with the tokens.
  bool weigh_inside = false;
};

std::vector<ModelKey> model_keys(MixtralConfig& config);
Status complete(MixtralConfig& config);
int64_t expert_capacity(const MixtralConfig& config);  // slots of an expert for a sequence
Result<Graph> build_mixtral(const MixtralConfig& config, int64_t batch);

// ---- a mixture of experts as part of a block
int64_t expert_capacity(double factor, int64_t top_k, int64_t experts, int64_t seq);

struct MixtureOptions {
  int64_t experts = 8, top_k = 2, capacity = 1;
  int64_t ffn = 1;                     // width of each expert
  int64_t shared_ffn = 0, latent = 0;  // as in MixtralConfig
  double balance = 0, z_loss = 0;
  bool normalize = true;      // divide a token's weights by their sum
  bool weigh_inside = false;  // as in MixtralConfig
  bool gated = true;          // silu(gate) * up; false: squared ReLU of up, without gate and mul
};
// Adds up the auxiliary losses of a model, from the first mixture to the last. Each mixture hands
// its sum to the next mixture, and receives the gradient of the sum from it, so that the stages of
// a pipeline pass one number to a neighbour instead of many to the last stage
// (docs/adr/0084-sums-over-the-model-run-from-block-to-block.md). Call `start` before the first
// block, `add` in each mixture and `finish` after the model's own loss.
class RunningLoss {
 public:
  // Adds embed.no_loss, the zero that the first mixture adds to, so that all mixtures have equal
  // ops. The zero is a sum over the batch, as the losses are: ranks that have parts of the losses
  // have parts of the zero, and nothing is summed between ranks before the end. Adds nothing if
  // `config` has no such losses. `dtype` is the model's.
  void start(GraphBuilder& g, const MixtureOptions& config, const Dim& batch, DType dtype);
  // Adds scalars in the block that is being built: the ops loss_before, a copy of the sum so far,
  // and losses, the new sum.
  void add(GraphBuilder& g, std::vector<TensorId> terms);
  // Makes `loss.total`, the graph's loss plus `others` and this sum, the graph's loss. The loss
  // stays as it is if there is nothing to add.
  void finish(GraphBuilder& g, std::vector<TensorId> others = {}) const;

 private:
  std::optional<TensorId> sum_;
};

// Adds ops moe.* and moe.residual: from the residual stream x and its norm h, both [batch, seq,
// hidden], makes the next x. Adds the auxiliary losses to `losses`.
TensorId mixture_of_experts(GraphBuilder& g, TensorId x, TensorId h,
                            const FeedForwardOptions& options, const MixtureOptions& config,
                            RunningLoss& losses);
// Checks that the element counts of the largest tensors fit in 64 bits.
Status check_expert_sizes(const MixtureOptions& config, int64_t hidden, int64_t batch,
                          std::string_view family);

}  // namespace tessera
