#include "tessera/models/nn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

std::string child(std::string_view name, std::string_view suffix) {
  return std::string(name) + "." + std::string(suffix);
}

std::string dim_names(const std::vector<Dim>& dims) {
  std::vector<std::string> names;
  for (const Dim& dim : dims) names.push_back(dim.name);
  return join(names, " ");
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Init normal(double standard_deviation) { return {Init::Kind::kNormal, standard_deviation}; }

int64_t size_of(const GraphBuilder& g, TensorId tensor, std::string_view dim) {
  if (!tensor.valid()) return 0;
  for (const Dim& d : g.tensor(tensor).dims) {
    if (d.name == dim) return d.size;
  }
  return 0;
}

namespace {

// Returns the text of one published dim that joins several dims.
std::string joined(const std::vector<Dim>& dims) {
  return dims.size() == 1 ? dims[0].name : "(" + dim_names(dims) + ")";
}

// Adds the op `path`, which computes x times a weight [in.., out..], plus a bias if `bias` is not
// empty (it is the name of the bias).
TensorId product(GraphBuilder& g, std::string_view path, TensorId x,
                 const std::vector<std::string>& in, const std::vector<Dim>& out,
                 std::string_view weight, const LinearOptions& options,
                 std::string_view bias = "") {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  std::vector<Dim> weight_dims, y_dims;
  for (const Dim& dim : input.dims) (is_among(in, dim.name) ? weight_dims : y_dims).push_back(dim);
  const std::string rows = joined(out), columns = joined(weight_dims);
  weight_dims.insert(weight_dims.end(), out.begin(), out.end());
  y_dims.insert(y_dims.end(), out.begin(), out.end());

  std::vector<std::string> x_names;
  for (const Dim& dim : input.dims)
    x_names.push_back(dim.name + (is_among(in, dim.name) ? "+" : ""));
  std::string spec = join(x_names, " ") + ", " + dim_names(weight_dims);
  std::vector<TensorId> operands = {x,
                                    g.parameter(weight, weight_dims, options.weight, input.dtype)};
  const std::string matrix = options.input_first ? columns + " " + rows : rows + " " + columns;
  g.publish(operands[1], options.published.empty() ? matrix : options.published);
  if (!bias.empty()) {
    operands.push_back(g.parameter(bias, out, options.bias_values, input.dtype));
    g.publish(operands[2], rows);
    spec += ", " + dim_names(out);
  }
  return g.op1(path, "einsum", operands, {{"spec", spec + " -> " + dim_names(y_dims)}});
}

// Adds kLoraScale (x A) B, where the factors A and B are trained.
TensorId low_rank(GraphBuilder& g, std::string_view name, TensorId x,
                  const std::vector<std::string>& in, const std::vector<Dim>& out, int64_t rank) {
  double width = 1;
  for (const std::string& dim : in) width *= static_cast<double>(size_of(g, x, dim));
  const bool trains = g.trains();
  g.set_trains(true);
  const std::string a = child(name, "lora_a"), b = child(name, "lora_b");
  const TensorId narrow = product(g, a, x, in, {{"lora", rank}}, child(a, "weight"),
                                  {normal(1 / std::sqrt(std::max(1.0, width)))});
  const TensorId wide =
      product(g, b, narrow, {"lora"}, out, child(b, "weight"), {{Init::Kind::kZeros}});
  g.set_trains(trains);
  return g.op1(child(name, "lora_scale"), "scale", {wide}, {{"factor", kLoraScale}});
}

}  // namespace

TensorId linear(GraphBuilder& g, std::string_view name, TensorId x,
                const std::vector<std::string>& in, const std::vector<Dim>& out,
                const LinearOptions& options) {
  const bool adapted = options.lora > 0;
  const std::string bias = options.bias ? child(name, "bias") : "";
  const TensorId y = product(g, adapted ? child(name, "base") : std::string(name), x, in, out,
                             child(name, "weight"), options, bias);
  if (!adapted) return y;
  return g.op1(name, "add", {y, low_rank(g, name, x, in, out, options.lora)});
}

TensorId layer_norm(GraphBuilder& g, std::string_view name, TensorId x, double eps) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  const std::vector<Dim> features = {input.dims.back()};
  const TensorId gamma =
      g.parameter(child(name, "weight"), features, {Init::Kind::kOnes}, input.dtype);
  const TensorId beta =
      g.parameter(child(name, "bias"), features, {Init::Kind::kZeros}, input.dtype);
  const std::vector<TensorId> out = g.op(name, "layer_norm", {x, gamma, beta}, {{"eps", eps}});
  return out.empty() ? TensorId() : out[0];
}

TensorId rms_norm(GraphBuilder& g, std::string_view name, TensorId x, double eps, bool shifted) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  TensorId gamma = g.parameter(child(name, "weight"), {input.dims.back()},
                               {shifted ? Init::Kind::kZeros : Init::Kind::kOnes}, input.dtype);
  if (shifted) gamma = g.op1(child(name, "gain"), "shift", {gamma}, {{"by", 1.0}});
  const std::vector<TensorId> out = g.op(name, "rms_norm", {x, gamma}, {{"eps", eps}});
  return out.empty() ? TensorId() : out[0];
}

TensorId soft_cap(GraphBuilder& g, const std::string& name, TensorId x, double cap) {
  const TensorId divided = g.op1(name + ".divided", "scale", {x}, {{"factor", 1 / cap}});
  return g.op1(name, "scale", {g.op1(name + ".bent", "tanh", {divided})}, {{"factor", cap}});
}

std::string as_vector(const std::vector<Dim>& dims) { return "(" + dim_names(dims) + ")"; }

TensorId causal_convolution(GraphBuilder& g, const std::string& name, TensorId x, int64_t taps,
                            bool biased) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  const std::vector<Dim> channels(input.dims.begin() + 2, input.dims.end());
  std::vector<Dim> weight_dims = channels;
  weight_dims.push_back({"taps", taps});
  const std::string path = name + "_conv";
  const double width = 1 / std::sqrt(static_cast<double>(taps));
  std::vector<TensorId> operands = {x, g.parameter(child(path, "weight"), weight_dims,
                                                   {Init::Kind::kUniform, width}, input.dtype)};
  g.publish(operands[1], as_vector(channels) + " () taps");
  if (biased) {
    operands.push_back(
        g.parameter(child(path, "bias"), channels, {Init::Kind::kZeros}, input.dtype));
    g.publish(operands[2], as_vector(channels));
  }
  return g.op1(name + "_act", "silu", {g.op1(path, "causal_conv", std::move(operands))});
}

TensorId dropout(GraphBuilder& g, std::string_view name, TensorId x, double p, std::string key) {
  if (p == 0) return x;
  return g.op1(name, "dropout", {x}, {{"p", p}, {"key", std::move(key)}});
}

namespace {

// Passes x [.., hidden] through a first product to a dim `rank` of size `rank`, and through a norm.
// Returns x itself if `rank` is 0.
TensorId through_rank(GraphBuilder& g, const std::string& name, TensorId x, int64_t rank,
                      const AttentionOptions& options) {
  if (rank == 0) return x;
  LinearOptions linear_options = options.in;
  linear_options.bias = false;
  const TensorId narrow =
      linear(g, name + "_down", x, {"hidden"}, {{"rank", rank}}, linear_options);
  return rms_norm(g, name + "_norm", narrow, options.eps, options.norm_shifted);
}

// Norms queries or keys x by the mean of the squares of all elements of a token's heads. Made of
// element-wise ops and one sum, which every split of the heads can cut.
TensorId norm_over_heads(GraphBuilder& g, const std::string& name, TensorId x, double eps) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  std::vector<Dim> features;
  double count = 1;
  for (const Dim& dim : input.dims) {
    if (dim.name == "batch" || dim.name == "seq") continue;
    features.push_back(dim);
    count *= static_cast<double>(dim.size);
  }
  const TensorId gamma =
      g.parameter(child(name, "weight"), features, {Init::Kind::kOnes}, input.dtype);
  g.publish(gamma, joined(features));
  const TensorId squares = g.op1(child(name, "squares"), "mul", {x, x});
  const TensorId mean = g.op1(child(name, "mean"), "reduce_sum", {squares},
                              {{"dims", dim_names(features)}, {"factor", 1 / count}});
  const TensorId more = g.op1(child(name, "eps"), "shift", {mean}, {{"by", eps}});
  const TensorId rstd = g.op1(child(name, "rstd"), "power", {more}, {{"exponent", -0.5}});
  return g.op1(name, "mul", {g.op1(child(name, "normed"), "mul", {x, rstd}), gamma});
}

TensorId head_norm(GraphBuilder& g, const std::string& name, TensorId x,
                   const AttentionOptions& options) {
  if (!options.head_norm || !g.ok()) return x;
  if (options.head_norm_gain.valid()) {
    const auto out = g.op(name, "rms_norm", {x, options.head_norm_gain}, {{"eps", options.eps}});
    return out.empty() ? TensorId() : out[0];
  }
  return options.norm_over_heads ? norm_over_heads(g, name, x, options.eps)
                                 : rms_norm(g, name, x, options.eps, options.norm_shifted);
}

// Rotates the elements of heads x from `first` on.
TensorId rotated(GraphBuilder& g, const char* name, TensorId x, int64_t first,
                 const AttentionOptions& options) {
  if (!options.rotary_cos.valid()) return x;
  return g.op1(name, "rotary", {x, options.rotary_cos, options.rotary_sin},
               {{"inverse", int64_t{0}},
                {"neighbours", int64_t{options.rotary_neighbours}},
                {"first", first}});
}

// Joins the elements of the keys that carry positions, which all heads share, to those of each head.
TensorId with_positions(GraphBuilder& g, TensorId k, TensorId x, const AttentionOptions& options) {
  const Dim width = {"head_dim", options.rope_dim};
  LinearOptions product = options.in;
  product.bias = false;
  const TensorId turned =
      rotated(g, "k_rotary", linear(g, "k_rope", x, {"hidden"}, {width}, product), 0, options);
  if (!g.ok()) return {};
  std::string dims;
  for (const Dim& dim : g.tensor(k).dims) {
    dims += fmt::format("{}{}={}", dims.empty() ? "" : " ", dim.name,
                        dim.name == width.name ? width.size : dim.size);
  }
  const TensorId each = g.op1("k_rope_heads", "broadcast_to", {turned}, {{"dims", dims}});
  return g.op1("k_both", "concat", {k, each}, {{"dim", width.name}});
}

// Cuts the sequence of x [batch, seq, heads, ..] into chunks of `chunk` tokens, which then stand beside
// the heads.
TensorId in_chunks(GraphBuilder& g, const char* name, TensorId x, int64_t chunk) {
  if (!g.ok()) return {};
  const std::vector<Dim> dims = g.tensor(x).dims;
  const std::string rest = dim_names({dims.begin() + 3, dims.end()});
  return g.op1(
      name, "rearrange", {x},
      {{"spec", fmt::format("batch (chunks seq) heads {0} -> batch seq (heads chunks) {0}", rest)},
       {"sizes", fmt::format("seq={}", chunk)},
       {"dims", dim_names(dims)}});
}

// Undoes in_chunks() for the result of attention, whose heads are `heads` of each chunk.
TensorId assembled(GraphBuilder& g, TensorId o, int64_t heads) {
  if (!g.ok()) return {};
  const std::vector<Dim> dims = g.tensor(o).dims;
  const std::string rest = dim_names({dims.begin() + 3, dims.end()});
  return g.op1(
      "assemble", "rearrange", {o},
      {{"spec", fmt::format("batch seq (heads chunks) {0} -> batch (chunks seq) heads {0}", rest)},
       {"sizes", fmt::format("heads={}", heads)},
       {"dims", dim_names(dims)}});
}

// Weighs the result of attention by the share that the keys have beside the sink: with the log-sum-
// exp l of a query's scores and a sink s, e^l / (e^l + e^s).
TensorId beside_sink(GraphBuilder& g, TensorId o, TensorId lse, const AttentionOptions& options) {
  if (!g.ok()) return {};
  const DType dtype = g.tensor(o).dtype, wide = g.tensor(lse).dtype;
  TensorId sinks = g.parameter("sinks.weight", {{"heads", options.heads}, {"group", options.group}},
                               normal(kDeviation), dtype);
  g.publish(sinks, "(heads group)");
  const auto cast = [&](const char* name, TensorId x, DType to) {
    return g.tensor(x).dtype == to
               ? x
               : g.op1(name, "cast", {x}, {{"dtype", std::string(dtype_name(to))}});
  };
  sinks = cast("sink_wide", sinks, wide);
  const TensorId share = g.op1("sink_share", "sigmoid", {g.op1("sink_over", "sub", {lse, sinks})});
  return g.op1("gated", "mul", {o, cast("sink_gate", share, dtype)});
}

}  // namespace

std::vector<TensorId> attention_core(GraphBuilder& g, std::string_view name, TensorId q, TensorId k,
                                     TensorId v, const AttentionOptions& options) {
  std::vector<TensorId> operands = {q, k, v};
  if (options.bias.valid()) operands.push_back(options.bias);
  if (options.segments.valid()) operands.insert(operands.end(), 2, options.segments);
  return g.op(name, "attention", operands,
              {{"causal", int64_t{options.causal}},
               {"scale", options.scale},
               {"window", options.window},
               {"p", options.dropout},
               {"softcap", options.softcap},
               {"key", options.dropout > 0 ? options.dropout_key : std::string()}});
}

TensorId attention(GraphBuilder& g, std::string_view scope, TensorId x,
                   const AttentionOptions& options) {
  const Dim heads = {"heads", options.heads};
  const Dim group = {"group", options.group};
  const Dim head_dim = {"head_dim", options.head_dim};
  const Dim hidden = {"hidden", size_of(g, x, "hidden")};
  g.push(scope);
  const std::vector<std::string> q_in = {options.q_rank > 0 ? "rank" : "hidden"};
  const std::vector<std::string> kv_in = {options.kv_rank > 0 ? "rank" : "hidden"};
  const TensorId source = through_rank(g, "q", x, options.q_rank, options);
  TensorId q = linear(g, "q", source, q_in, {heads, group, head_dim}, options.in);
  const TensorId memory =
      through_rank(g, "kv", options.memory.valid() ? options.memory : x, options.kv_rank, options);
  const Dim plain = {"head_dim", options.head_dim - options.rope_dim};
  TensorId k = linear(g, "k", memory, kv_in, {heads, plain}, options.in);
  const bool same = options.value_dim == 0 || options.value_dim == options.head_dim;
  const Dim values = same ? head_dim : Dim{"value_dim", options.value_dim};
  TensorId v = linear(g, "v", memory, kv_in, {heads, values}, options.in);
  q = head_norm(g, "q_head_norm", q, options);
  k = head_norm(g, "k_head_norm", k, options);
  q = rotated(g, "q_rotary", q, options.rope_dim > 0 ? plain.size : 0, options);
  k = options.rope_dim > 0 ? with_positions(g, k, x, options)
                           : rotated(g, "k_rotary", k, 0, options);
  if (options.query_scale.valid()) q = g.op1("q_scaled", "mul", {q, options.query_scale});
  if (options.chunk > 0) {
    q = in_chunks(g, "q_chunks", q, options.chunk);
    k = in_chunks(g, "k_chunks", k, options.chunk);
    v = in_chunks(g, "v_chunks", v, options.chunk);
  }
  const std::vector<TensorId> core = attention_core(g, "core", q, k, v, options);
  TensorId o = core.empty() ? TensorId() : core[0];
  if (options.chunk > 0) o = assembled(g, o, options.heads);
  if (options.sinks && !core.empty()) o = beside_sink(g, o, core[1], options);
  if (options.gate) {
    const TensorId gate = linear(g, "gate", x, {"hidden"}, {heads, group, values}, options.in);
    o = g.op1("gate_mul", "mul", {o, g.op1("gate_act", "sigmoid", {gate})});
  }
  const TensorId y = linear(g, "out", o, {"heads", "group", values.name}, {hidden}, options.out);
  g.pop();
  return y;
}

TensorId document_numbers(GraphBuilder& g, int64_t end_of_document, int64_t batch, int64_t seq) {
  if (end_of_document < 0) return {};
  return g.input(kDocuments, {{"batch", batch}, {"seq", seq}}, DType::kInt64);
}

void add_rotary_tables(GraphBuilder& g, AttentionOptions& options, int64_t seq, int64_t turned,
                       double theta, DType dtype, const std::vector<int64_t>& scaling,
                       std::string_view scope) {
  const std::vector<Dim> dims = {{"seq", seq}, {"rotary_dim", turned / 2}};
  const std::vector<int64_t> sizes =
      scaling == std::vector<int64_t>{1} ? std::vector<int64_t>() : scaling;
  options.rotary_cos =
      g.buffer(child(scope, "cos"), dims, {Init::Kind::kRotaryCos, theta, sizes}, dtype);
  options.rotary_sin =
      g.buffer(child(scope, "sin"), dims, {Init::Kind::kRotarySin, theta, sizes}, dtype);
}

std::vector<int64_t> rotary_factors(double amplitude, const std::vector<double>& factors) {
  constexpr double kUnit = 1e15;
  std::vector<int64_t> sizes = {0, std::llround(amplitude * kUnit)};
  for (const double factor : factors) sizes.push_back(std::llround(factor * kUnit));
  return sizes;
}

TensorId output_head(GraphBuilder& g, TensorId x, TensorId table, bool tied, const Dim& vocab,
                     Init init, std::string_view name) {
  if (!g.ok()) return {};
  const Tensor input = g.tensor(x);
  const Dim hidden = input.dims.back();
  if (!tied) table = g.parameter("head.weight", {vocab, hidden}, init, input.dtype);
  const std::string spec =
      fmt::format("{0}+, {1} {2} -> {3} {1}", dim_names(input.dims), vocab.name, hidden.name,
                  dim_names({input.dims.begin(), input.dims.end() - 1}));
  return g.op1(name, "einsum", {x, table}, {{"spec", spec}});
}

TensorId feed_forward(GraphBuilder& g, std::string_view scope, TensorId x,
                      const MlpOptions& options) {
  if (!g.ok()) return {};
  const Dim hidden = g.tensor(x).dims.back();
  g.push(scope);
  TensorId h;
  if (options.gated) {
    const TensorId gate = linear(g, "gate", x, {hidden.name}, {{"ffn", options.ffn}}, options.in);
    const TensorId act = g.op1("act", options.activation, {gate});
    const TensorId up = linear(g, "up", x, {hidden.name}, {{"ffn", options.ffn}}, options.in);
    h = g.op1("mul", "mul", {act, up});
  } else {
    h = linear(g, "up", x, {hidden.name}, {{"ffn", options.ffn}}, options.in);
    h = g.op1("act", options.activation, {h});
  }
  h = linear(g, "down", h, {"ffn"}, {hidden}, options.out);
  g.pop();
  return h;
}

TensorId pre_norm_block(GraphBuilder& g, TensorId x, double eps, const AttentionOptions& heads,
                        const MlpOptions& mlp, const BranchDropout& dropped) {
  TensorId h = layer_norm(g, "ln_1", x, eps);
  h = attention(g, "attn", h, heads);
  h = dropout(g, "attn.dropout", h, dropped.attention, dropped.key + ".attn");
  x = g.op1("attn.residual", "add", {x, h});
  h = layer_norm(g, "ln_2", x, eps);
  h = feed_forward(g, "mlp", h, mlp);
  h = dropout(g, "mlp.dropout", h, dropped.mlp, dropped.key + ".mlp");
  return g.op1("mlp.residual", "add", {x, h});
}

TensorId patch_embedding(GraphBuilder& g, TensorId image, int64_t patch, int64_t hidden,
                         const LinearOptions& options) {
  const TensorId squares = g.op1(
      "embed.squares", "rearrange", {image},
      {{"spec",
        std::string("batch (rows y) (columns x) channels -> batch rows y columns x channels")},
       {"sizes", fmt::format("y={0} x={0}", patch)},
       {"dims", std::string("batch rows y columns x channels")}});
  LinearOptions patches = options;
  patches.published = "hidden channels y x";  // published as the kernel of a convolution
  return linear(g, "embed.patch", squares, {"y", "x", "channels"}, {{"hidden", hidden}}, patches);
}

TensorId mean_pool(GraphBuilder& g, TensorId x, std::string_view over) {
  int64_t count = 1;
  for (const std::string& dim : split_text(over, ' ')) count *= size_of(g, x, dim);
  return g.op1("final.pool", "reduce_sum", {x},
               {{"dims", std::string(over)}, {"factor", 1.0 / static_cast<double>(count)}});
}

TensorId convolution(GraphBuilder& g, const std::string& name, TensorId x, const Dim& in,
                     const Dim& out, const std::vector<std::string>& spatial, int64_t kernel,
                     int64_t stride) {
  double fan_out = static_cast<double>(out.size);
  std::vector<Dim> weight = {out, in};
  for (const std::string& dim : spatial) {
    weight.push_back({"kernel_" + dim, kernel});
    fan_out *= static_cast<double>(kernel);
  }
  const TensorId w =
      g.parameter(name + ".weight", weight, normal(std::sqrt(2 / fan_out)), g.tensor(x).dtype);
  return g.op1(name, "conv", {x, w},
               {{"stride", fmt::format("{}", stride)}, {"padding", fmt::format("{}", kernel / 2)}});
}

TensorId batch_norm(GraphBuilder& g, const std::string& name, TensorId x, const Dim& channels,
                    std::string_view over, double eps) {
  const DType dtype = g.tensor(x).dtype;
  const TensorId gamma = g.parameter(name + ".weight", {channels}, {Init::Kind::kOnes}, dtype);
  const TensorId beta = g.parameter(name + ".bias", {channels}, {Init::Kind::kZeros}, dtype);
  const std::vector<TensorId> out =
      g.op(name, "batch_norm", {x, gamma, beta}, {{"dims", std::string(over)}, {"eps", eps}});
  return out.empty() ? TensorId() : out[0];
}

TensorId cross_entropy_sum(GraphBuilder& g, std::string_view scope, TensorId logits,
                           TensorId targets, int64_t positions) {
  if (!g.ok()) return {};
  const std::vector<Dim> dims = g.tensor(targets).dims;
  const std::vector<TensorId> parts =
      g.op(child(scope, "cross_entropy"), "cross_entropy", {logits, targets});
  if (parts.size() != 2) return {};
  const TensorId token = g.op1(child(scope, "token"), "sub", parts);
  return g.op1(child(scope, "mean"), "reduce_sum", {token},
               {{"dims", dim_names(dims)}, {"factor", 1.0 / static_cast<double>(positions)}});
}

void cross_entropy_loss(GraphBuilder& g, TensorId logits, TensorId targets) {
  g.graph().loss = cross_entropy_sum(g, "loss", logits, targets, g.tensor(targets).elements());
}

namespace {

TensorId mean_of_all(GraphBuilder& g, const std::string& path, TensorId x) {
  const Tensor& tensor = g.tensor(x);
  return g.op1(
      path, "reduce_sum", {x},
      {{"dims", dim_names(tensor.dims)}, {"factor", 1.0 / static_cast<double>(tensor.elements())}});
}

}  // namespace

TensorId mean_square_error(GraphBuilder& g, std::string_view scope, TensorId y, TensorId target) {
  const TensorId difference = g.op1(child(scope, "difference"), "sub", {y, target});
  const TensorId square = g.op1(child(scope, "square"), "mul", {difference, difference});
  return mean_of_all(g, child(scope, "mean"), square);
}

TensorId binary_cross_entropy(GraphBuilder& g, std::string_view scope, TensorId logits,
                              TensorId targets) {
  const TensorId softplus = g.op1(child(scope, "softplus"), "softplus", {logits});
  const TensorId product = g.op1(child(scope, "product"), "mul", {logits, targets});
  const TensorId each = g.op1(child(scope, "each"), "sub", {softplus, product});
  return mean_of_all(g, child(scope, "mean"), each);
}

}  // namespace tessera
