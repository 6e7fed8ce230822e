// Layers of models, built with GraphBuilder. A function adds parameters and ops under the given
// name and returns the output of the layer. All functions work on named dims. Shapes follow from
// the given tensors.
//
//   // Parameters ln_1.weight and ln_1.bias:
//   TensorId h = layer_norm(g, "ln_1", x, 1e-5);
//   // Parameters up.weight [hidden, ffn] and up.bias [ffn]:
//   h = linear(g, "up", h, {"hidden"}, {{"ffn", 3072}}, {normal(0.02)});
//
// The names and dims that these functions give are those of the contract (contract.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/builder.h"

namespace tessera {

Init normal(double standard_deviation);
inline constexpr double kDeviation = 0.02;  // for the weights of transformers
// Returns the size of a dim, 0 if the tensor has no such dim.
int64_t size_of(const GraphBuilder& g, TensorId tensor, std::string_view dim);

struct LinearOptions {
  Init weight;
  bool bias = true;
  Init bias_values = {Init::Kind::kZeros};
  // Low-rank adaptation (LoRA, Hu et al. 2021): two trained factors are added to the weight, and
  // this is their rank (the columns of the first, the rows of the second). 0: there are no factors.
  int64_t lora = 0;
  // How the weight is published. By default it is a matrix [out, in], whose dims may each join
  // several dims, as in PyTorch's Linear. With `input_first` it is [in, out] (Conv1D of GPT-2). If
  // `published` is not empty, that text says it (published_text of graph.h). The bias is published
  // as a vector [out].
  bool input_first = false;
  std::string published = {};
};
inline constexpr double kLoraScale = 2;  // the usual setting of alpha / rank
// Makes y = x W + b. It contracts the dims `in` of x with the weight [in.., out..]. y has the other
// dims of x, followed by `out`. With `lora` it makes y = x W + b + kLoraScale (x A) B by the ops
// `<name>.base`, `.lora_a`, `.lora_b`, `.lora_scale` and `<name>`. A is the parameter
// `<name>.lora_a.weight` [in.., lora], normal with variance 1 / size of in, and B is
// `<name>.lora_b.weight` [lora, out..], zeros.
TensorId linear(GraphBuilder& g, std::string_view name, TensorId x,
                const std::vector<std::string>& in, const std::vector<Dim>& out,
                const LinearOptions& options);

// Normalises over the last dim of x. The parameter `<name>.weight` (gamma) is ones at first;
// layer_norm also has `<name>.bias` (beta), zeros at first.
TensorId layer_norm(GraphBuilder& g, std::string_view name, TensorId x, double eps);
// Normalises over the last dim of x. With `shifted` the parameter is added to one, zeros at first, and
// the op `<name>.gain` makes gamma (Gemma).
TensorId rms_norm(GraphBuilder& g, std::string_view name, TensorId x, double eps,
                  bool shifted = false);
// Makes `cap` tanh(x / cap) by the ops `<name>.divided`, `<name>.bent` and `<name>`.
TensorId soft_cap(GraphBuilder& g, const std::string& name, TensorId x, double cap);

// Convolves each number of a token x [batch, seq, channels..] along the sequence with the `taps`
// tokens up to its own, and applies SiLU: ops `<name>_conv` and `<name>_act`, parameters
// `<name>_conv.weight` [channels.., taps] and, if `biased`, `<name>_conv.bias`.
TensorId causal_convolution(GraphBuilder& g, const std::string& name, TensorId x, int64_t taps,
                            bool biased);
// Returns the text of a published vector that joins `dims`.
std::string as_vector(const std::vector<Dim>& dims);

// Zeroes elements with probability p. `key` determines the mask, so two dropouts of a model must
// not have the same key. With p = 0 no op is added.
TensorId dropout(GraphBuilder& g, std::string_view name, TensorId x, double p, std::string key);

// Options of attention of x [batch, seq, hidden] to itself, which is causal unless the options say
// otherwise. Ops `<scope>.q`, `.k`, `.v`, (`.q_rotary`, `.k_rotary`,) `.core`, `.out`. `heads`
// counts key heads. `group` query heads use one key head (1: multi-head attention).
struct AttentionOptions {
  int64_t heads = 1, group = 1, head_dim = 1;
  LinearOptions in;                 // for q, k and v
  LinearOptions out;                // for the product back to hidden
  bool causal = true;               // a token attends to itself and to tokens before it
  TensorId rotary_cos, rotary_sin;  // tables [seq, rotary_dim]; invalid: no rotation
  bool rotary_neighbours = false;   // turned are pairs (2 i, 2 i + 1), not (i, i + rotary_dim)
  TensorId query_scale;  // a table [seq] that multiplies the queries, op `.q_scaled`; invalid: none
  TensorId memory;       // [batch, seq, hidden]: keys and values are made from it; invalid: from x
  // Latent attention (DeepSeek-V2, 2024): a first product makes q_rank (or kv_rank) numbers, which
  // are RMS-normed, and a second product makes the queries (or the keys and values) from them. Ops
  // `.q_down`, `.q_norm`, `.kv_down`, `.kv_norm`. 0: there is no first product.
  int64_t q_rank = 0, kv_rank = 0;
  // The last so many elements of each head of queries and keys carry the positions, and only these
  // are rotated. Those of the keys are made from x by one product `.k_rope` for all heads, and
  // `.k_both` joins them to the others (DeepSeek-V2). 0: whole heads are made from the rank.
  int64_t rope_dim = 0;
  int64_t value_dim = 0;  // width of a head of the values; 0: head_dim
  double eps = 1e-5;      // of the norms of latent attention and of the head norms
  // Queries and keys of each head are RMS-normed before they are rotated. Ops `.q_head_norm`,
  // `.k_head_norm`. With `norm_over_heads` the mean is over all elements of all heads (OLMo 2).
  bool head_norm = false, norm_over_heads = false;
  // The elements that a head norm multiplies by, if these are not trained (Llama 4: ones).
  TensorId head_norm_gain;
  bool norm_shifted = false;  // as in rms_norm()
  double scale = 0;           // factor of the scores; 0: 1 / sqrt(head_dim)
  double softcap = 0;         // scores s become softcap tanh(s / softcap); 0: they stay
  // Each query head has one more score, the parameter `.sinks.weight` [heads, group], with a value
  // of zeros (gpt-oss). Ops `.sink_over`, `.sink_share`, `.sink_gate`, `.gated`.
  bool sinks = false;
  // The result of each head is multiplied by the sigmoid of a further product of x (Qwen 3 Next). Ops
  // `.gate`, `.gate_act`, `.gate_mul`.
  bool gate = false;
  // A token attends only to tokens less than this many positions away; 0: to all tokens.
  int64_t window = 0;
  // A token attends only to tokens of its chunk of so many tokens, whose multiple the sequence is; 0:
  // to all. Chunks stand beside the heads, `(heads chunks)`: ops `.q_chunks`, `.k_chunks`,
  // `.v_chunks`, `.core`, `.assemble`.
  int64_t chunk = 0;
  TensorId bias;      // added to the scores; has some of the dims (batch, seq, heads, group, kv)
  TensorId segments;  // [batch, seq] integers: a token attends only to tokens with the same integer
  double dropout = 0;  // of attention's weights, with the key `dropout_key`
  std::string dropout_key;
};
TensorId attention(GraphBuilder& g, std::string_view scope, TensorId x,
                   const AttentionOptions& options);

// Adds the op `attention` with the attributes that the options state, for models that make its
// operands q, k and v themselves. Returns the outputs of the op.
std::vector<TensorId> attention_core(GraphBuilder& g, std::string_view name, TensorId q, TensorId k,
                                     TensorId v, const AttentionOptions& options);

inline constexpr std::string_view kDocuments = "documents";
// Adds the input `documents` [batch, seq], for models whose text consists of several documents: the
// number of each token's document. Returns an invalid id, without any input, if no token ends
// documents (-1).
TensorId document_numbers(GraphBuilder& g, int64_t end_of_document, int64_t batch, int64_t seq);

// Adds rotary tables "<scope>.cos" and "<scope>.sin" [seq, rotary_dim] to the options, for `turned`
// elements of a head, twice rotary_dim. `scaling` is {1}: no scaling; {factor}: all frequencies are
// scaled; {factor, low, high, positions}: only frequencies with long waves are scaled (Llama 3.1);
// {factor, positions, fast, slow, whole}: YaRN; rotary_factors(): a factor for each (docs/reference/ops.md).
void add_rotary_tables(GraphBuilder& g, AttentionOptions& options, int64_t seq, int64_t turned,
                       double theta, DType dtype, const std::vector<int64_t>& scaling = {1},
                       std::string_view scope = "rotary");

// Returns a scaling by which each rotary frequency is divided by a number of its own and the tables are
// multiplied by `amplitude`.
std::vector<int64_t> rotary_factors(double amplitude, const std::vector<double>& factors);

// An MLP (linear, activation, linear) over the last dim `hidden` of x: ops `<scope>.up`, `.act`,
// `.down`. The dim between the linear layers is `ffn`. If gated, the activation is applied to the
// output of `<scope>.gate`, and `.mul` multiplies the result by the output of `.up`.
struct MlpOptions {
  int64_t ffn = 1;
  std::string activation = "gelu";
  LinearOptions in, out;
  bool gated = false;
};
TensorId feed_forward(GraphBuilder& g, std::string_view scope, TensorId x,
                      const MlpOptions& options);

// A block in pre-norm form over x [batch, seq, hidden]. It has the ops ln_1, attn.*, attn.residual,
// ln_2, mlp.*, mlp.residual. If a branch has dropout, also attn.dropout or mlp.dropout, with the
// key `<key>.attn` or `<key>.mlp`.
struct BranchDropout {
  double attention = 0, mlp = 0;
  std::string key;
};
TensorId pre_norm_block(GraphBuilder& g, TensorId x, double eps, const AttentionOptions& heads,
                        const MlpOptions& mlp, const BranchDropout& dropped = {});

// Makes logits by an op `name`: x times a table [vocab, hidden]. The table is `table` (the token
// embedding) if tied, else a parameter `head.weight` of its own.
TensorId output_head(GraphBuilder& g, TensorId x, TensorId table, bool tied, const Dim& vocab,
                     Init init, std::string_view name = "head");

// Cuts an image [batch, height, width, channels] into squares of `patch` x `patch` pixels, and
// passes each through one linear layer: ops `embed.squares` and `embed.patch`. Returns [batch,
// rows, columns, hidden].
TensorId patch_embedding(GraphBuilder& g, TensorId image, int64_t patch, int64_t hidden,
                         const LinearOptions& options);

// Makes the mean of x over the dims `over` (separated by blanks), by the op `final.pool`.
TensorId mean_pool(GraphBuilder& g, TensorId x, std::string_view over);

// Adds a convolution of maps x [batch dims.., channels, spatial..] over the named spatial dims,
// without a bias. The kernel has `kernel` elements along each of them, and the padding is kernel /
// 2. The op is `<name>`. The parameter is `<name>.weight` [out, in, kernel_<dim>..], normal with
// variance 2 / (out kernel^dims) (He et al., 2015). `in` is the name of the weight's dim for the
// channels of x.
TensorId convolution(GraphBuilder& g, const std::string& name, TensorId x, const Dim& in,
                     const Dim& out, const std::vector<std::string>& spatial, int64_t kernel,
                     int64_t stride);
// Adds batch norm of maps over the named dims: parameters `<name>.weight` of ones and `<name>.bias`
// of zeros for each channel.
TensorId batch_norm(GraphBuilder& g, const std::string& name, TensorId x, const Dim& channels,
                    std::string_view over, double eps);

// Makes the mean cross entropy of logits [.., classes] over all target positions [..]: ops
// `loss.cross_entropy`, `loss.token`, `loss.mean`; sets graph().loss.
void cross_entropy_loss(GraphBuilder& g, TensorId logits, TensorId targets);

// Makes a cross entropy under other names and with another divisor, by ops `<scope>.cross_entropy`,
// `.token`, `.mean`: the sum over the positions whose target is not negative, divided by
// `positions`. Returns the scalar.
TensorId cross_entropy_sum(GraphBuilder& g, std::string_view scope, TensorId logits,
                           TensorId targets, int64_t positions);

// Makes losses of other kinds. Each is the mean over all elements (positions), which is returned as
// a scalar.
//   mean_square_error     of (y - target)^2; ops `<scope>.difference`, `.square`, `.mean`
//   binary_cross_entropy  of log(1 + e^x) - x t, for logits x and targets t in [0, 1], exact for
//                         large x; ops `<scope>.softplus`, `.product`, `.each`, `.mean`
TensorId mean_square_error(GraphBuilder& g, std::string_view scope, TensorId y, TensorId target);
TensorId binary_cross_entropy(GraphBuilder& g, std::string_view scope, TensorId logits,
                              TensorId targets);

}  // namespace tessera
