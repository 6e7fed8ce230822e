#include "tessera/models/science/evoformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

const LinearOptions kWeights = {normal(kDeviation)};
const LinearOptions kNoBias = {normal(kDeviation), /*bias=*/false};

struct State {
  TensorId msa;   // [batch, s, r, hidden]
  TensorId pair;  // [batch, r, r2, pair]
};

TensorId einsum(GraphBuilder& g, std::string_view name, TensorId a, TensorId b,
                std::string_view spec) {
  return g.op1(name, "einsum", {a, b}, {{"spec", std::string(spec)}});
}

// The dims that one attention reads: those of the queries and the keys (einsum matches the dims of
// inputs by position), those of the scores, the dim over which the scores are normalised, and those
// of the bias.
struct AttentionDims {
  std::string query, key, scores, over;
  // Dims of the pair map and of the bias made from it; empty: no bias.
  std::string bias_from, bias_to;
};

// Makes gated attention over x. The scores are q k / sqrt(d) + bias, where the bias is a linear
// function of `pair`.
TensorId gated_attention(GraphBuilder& g, TensorId x, TensorId pair, const AttentionDims& dims,
                         int64_t heads, double eps) {
  if (!g.ok()) return {};
  const Dim features = g.tensor(x).dims.back();
  const std::vector<Dim> split = {{"heads", heads}, {"head_dim", features.size / heads}};
  const std::vector<std::string> in = {features.name};
  const TensorId h = layer_norm(g, "ln", x, eps);
  TensorId q = linear(g, "q", h, in, split, kNoBias);
  const TensorId k = linear(g, "k", h, in, split, kNoBias);
  const TensorId v = linear(g, "v", h, in, split, kNoBias);
  const int64_t head_dim = features.size / heads;
  q = g.op1("scale", "scale", {q}, {{"factor", 1.0 / std::sqrt(static_cast<double>(head_dim))}});
  TensorId scores = einsum(g, "scores", q, k,
                           fmt::format("{} heads head_dim+, {} heads head_dim -> {}", dims.query,
                                       dims.key, dims.scores));
  if (!dims.bias_to.empty() && g.ok()) {
    // In triangle attention `pair` is the tensor x itself, whose norm is already computed.
    const TensorId map = pair == x ? h : layer_norm(g, "bias_ln", pair, eps);
    const Dim width = g.tensor(map).dims.back();
    const TensorId weight = g.parameter("bias.weight", {width, {"heads", heads}},
                                        normal(kDeviation), g.tensor(map).dtype);
    g.publish(weight, "heads " + width.name);
    const TensorId bias =
        einsum(g, "bias", map, weight,
               fmt::format("{0} {1}+, {1} heads -> {2}", dims.bias_from, width.name, dims.bias_to));
    scores = g.op1("biased", "add", {scores, bias});
  }
  const TensorId weights = g.op1("softmax", "softmax", {scores}, {{"dim", dims.over}});
  const TensorId core = einsum(
      g, "core", weights, v,
      fmt::format("{}, {} heads head_dim -> {} heads head_dim", dims.scores, dims.key, dims.query));
  const TensorId gate = g.op1("gate_act", "sigmoid", {linear(g, "gate", h, in, split, kWeights)});
  const TensorId gated = g.op1("gated", "mul", {core, gate});
  const TensorId y = linear(g, "out", gated, {"heads", "head_dim"}, {features}, kWeights);
  return g.op1("residual", "add", {x, y});
}

// Adds to x the result of a norm, a linear layer, an activation and a linear layer.
TensorId transition(GraphBuilder& g, std::string_view scope, TensorId x, int64_t ffn,
                    const EvoformerConfig& config) {
  g.push(scope);
  const TensorId h = layer_norm(g, "ln", x, config.eps);
  g.pop();
  const TensorId y = feed_forward(g, scope, h, {ffn, config.activation, kWeights, kWeights});
  return g.op1(std::string(scope) + ".residual", "add", {x, y});
}

// Adds to the pair map a linear layer of the mean, over s, of the outer product of a[s, r] and
// b[s, r2].
TensorId outer_product_mean(GraphBuilder& g, const State& state, const EvoformerConfig& config) {
  const TensorId h = layer_norm(g, "ln", state.msa, config.eps);
  const TensorId a = linear(g, "a", h, {"hidden"}, {{"outer", config.outer}}, kWeights);
  const TensorId b = linear(g, "b", h, {"hidden"}, {{"outer2", config.outer}}, kWeights);
  TensorId product =
      einsum(g, "product", a, b, "batch s+ r outer, batch s r2 outer2 -> batch r r2 outer outer2");
  product =
      g.op1("mean", "scale", {product}, {{"factor", 1.0 / static_cast<double>(config.sequences)}});
  const TensorId y =
      linear(g, "out", product, {"outer", "outer2"}, {{"pair", config.pair}}, kWeights);
  return g.op1("residual", "add", {state.pair, y});
}

// Makes z[r, r2], for each channel by itself: the sum over k of a[r, k] b[r2, k] if outgoing, or of
// a[k, r] b[k, r2] if incoming.
TensorId triangle_multiplication(GraphBuilder& g, TensorId pair, bool outgoing, double eps) {
  if (!g.ok()) return {};
  const Dim width = g.tensor(pair).dims.back();
  const Dim triangle = {"triangle", width.size};
  const TensorId h = layer_norm(g, "ln", pair, eps);
  const auto gated = [&](const std::string& name, const Dim& out) {
    const TensorId value = linear(g, name, h, {"pair"}, {out}, kWeights);
    const TensorId gate = g.op1(name + "_gate_act", "sigmoid",
                                {linear(g, name + "_gate", h, {"pair"}, {out}, kWeights)});
    return g.op1(name + "_gated", "mul", {value, gate});
  };
  const TensorId a = gated("a", triangle), b = gated("b", triangle);
  TensorId product =
      einsum(g, "product", a, b,
             outgoing ? "batch r r3+ triangle, batch r2 r3 triangle -> batch r r2 triangle"
                      : "batch r3+ r triangle, batch r3 r2 triangle -> batch r r2 triangle");
  product = layer_norm(g, "product_ln", product, eps);
  TensorId y = linear(g, "out", product, {"triangle"}, {width}, kWeights);
  const TensorId gate = linear(g, "gate", h, {"pair"}, {triangle}, kWeights);
  const TensorId act = g.op1("gate_act", "sigmoid", {gate});
  y = g.op1("gated", "mul",
            {y, g.op1("gate_rename", "rename", {act},
                      {{"from", std::string("triangle")}, {"to", std::string("pair")}})});
  return g.op1("residual", "add", {pair, y});
}

template <class F>
TensorId within(GraphBuilder& g, std::string_view scope, F&& f) {
  g.push(scope);
  const TensorId y = f();
  g.pop();
  return y;
}

State evoformer_block(GraphBuilder& g, State x, const EvoformerConfig& config, int64_t layer) {
  const double eps = config.eps;
  const auto attend = [&](std::string_view scope, TensorId tensor, const AttentionDims& dims,
                          int64_t heads) {
    return within(g, scope, [&] { return gated_attention(g, tensor, x.pair, dims, heads, eps); });
  };
  g.push(fmt::format("blocks.{}", layer));
  x.msa = attend(
      "attn.row", x.msa,
      {"batch s r", "batch s r2", "batch s heads r r2", "r2", "batch r r2", "batch heads r r2"},
      config.heads);
  x.msa = attend("attn.column", x.msa,
                 {"batch s r", "batch s2 r", "batch heads r s s2", "s2", "", ""}, config.heads);
  x.msa = transition(g, "mlp.msa", x.msa, config.ffn, config);
  x.pair = within(g, "outer", [&] { return outer_product_mean(g, x, config); });
  for (const bool outgoing : {true, false}) {
    x.pair = within(g, outgoing ? "triangle.outgoing" : "triangle.incoming",
                    [&] { return triangle_multiplication(g, x.pair, outgoing, eps); });
  }
  x.pair = attend(
      "attn.start", x.pair,
      {"batch r r2", "batch r r3", "batch r heads r2 r3", "r3", "batch r2 r3", "batch heads r2 r3"},
      config.pair_heads);
  x.pair = attend(
      "attn.end", x.pair,
      {"batch r r2", "batch r3 r2", "batch r2 heads r r3", "r3", "batch r3 r", "batch heads r r3"},
      config.pair_heads);
  x.pair = transition(g, "mlp.pair", x.pair,
                      std::max<int64_t>(config.ffn * config.pair / config.hidden, 1), config);
  g.pop();
  return x;
}

// Makes the embeddings msa = token + position, and pair[r, r2] = left[r] + right[r2] +
// position[r, r2].
State embed(GraphBuilder& g, const EvoformerConfig& config, int64_t batch, TensorId tokens,
            TensorId sequence) {
  const Dim r = {"r", config.residues}, r2 = {"r2", config.residues};
  const Dim hidden = {"hidden", config.hidden}, pair = {"pair", config.pair};
  const auto table = [&](const char* name, std::vector<Dim> dims) {
    return g.parameter(name, std::move(dims), normal(kDeviation), config.dtype);
  };
  const Dim vocab = {"vocab", config.vocab};
  TensorId msa =
      g.op1("embed.token", "embedding", {tokens, table("embed.token.weight", {vocab, hidden})});
  msa = g.op1("embed.add", "add", {msa, table("embed.position.weight", {r, hidden})});
  TensorId left =
      g.op1("embed.left", "embedding", {sequence, table("embed.left.weight", {vocab, pair})});
  left = g.op1(
      "embed.left_rows", "broadcast_to", {left},
      {{"dims", fmt::format("batch={} r={} r2={} pair={}", batch, r.size, r2.size, pair.size)}});
  TensorId right =
      g.op1("embed.right", "embedding", {sequence, table("embed.right.weight", {vocab, pair})});
  right = g.op1("embed.right_columns", "rename", {right},
                {{"from", std::string("r")}, {"to", std::string("r2")}});
  TensorId map = g.op1("embed.outer_sum", "add", {left, right});
  map = g.op1("embed.pair_add", "add", {map, table("embed.pair_position.weight", {r, r2, pair})});
  return {msa, map};
}

// Adds the normalised state of the previous pass to the embeddings.
State recycle(GraphBuilder& g, const State& embedded, const State& before, double eps) {
  const auto add = [&](const std::string& name, TensorId x, TensorId previous) {
    const TensorId h = layer_norm(g, name + "_ln", previous, eps);
    return g.op1(name + "_add", "add", {x, h});
  };
  g.push("recycle");
  const State x = {add("msa", embedded.msa, before.msa), add("pair", embedded.pair, before.pair)};
  g.pop();
  return x;
}

State run_passes(GraphBuilder& g, const State& embedded, const EvoformerConfig& config) {
  State x = embedded;
  for (int64_t pass = 0; pass <= config.recycles && g.ok(); ++pass) {
    const bool training = pass == config.recycles;
    g.push_shared(training ? "" : fmt::format("pass.{}", pass));
    if (pass > 0) x = recycle(g, embedded, x, config.eps);
    for (int64_t i = 0; i < config.layers && g.ok(); ++i) x = evoformer_block(g, x, config, i);
    if (!training) {
      x.msa = g.op1("stop.msa", "stop_gradient", {x.msa});
      x.pair = g.op1("stop.pair", "stop_gradient", {x.pair});
    }
    g.pop();
  }
  return x;
}

}  // namespace

std::vector<ModelKey> model_keys(EvoformerConfig& config) {
  return {
      {"layers", &config.layers, "number of blocks"},
      {"sequences", &config.sequences, "sequences of the alignment (dim s)"},
      {"residues", &config.residues, "residues (dims r, r2)"},
      {"vocab", &config.vocab, "tokens of the alignment; the last one is the mask"},
      {"bins", &config.bins, "classes of distances"},
      {"hidden", &config.hidden, "width of the alignment; a multiple of heads"},
      {"pair", &config.pair, "width of the pair map; a multiple of pair_heads"},
      {"heads", &config.heads, "heads of row and column attention"},
      {"pair_heads", &config.pair_heads, "heads of triangle attention"},
      {"outer", &config.outer, "width of the factors of the outer product"},
      {"ffn", &config.ffn, "width of the transition; the pair's in proportion", "4 * hidden"},
      {"activation",
       &config.activation,
       "of the transitions",
       {},
       {"gelu", "gelu_erf", "relu", "silu"}},
      {"masked", &config.masked, "masked tokens of an alignment", "15 %"},
      {"recycles", &config.recycles, "passes without gradient before the training pass", {}, {}, 0},
      {"eps", &config.eps, "epsilon of the layer norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(EvoformerConfig& config) {
  const int64_t positions = config.sequences * config.residues;
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  if (config.masked == 0) config.masked = std::max<int64_t>((positions * 15 + 50) / 100, 1);
  const auto multiple = [](std::string_view whole, int64_t value, std::string_view part,
                           int64_t divisor) -> Status {
    if (value % divisor == 0) return {};
    return model_error(
        "evoformer", fmt::format("{}={} must be a multiple of {}={}", whole, value, part, divisor));
  };
  TESSERA_TRY_VOID(multiple("hidden", config.hidden, "heads", config.heads));
  TESSERA_TRY_VOID(multiple("pair", config.pair, "pair_heads", config.pair_heads));
  if (config.masked > positions) {
    return model_error("evoformer", fmt::format("masked={} must be at most sequences * residues={}",
                                                config.masked, positions));
  }
  constexpr int64_t kMaxPasses = 1000;
  if (config.recycles > kMaxPasses) {
    return model_error("evoformer",
                       fmt::format("recycles={} must be at most {}", config.recycles, kMaxPasses));
  }
  if (config.vocab < 2) {
    return model_error("evoformer", "vocab=1 must be at least 2: one is the mask");
  }
  return {};
}

Result<Graph> build_evoformer(const EvoformerConfig& config, int64_t batch) {
  const Dim rows = {"batch", batch}, s = {"s", config.sequences}, r = {"r", config.residues},
            r2 = {"r2", config.residues};
  GraphBuilder g("evoformer");
  const TensorId tokens = g.input("tokens", {rows, s, r}, DType::kInt64);
  const TensorId sequence = g.input("sequence", {rows, r}, DType::kInt64);
  const TensorId targets = g.input("targets", {rows, s, r}, DType::kInt64);
  const TensorId distances = g.input("distances", {rows, r, r2}, DType::kInt64);
  State x = run_passes(g, embed(g, config, batch, tokens, sequence), config);
  x.msa = layer_norm(g, "final.msa_ln", x.msa, config.eps);
  x.pair = layer_norm(g, "final.pair_ln", x.pair, config.eps);
  const TensorId msa = linear(g, "head", x.msa, {"hidden"}, {{"vocab", config.vocab}}, kWeights);
  const TensorId map =
      linear(g, "head.distance", x.pair, {"pair"}, {{"bins", config.bins}}, kWeights);
  const TensorId msa_loss = cross_entropy_sum(g, "loss", msa, targets, batch * config.masked);
  const TensorId pair_loss = cross_entropy_sum(g, "loss.distance", map, distances,
                                               batch * config.residues * config.residues);
  g.graph().loss = g.op1("loss.sum", "add", {msa_loss, pair_loss});
  return g.finish();
}

}  // namespace tessera
