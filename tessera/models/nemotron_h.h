// Hybrids of state space, attention, MLP and mixture-of-experts blocks (Nemotron-H; also Nemotron
// 3, Jamba, Zamba and Bamba as far as they consist of these). A pattern gives the blocks by a
// letter each: M state space (Mamba-2), * attention, - MLP, E experts. A block is x + f(norm(x)):
//
//   M  ln_1, ssm.{z,x,b,c,dt} (one product each: Megatron's in_proj, cut by heads),
//      ssm.{x,b,c}_conv and _act, ssm.dt_act (softplus), ssm.{a_exp,a}, ssm.scan,
//      ssm.{gate,gated,join,norm,gain} (RMS norm of each group of y silu(z)), ssm.out, ssm.residual
//   *  ln_1, attn.{q,k,v,core,out,residual}: no positions, the state space blocks know the order
//   -  ln_1, mlp.{up,act,down,residual}, squared ReLU
//   E  ln_1, moe.* as of mixtral without gates: squared ReLU
//
// With `mtp`, tokens further ahead are predicted too (DeepSeek-V3, section 2.2). After the last
// block, each of `mtp` depths has a product of the stream and the embedding of the next token (both
// normed; blocks.mtp_<depth>_0.{state_norm,token_norm,state,token,joined}), blocks as `mtp_pattern`
// says, blocks.mtp_<depth>_<i>, and a norm, head and loss of its own: final.mtp_<depth>,
// head.mtp_<depth> (the head's weight), loss.mtp_<depth>.
//
// In a state space block the dim heads counts the groups that share B and C, and the dim group the
// heads of each, like key and query heads in attention.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct NemotronHConfig {
  std::string pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
  int64_t layers = 0;  // 0: as many as the pattern has letters; else it is repeated, or cut
  int64_t hidden = 4096, heads = 32, kv_heads = 8;
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t seq = 8192, vocab = 131072, ffn = 21504;
  // State space, in order: heads; numbers of a head; groups of heads that share B and C; numbers of
  // the state for each number of a head; tokens that the convolution sees; tokens of a chunk.
  int64_t ssm_heads = 128, ssm_head_dim = 64, ssm_groups = 8, state = 128, conv = 4, chunk = 128;
  // Experts, as in MixtralConfig.
  int64_t experts = 8, top_k = 2;
  int64_t expert_ffn = 0;  // 0: ffn
  double capacity_factor = 1.25;
  int64_t shared_ffn = 0, latent = 0;
  double balance = 0.01, z_loss = 0;
  bool weigh_inside = false;
  int64_t mtp = 0;  // depths of multi-token prediction
  std::string mtp_pattern = "*E";
  double mtp_loss = 0.1;  // weight of their losses' mean
  bool tied = false;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(NemotronHConfig& config);
// Repeats or cuts the pattern, computes values that are 0, checks that the sizes fit together.
Status complete(NemotronHConfig& config);
Result<Graph> build_nemotron_h(const NemotronHConfig& config, int64_t batch);

}  // namespace tessera
