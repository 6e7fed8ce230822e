// Hybrids of state space, attention, MLP and mixture-of-experts blocks (Nemotron-H; also Nemotron
// 3, Jamba, Zamba and Bamba as far as they consist of these). A pattern has one letter for each
// block: M state space (Mamba-2), * attention, - MLP, E experts. Each block adds f(norm(x)) to its
// input x. The ops of a block are:
//
//   M  ln_1, ssm.{z,x,b,c,dt} (one product each, where Megatron has one in_proj; cut by heads),
//      ssm.{x,b,c}_conv and _act, ssm.dt_act (softplus), ssm.{a_exp,a}, ssm.scan,
//      ssm.{gate,gated,join,norm,gain} (RMS norm of y silu(z) within each group), ssm.out,
//      ssm.residual
//   *  ln_1, attn.{q,k,v,core,out,residual}; without positions, because the state space blocks
//      already depend on the order of tokens
//   -  ln_1, mlp.{up,act,down,residual}, with squared ReLU
//   E  ln_1, moe.* as in mixtral, but with squared ReLU and without gates
//
// With `mtp` > 0, tokens further ahead are predicted too (DeepSeek-V3, section 2.2). For each depth
// 1 to `mtp`, the following is added after the last block: a product of the residual stream and the
// embedding of the next token, both normed
// (blocks.mtp_<depth>_0.{state_norm,token_norm,state,token,joined}); blocks as `mtp_pattern` says,
// blocks.mtp_<depth>_<i>; a norm final.mtp_<depth>; a head head.mtp_<depth>, which uses the weight
// of the model's head; and a loss loss.mtp_<depth>.
//
// In a state space block the dim heads counts the groups of heads that share B and C, and the dim
// group counts the heads of one such group. In attention they count key heads and the query heads
// of one key head.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct NemotronHConfig {
  std::string pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
  // 0: as many as the pattern has letters; else the pattern is repeated or cut to that many
  int64_t layers = 0;
  int64_t hidden = 4096, heads = 32, kv_heads = 8;
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t seq = 8192, vocab = 131072, ffn = 21504;
  // State space, in this order: number of heads; numbers in a head; groups of heads that share B
  // and C; size of the state of each number of a head; tokens that the convolution sees; tokens of
  // a chunk.
  int64_t ssm_heads = 128, ssm_head_dim = 64, ssm_groups = 8, state = 128, conv = 4, chunk = 128;
  // Experts, as in MixtralConfig.
  int64_t experts = 8, top_k = 2;
  int64_t expert_ffn = 0;  // 0: ffn
  double capacity_factor = 1.25;
  int64_t shared_ffn = 0, latent = 0;
  double balance = 0.01, z_loss = 0;
  bool weigh_inside = false;
  int64_t mtp = 0;  // number of depths of multi-token prediction
  std::string mtp_pattern = "*E";
  double mtp_loss = 0.1;  // weight of the mean of the depths' losses
  bool tied = false;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(NemotronHConfig& config);
// Repeats or cuts the pattern, computes values that are 0, checks that the sizes fit together.
Status complete(NemotronHConfig& config);
Result<Graph> build_nemotron_h(const NemotronHConfig& config, int64_t batch);

}  // namespace tessera
