// Mixtral and Switch: a Llama whose blocks have a mixture of experts in place of the MLP. A block
// has the ops ln_1, attn.*, ln_2,
// moe.{router,probabilities,route,dispatch,gate,act,up,mul,down,combine,
// balance,aux,loss_before,losses,residual}. With a shared MLP it also has
// moe.shared.{gate,act,up,mul,down} and moe.sum; if tokens have another width at the experts
// (`latent`) moe.{narrow,widen}; with `weigh_inside` moe.{slot_weight,arrive_weight,weigh}. Dense
// blocks have the ops of a Llama. The loss is `loss.total` = loss.mean + the auxiliary losses. The
// auxiliary losses are added up from block to block, beginning with a zero, embed.no_loss (made
// from embed.zeros).
//
// Each expert has capacity = ceil(capacity_factor * top_k * seq / experts) slots for each sequence
// (at most seq, because a sequence cannot send it more tokens). A token that finds no free slot at
// an expert is dropped there: only its residual passes the expert. Routing, capacity and the
// auxiliary loss are computed for each sequence by itself (GShard's groups are sequences), so no
// plan changes the result.
#pragma once

#include <optional>
#include <vector>

#include "tessera/models/language/llama.h"

namespace tessera {

// How a router chooses, and how experts compute, where that is not as in Mixtral.
struct MixtureForm {
  // The function of a router's logits: "softmax" over the experts, or "sigmoid" of each (DeepSeek-V3).
  std::string scores = "softmax";
  bool router_bias = false;  // whether the router's product has a bias
  // Whether a vector that is not trained, route.bias [experts], is added to the scores by which
  // experts are chosen, but not to the weights (DeepSeek-V3).
  bool choice_bias = false;
  // Only experts of the `top_groups` groups count whose `group_best` best ones have the largest sum
  // (docs/reference/ops.md, moe_route).
  int64_t groups = 1, top_groups = 1, group_best = 1;
  double route_scale = 1;    // factor of the weights
  bool expert_bias = false;  // whether the products of experts have biases
  // The experts of gpt-oss: their gate is at most `gate_limit`, the other product lies between it and
  // its negative (0: no limits), `up_shift` is added to the latter, and the activation of x is
  // activation(gate_alpha x) / gate_alpha.
  double gate_limit = 0, gate_alpha = 1, up_shift = 0;
  // Whether the weights multiply the tokens that are sent, not what comes back (Llama 4).
  bool weigh_before = false;
  // Whether what the shared MLP gives is multiplied by the sigmoid of a product of the token with one
  // vector (Qwen 3 Next). Ops shared_gate, shared_gate_act, shared_gate_mul.
  bool shared_gate = false;
};

struct MixtralConfig : LlamaConfig {
  int64_t experts = 8, top_k = 2;
  // 1: the weights of a token's experts are divided by their sum, as in Mixtral. A single expert
  // then has weight 1. 0: the weights are not divided. -1: they are divided if there are several
  // experts. A single expert keeps its probability (Switch), so that the router learns through it.
  int64_t normalize = -1;
  double capacity_factor = 1.25;
  // Width of an MLP that every token passes in addition to its experts; 0: none.
  int64_t shared_ffn = 0;
  // Width of tokens at the experts, made by products before and after the experts; 0: hidden.
  int64_t latent = 0;
  // Number of first blocks that have an MLP of width dense_ffn in place of experts. After them only
  // the last of every `experts_every` blocks has experts, and the others have that MLP too.
  int64_t dense_layers = 0, experts_every = 1;
  int64_t dense_ffn = 0;  // 0: ffn * top_k
  // The coefficient of each layer's load balance loss (Switch Transformer, eq. 4); 0: none. The
  // loss is balance * experts * sum_e f_e P_e, averaged over sequences, where f_e is the share of a
  // sequence's choices that fall on expert e and P_e is the mean probability of e over the
  // sequence. f has no derivative.
  double balance = 0.01;
  double z_loss = 0;  // coefficient of the mean squared log-sum-exp of the router's logits (ST-MoE)
  // Whether experts multiply their results by the tokens' weights, instead of `combine` doing so
  // with the returned results. The sum is the same. The returned results then need not be kept for
  // the backward pass, but the weights are sent to the experts with the tokens.
  bool weigh_inside = false;
  MixtureForm form;
};

std::vector<ModelKey> model_keys(MixtralConfig& config);
Status complete(MixtralConfig& config);
// Returns the number of slots of an expert for a sequence.
int64_t expert_capacity(const MixtralConfig& config);
Result<Graph> build_mixtral(const MixtralConfig& config, int64_t batch);

// ---- a mixture of experts as part of a block
int64_t expert_capacity(double factor, int64_t top_k, int64_t experts, int64_t seq);

struct MixtureOptions {
  int64_t experts = 8, top_k = 2, capacity = 1;
  int64_t ffn = 1;                     // width of each expert
  int64_t shared_ffn = 0, latent = 0;  // as in MixtralConfig
  double balance = 0, z_loss = 0;
  bool normalize = true;      // whether a token's weights are divided by their sum
  bool weigh_inside = false;  // as in MixtralConfig
  std::string activation = "silu";
  // True: activation(gate) * up; false: activation(up), without the ops gate and mul.
  bool gated = true;
  MixtureForm form;
};
// Adds up the auxiliary losses of a model, from the first mixture to the last. Each mixture hands
// its sum to the next mixture, and receives the gradient of the sum from there. So the stages of a
// pipeline pass one number to a neighbour instead of many numbers to the last stage
// (docs/adr/0084-sums-over-the-model-run-from-block-to-block.md). Call `start` before the first
// block, `add` in each mixture and `finish` after the model's own loss.
class RunningLoss {
 public:
  // Adds embed.no_loss, a zero to which the first mixture adds its losses, so that all mixtures
  // have equal ops. The zero is a sum over the batch, as the losses are. On ranks that have parts
  // of the losses it is therefore a sum of parts too, and nothing is summed between ranks before
  // the end. Adds nothing if `config` has no such losses. `dtype` is the model's dtype.
  void start(GraphBuilder& g, const MixtureOptions& config, const Dim& batch, DType dtype);
  // Adds the scalars `terms` to the sum, in the block that is being built, by the ops loss_before
  // (a copy of the sum so far) and losses (the new sum).
  void add(GraphBuilder& g, std::vector<TensorId> terms);
  // Makes the graph's loss `loss.total`: the loss so far plus `others` and this sum. The loss stays
  // as it is if there is nothing to add.
  void finish(GraphBuilder& g, std::vector<TensorId> others = {}) const;

 private:
  std::optional<TensorId> sum_;
};

// Adds the ops moe.* and moe.residual. From the residual stream x and its norm h, both [batch,
// seq, hidden], they make the new residual stream, which is returned. Adds the auxiliary losses
// to `losses`.
TensorId mixture_of_experts(GraphBuilder& g, TensorId x, TensorId h,
                            const FeedForwardOptions& options, const MixtureOptions& config,
                            RunningLoss& losses);
// Checks that the element counts of the largest tensors fit in 64 bits.
Status check_expert_sizes(const MixtureOptions& config, int64_t hidden, int64_t batch,
                          std::string_view family);

}  // namespace tessera
