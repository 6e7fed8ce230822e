// GPT-2: learned positions, layer norms before attention and MLP, GELU (tanh form), biases, token
// embedding tied to the head. Ops: embed.token, embed.add, (embed.dropout,) blocks.<i>.{ln_1,
// attn.{q,k,v,core,out}, attn.residual, ln_2, mlp.{up,act,down}, mlp.residual}, final.ln, head,
// loss.{cross_entropy,token,mean}; with dropout > 0 also blocks.<i>.{attn,mlp}.dropout.
//
// The initialisation is the published one: normal(0.02), residual projections normal(0.02 / sqrt(2
// layers)), biases zero. `dropout` acts on the embedding and on both residual branches,
// `attention_dropout` on the weights of attention. If a token ends documents (`eod`), an input
// `documents` [batch, seq] has the number of each token's document, and a token attends only within
// its document.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct GptConfig {
  int64_t layers = 12, hidden = 768, heads = 12, seq = 1024, vocab = 50257;
  int64_t kv_heads = 0;  // 0: heads
  int64_t ffn = 0;       // 0: 4 * hidden
  double dropout = 0, attention_dropout = 0;
  int64_t window = 0;  // of attention, as in nn.h; 0: none
  int64_t eod = -1;    // the token that ends a document; -1: none
  bool tied = true;
  double eps = 1e-5;
  bool causal = true;
  std::string activation = "gelu";  // "gelu", "gelu_erf", "relu", "silu"
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(GptConfig& config);
// Computes the values that are 0, and checks that the sizes fit together.
Status complete(GptConfig& config);
Result<Graph> build_gpt(const GptConfig& config, int64_t batch);

}  // namespace tessera
