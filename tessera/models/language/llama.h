// Llama has rotary positions, RMS norms before attention and MLP, SwiGLU, grouped key heads, and no
// biases. The family also covers Mistral (a sliding window), Qwen 2 (biases of queries, keys and
// values), Qwen 3 (norms of queries and keys), OLMo 2 (norms after attention and MLP), Gemma
// (norms before and after, GELU, a window in most blocks) and Qwen 3 Next (gated DeltaNets in most
// blocks, whose ops are ssm.* in place of attn.*). Ops: embed.token, blocks.<i>.{ln_1,
// attn.{q,k,v,q_rotary,k_rotary,core,out}, ln_1_after, attn.residual, ln_2,
// mlp.{gate,act,up,mul,down}, ln_2_after, mlp.residual}, final.ln, head,
// loss.{cross_entropy,token,mean}. The dim heads counts key heads. The dim group counts the query
// heads that use one key head.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"
#include "tessera/models/nn.h"

namespace tessera {

struct LlamaConfig {
  int64_t layers = 32, hidden = 4096, heads = 32, seq = 4096, vocab = 32000;
  int64_t kv_heads = 0;  // 0: heads
  int64_t head_dim = 0;  // 0: hidden / heads
  // 0: 8/3 hidden, rounded up to a multiple of 256 (the rule of Llama 1, and of Llama 2 up to 13B)
  int64_t ffn = 0;
  int64_t q_rank = 0, kv_rank = 0;          // latent attention (nn.h); 0: none
  bool qkv_bias = false, out_bias = false;  // in attention's products
  int64_t rope_dim = 0;                     // of latent attention (nn.h)
  int64_t value_dim = 0;                    // width of a head of the values; 0: head_dim
  bool qk_norm = false;                     // RMS norms of queries and keys (nn.h)
  // Over each "head"; over "all" heads of a token; of each head, without weights, and only in blocks
  // with rotary positions ("turned").
  std::string qk_norm_over = "head";
  bool sinks = false;      // one more score of each query head (nn.h)
  bool attn_gate = false;  // what heads give is multiplied by a gate (nn.h)
  double theta = 10000;
  std::vector<int64_t> rope_scaling = {1};  // scaling of rotary frequencies (nn.h)
  // A factor of its own for each rotary frequency (LongRoPE): "positions/amplitude/short/long". Sequences
  // of at most `positions` tokens have their frequencies divided by the numbers `short`, longer ones by
  // `long`, both joined by '-'; `amplitude` multiplies the tables. "1": no such factors.
  std::string rope_factors = "1";
  // Elements of a head that are rotated, the first ones; 0: all. With latent attention rope_dim says
  // it.
  int64_t rotary_dim = 0;
  std::string rotary_pairs = "halves";  // or "neighbours": pairs (2 i, 2 i + 1)
  double window_theta = 0;  // theta of blocks with a window, without scaling; 0: as the others
  // Blocks whose number (from 1) is a multiple of this have no rotary positions; 0: all have them.
  int64_t unturned_every = 0;
  // The query at position p of blocks without rotary positions is multiplied by
  // 1 + scores_rise ln(1 + floor((p + 1) / scores_rise_at)) (Llama 4). 0: it is not.
  int64_t scores_rise_at = 0;
  double scores_rise = 0.1;
  int64_t window = 0;  // 0: none
  int64_t chunk = 0;   // tokens that attend to each other (nn.h); 0: all
  // Blocks whose number (from 1) is a multiple of this attend to all tokens, the others have the
  // window, or the chunks; 0: all blocks have them.
  int64_t full_every = 0;
  // The blocks that full_every does not name have a gated DeltaNet (delta_net.h) in place of
  // attention: heads of queries and keys (0: they have attention), heads of values, the widths of
  // both, and the tokens of the convolutions.
  int64_t delta_heads = 0, delta_value_heads = 0;  // delta_value_heads 0: delta_heads
  int64_t delta_head_dim = 128, delta_value_dim = 128, delta_conv = 4;
  // Where a block has norms: "before" attention and MLP, "after" them (on what they add to the
  // residual stream), or "both".
  std::string norms = "before";
  bool norms_shifted = false;           // the weights of norms are added to one (Gemma)
  double embed_scale = 1;               // factor of the token embedding
  double score_scale = 0;               // factor of attention's scores; 0: 1 / sqrt(head_dim)
  double score_cap = 0, logit_cap = 0;  // soft caps c tanh(x / c) of scores and logits; 0: none
  std::string activation = "silu";      // of the MLP: "silu", "gelu", "gelu_erf", "relu", "relu2"
  bool gated = true;  // whether the MLP multiplies the activation by a second product
  int64_t eod = -1;   // the token that ends a document; -1: none (gpt.h)
  // Low-rank fine-tuning: the rank of the two factors that are trained for each product of
  // attention and, with lora_mlp, for each product of the MLP. All other parameters are not
  // trained. 0: everything is trained.
  int64_t lora = 0;
  bool lora_mlp = false;
  // Depths of multi-token prediction (further_tokens.h), one block each, and the weight of the mean of
  // their losses. A depth begins with the normed stream that the head of the depth before it reads.
  int64_t mtp = 0;
  double mtp_loss = 0.3;
  bool tied = false;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(LlamaConfig& config);
// Computes values that are 0 and checks that the sizes fit together; `family` is for messages.
Status complete(LlamaConfig& config, std::string_view family = "llama");
Result<Graph> build_llama(const LlamaConfig& config, int64_t batch);

// The norm of what the second half of a block adds to the residual stream.
inline constexpr std::string_view kNormAfter = "ln_2_after";

// Options of the second half of a block.
struct FeedForwardOptions {
  LinearOptions in;   // of the products from hidden
  LinearOptions out;  // of the product back to hidden
  std::string activation = "silu";
  bool gated = true;  // as in LlamaConfig
  // Whether a norm, the op kNormAfter, follows before the result joins the residual stream.
  bool norm_after = false;
  double eps = 1e-5;
  bool norm_shifted = false;  // rms_norm() of nn.h
};
// A function that makes the second half of a block. From the residual stream x and its norm h, both
// [batch, seq, hidden], it makes the new residual stream.
using FeedForward =
    std::function<TensorId(GraphBuilder&, TensorId x, TensorId h, const FeedForwardOptions&)>;
// Adds an MLP of width `ffn`, with the ops mlp.{gate,act,up,mul,down,residual}, or without gate and
// mul if the options say so.
TensorId add_mlp(GraphBuilder& g, TensorId x, TensorId h, const FeedForwardOptions& options,
                 int64_t ffn);
// Adds a Llama whose blocks have `feed_forward` as their second half, up to the loss.
// `before_blocks` adds ops between the embedding and the first block. Returns losses that are to be
// added to that of the graph, those of multi-token prediction.
std::vector<TensorId> add_llama(
    GraphBuilder& g, const LlamaConfig& config, int64_t batch, const FeedForward& feed_forward,
    const std::function<void()>& before_blocks = [] {});

}  // namespace tessera
