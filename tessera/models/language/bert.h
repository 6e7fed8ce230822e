// BERT (Devlin et al., 2018) with its masked-token loss. It has learned positions and token types,
// layer norms after attention and MLP, and GELU (in tanh form, or the function that `activation`
// names). The head is a linear layer, the same activation, a norm, and a product with the token
// table. Inputs are tokens, segments and targets [batch, seq]. A target is negative where the token
// is not masked. In each sequence exactly `masked` tokens are masked, so the loss divides by batch
// * masked. `mask` is the token that replaces masked tokens.
#pragma once

#include <string>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct BertConfig {
  int64_t layers = 12, hidden = 768, heads = 12, seq = 512, vocab = 30522;
  int64_t ffn = 0;     // 0: 4 * hidden
  int64_t types = 2;   // token types (segments)
  int64_t masked = 0;  // 0: 15 % of seq
  int64_t mask = -1;   // the token that replaces masked tokens; -1: the last one of the vocabulary
  double eps = 1e-12;
  std::string activation = "gelu";
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(BertConfig& config);
Status complete(BertConfig& config);
Result<Graph> build_bert(const BertConfig& config, int64_t batch);

}  // namespace tessera
