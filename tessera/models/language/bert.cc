#include "tessera/models/language/bert.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

TensorId bert_block(GraphBuilder& g, TensorId x, const BertConfig& config, int64_t layer) {
  AttentionOptions heads;
  heads.heads = config.heads;
  heads.head_dim = config.hidden / config.heads;
  heads.causal = false;
  heads.in = heads.out = {normal(kDeviation)};
  g.push(fmt::format("blocks.{}", layer));
  TensorId h = attention(g, "attn", x, heads);
  x = g.op1("attn.residual", "add", {x, h});
  x = layer_norm(g, "ln_1", x, config.eps);
  h = feed_forward(g, "mlp", x, {config.ffn, config.activation, heads.in, heads.out});
  x = g.op1("mlp.residual", "add", {x, h});
  x = layer_norm(g, "ln_2", x, config.eps);
  g.pop();
  return x;
}

}  // namespace

std::vector<ModelKey> model_keys(BertConfig& config) {
  return {
      {"layers", &config.layers, "number of blocks"},
      {"hidden", &config.hidden, "width; a multiple of heads"},
      {"heads", &config.heads, "attention heads"},
      {"seq", &config.seq, "tokens of a sequence; the number of positions"},
      {"vocab", &config.vocab, "tokens of the vocabulary"},
      {"ffn", &config.ffn, "width of the MLP", "4 * hidden"},
      {"types", &config.types, "token types (segments)"},
      {"masked", &config.masked, "masked tokens of a sequence", "15 % of seq"},
      {"mask", &config.mask, "the token that stands for masked ones", "vocab - 1", {}, 0},
      {"eps", &config.eps, "epsilon of the layer norms"},
      {"activation",
       &config.activation,
       "of the MLP and of the head",
       {},
       {"gelu", "gelu_erf", "relu", "silu"}},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(BertConfig& config) {
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  if (config.masked == 0) config.masked = std::max<int64_t>((config.seq * 15 + 50) / 100, 1);
  if (config.hidden % config.heads != 0) {
    return model_error("bert", fmt::format("hidden={} must be a multiple of heads={}",
                                           config.hidden, config.heads));
  }
  if (config.masked > config.seq) {
    return model_error("bert",
                       fmt::format("masked={} must be at most seq={}", config.masked, config.seq));
  }
  if (config.vocab < 2) return model_error("bert", "vocab=1 must be at least 2: one is the mask");
  if (config.mask < 0) config.mask = config.vocab - 1;
  if (config.mask >= config.vocab) {
    return model_error("bert",
                       fmt::format("mask={} must be below vocab={}", config.mask, config.vocab));
  }
  return {};
}

Result<Graph> build_bert(const BertConfig& config, int64_t batch) {
  const Dim seq = {"seq", config.seq};
  const Dim hidden = {"hidden", config.hidden};
  const Dim vocab = {"vocab", config.vocab};
  const Init init = normal(kDeviation);
  GraphBuilder g("bert");
  const auto ids = [&](const char* name) {
    return g.input(name, {{"batch", batch}, seq}, DType::kInt64);
  };
  const TensorId tokens = ids("tokens"), segments = ids("segments"), targets = ids("targets");
  const TensorId table = g.parameter("embed.token.weight", {vocab, hidden}, init, config.dtype);
  const TensorId position = g.parameter("embed.position.weight", {seq, hidden}, init, config.dtype);
  const TensorId types =
      g.parameter("embed.type.weight", {{"types", config.types}, hidden}, init, config.dtype);
  TensorId x = g.op1("embed.token", "embedding", {tokens, table});
  x = g.op1("embed.add", "add", {x, position});
  x = g.op1("embed.add_type", "add", {x, g.op1("embed.type", "embedding", {segments, types})});
  x = layer_norm(g, "embed.ln", x, config.eps);
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer)
    x = bert_block(g, x, config, layer);
  x = linear(g, "final.linear", x, {"hidden"}, {{"features", config.hidden}}, {init});
  x = g.op1("final.act", config.activation, {x});
  x = g.op1("final.rename", "rename", {x},
            {{"from", std::string("features")}, {"to", std::string("hidden")}});
  x = layer_norm(g, "final.ln", x, config.eps);
  const TensorId bias = g.parameter("head.bias", {vocab}, {Init::Kind::kZeros}, config.dtype);
  const TensorId logits =
      g.op1("head", "einsum", {x, table, bias},
            {{"spec", std::string("batch seq hidden+, vocab hidden, vocab -> batch seq vocab")}});
  g.graph().loss = cross_entropy_sum(g, "loss", logits, targets, batch * config.masked);
  return g.finish();
}

}  // namespace tessera
