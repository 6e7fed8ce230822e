// A stack of Evoformer blocks (Jumper et al., 2021; shapes and costs: docs/theory/superscaler.md
// sections 8 and 9c). A block works on an alignment msa [batch, s, r, hidden] and a pair map
// [batch, r, r2, pair]: row attention with pair bias, column attention, transition, outer-product
// mean, triangle multiplication (outgoing, incoming), triangle attention (start, end), pair
// transition. Scores are made explicitly (einsum, softmax, einsum), so each of s, r, r2 can be
// split. With recycles = N the stack first runs N times without gradient, under paths
// `pass.<p>.blocks.<i>.*`. All passes share parameters. The state that a pass makes is normalised
// and added to the embeddings of the next pass (AlphaFold adds only the first row of the alignment,
// and the predicted distances). The loss is the mean cross entropy of the masked tokens of the
// alignment plus the mean cross entropy of the classes of the distances. Inputs: tokens, targets
// [batch, s, r], sequence [batch, r], distances [batch, r, r2].
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct EvoformerConfig {
  int64_t layers = 2, sequences = 8, residues = 16, vocab = 23, bins = 64;
  int64_t hidden = 32, pair = 16, heads = 4, pair_heads = 2, outer = 8;
  std::string activation = "relu";  // activation of the transitions
  int64_t ffn = 0;     // 0: 4 * hidden; the pair transition has the width ffn * pair / hidden
  int64_t masked = 0;  // 0: 15 % of sequences * residues
  int64_t recycles = 0;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(EvoformerConfig& config);
Status complete(EvoformerConfig& config);
Result<Graph> build_evoformer(const EvoformerConfig& config, int64_t batch);

}  // namespace tessera
