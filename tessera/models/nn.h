// Building blocks of models over GraphBuilder: a block adds its parameters and ops under the given
// name and returns its output. All work on named dims; the shapes follow from the tensors given.
//
//   TensorId h = layer_norm(g, "ln_1", x, 1e-5);                          // ln_1.weight, ln_1.bias
//   h = linear(g, "up", h, {"hidden"}, {{"ffn", 3072}}, {normal(0.02)});  // up.weight [hidden,
//   ffn], up.bias [ffn]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/builder.h"

namespace tessera {

Init normal(double standard_deviation);
int64_t size_of(const GraphBuilder& g, TensorId tensor,
                std::string_view dim);  // 0 if it has no such dim

struct LinearOptions {
  Init weight;
  bool bias = true;  // made of zeros
};
// y = x W + b: contracts the dims `in` of x with the weight [in.., out..]; y has the other dims of
// x, then `out`.
TensorId linear(GraphBuilder& g, std::string_view name, TensorId x,
                const std::vector<std::string>& in, const std::vector<Dim>& out,
                const LinearOptions& options);

// Over the last dim of x; gamma `<name>.weight` of ones and, for layer_norm, beta `<name>.bias` of
// zeros.
TensorId layer_norm(GraphBuilder& g, std::string_view name, TensorId x, double eps);
TensorId rms_norm(GraphBuilder& g, std::string_view name, TensorId x, double eps);

// Elements are zeroed with probability p; `key` is the mask's: no two dropouts of a model share
// one. p = 0 adds no op.
TensorId dropout(GraphBuilder& g, std::string_view name, TensorId x, double p, std::string key);

// Causal self-attention of x [batch, seq, hidden], ops `<scope>.q`, `.k`, `.v`, (`.q_rotary`,
// `.k_rotary`,) `.core`,
// `.out`. `heads` counts key heads; each serves `group` query heads (1: multi-head attention).
struct AttentionOptions {
  int64_t heads = 1, group = 1, head_dim = 1;
  LinearOptions in;                 // q, k and v
  LinearOptions out;                // back to hidden
  bool causal = true;               // a token attends to itself and to those before it
  TensorId rotary_cos, rotary_sin;  // tables [seq, rotary_dim]; invalid: no rotation
};
TensorId attention(GraphBuilder& g, std::string_view scope, TensorId x,
                   const AttentionOptions& options);

// Rotary tables "rotary.cos" and "rotary.sin" [seq, rotary_dim = head_dim / 2] into the options.
void add_rotary_tables(GraphBuilder& g, AttentionOptions& options, int64_t seq, double theta,
                       DType dtype);

// Logits, op `head`: x times a table [vocab, hidden], which is `table` (the token embedding) if
// tied, else a parameter `head.weight` of its own.
TensorId output_head(GraphBuilder& g, TensorId x, TensorId table, bool tied, const Dim& vocab,
                     Init init);

// The mean cross entropy of logits [.., classes] over all target positions [..]: ops
// `loss.cross_entropy`, `loss.token`, `loss.mean`; sets graph().loss.
void cross_entropy_loss(GraphBuilder& g, TensorId logits, TensorId targets);

}  // namespace tessera
