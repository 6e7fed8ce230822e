// An encoder-decoder like T5 (Raffel et al., 2020). It has an RMS norm before each branch, no
// biases, ReLU, and one token table for source, target and head. Positions are relative:
// self-attention adds a bias for each head and bucket of the distance. The encoder distinguishes
// distances to both sides, the decoder distances to earlier tokens. The encoder and the decoder
// have one table of biases each, {encoder,decoder}.relative.weight [buckets, heads]. Each block
// makes its own biases from the table (blocks.<i>.attn.bias [seq, kv, heads]), so that stages of a
// pipeline share no activation. Blocks 0 to layers - 1 are the encoder's. The next `layers` blocks
// are the decoder's and have cross-attention to the encoder's output, blocks.<i>.attn.cross.*.
// Inputs: source [batch, source], tokens and targets [batch, seq].
#pragma once

#include <string>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct T5Config {
  int64_t layers = 6, hidden = 512, heads = 8, source = 512, seq = 114, vocab = 32128;
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // 0: 4 * hidden
  int64_t buckets = 32, max_distance = 128;
  bool tied = true;
  bool gated = false;               // the MLP has a gate (T5 1.1, Flan)
  std::string activation = "relu";  // of the MLP
  // attention divides its scores by sqrt(head_dim); false in the published models
  bool scaled_scores = true;
  // Whether the head's input is divided by sqrt(hidden). In the published models it is if the head
  // is tied.
  bool scaled_head = false;
  double eps = 1e-6;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(T5Config& config);
Status complete(T5Config& config);
Result<Graph> build_t5(const T5Config& config, int64_t batch);

}  // namespace tessera
