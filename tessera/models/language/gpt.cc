#include "tessera/models/language/gpt.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

TensorId gpt_block(GraphBuilder& g, TensorId x, const GptConfig& config, TensorId segments,
                   int64_t layer) {
  const std::string path = fmt::format("blocks.{}", layer);
  const auto layers = static_cast<double>(config.layers);
  const LinearOptions in = {.weight = normal(kDeviation), .input_first = true};
  const LinearOptions out = {.weight = normal(kDeviation / std::sqrt(2.0 * layers)),
                             .input_first = true};
  AttentionOptions heads;
  heads.heads = config.kv_heads;
  heads.group = config.heads / config.kv_heads;
  heads.causal = config.causal;
  heads.head_dim = config.hidden / config.heads;
  heads.in = in;
  heads.out = out;
  heads.window = config.window;
  heads.segments = segments;
  heads.dropout = config.attention_dropout;
  heads.dropout_key = path + ".weights";
  g.push(path);
  x = pre_norm_block(g, x, config.eps, heads, {config.ffn, config.activation, in, out},
                     {config.dropout, config.dropout, path});
  g.pop();
  return x;
}

}  // namespace

std::vector<ModelKey> model_keys(GptConfig& config) {
  return {
      {"layers", &config.layers, "number of blocks"},
      {"hidden", &config.hidden, "width; a multiple of heads"},
      {"heads", &config.heads, "query heads; a multiple of kv_heads"},
      {"kv_heads", &config.kv_heads, "key and value heads", "heads"},
      {"seq", &config.seq, "tokens of a sequence; the number of positions"},
      {"vocab", &config.vocab, "tokens of the vocabulary"},
      {"ffn", &config.ffn, "width of the MLP", "4 * hidden"},
      {"dropout", &config.dropout, "probability, below 1; on embedding and residual branches"},
      {"attention_dropout", &config.attention_dropout,
       "probability, below 1; on the weights of attention"},
      window_key(config.window),
      eod_key(config.eod),
      {"tied", &config.tied, "1: the head uses the token embedding"},
      {"eps", &config.eps, "epsilon of the layer norms"},
      {"causal", &config.causal, "1: a token attends to itself and to those before it; 0: to all"},
      {"activation", &config.activation, "of the MLP", {}, {"gelu", "gelu_erf", "relu", "silu"}},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(GptConfig& config) {
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  if (config.hidden % config.heads != 0) {
    return model_error("gpt", fmt::format("hidden={} must be a multiple of heads={}", config.hidden,
                                          config.heads));
  }
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.heads % config.kv_heads != 0) {
    return model_error("gpt", fmt::format("heads={} must be a multiple of kv_heads={}",
                                          config.heads, config.kv_heads));
  }
  if (config.dropout >= 1) {
    return model_error("gpt", fmt::format("dropout={} must be below 1", config.dropout));
  }
  if (config.attention_dropout >= 1) {
    return model_error(
        "gpt", fmt::format("attention_dropout={} must be below 1", config.attention_dropout));
  }
  TESSERA_TRY_VOID(check_eod("gpt", config.eod, config.vocab));
  return {};
}

Result<Graph> build_gpt(const GptConfig& config, int64_t batch) {
  const Dim seq = {"seq", config.seq};
  const Dim hidden = {"hidden", config.hidden};
  const Dim vocab = {"vocab", config.vocab};
  GraphBuilder g("gpt");
  const TensorId tokens = g.input("tokens", {{"batch", batch}, seq}, DType::kInt64);
  const TensorId targets = g.input("targets", {{"batch", batch}, seq}, DType::kInt64);
  const TensorId segments = document_numbers(g, config.eod, batch, config.seq);
  const TensorId table =
      g.parameter("embed.token.weight", {vocab, hidden}, normal(kDeviation), config.dtype);
  const TensorId position =
      g.parameter("embed.position.weight", {seq, hidden}, normal(kDeviation), config.dtype);
  TensorId x = g.op1("embed.token", "embedding", {tokens, table});
  x = g.op1("embed.add", "add", {x, position});
  x = dropout(g, "embed.dropout", x, config.dropout, "embed");
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer) {
    x = gpt_block(g, x, config, segments, layer);
  }
  x = layer_norm(g, "final.ln", x, config.eps);
  cross_entropy_loss(g, output_head(g, x, table, config.tied, vocab, normal(kDeviation)), targets);
  return g.finish();
}

}  // namespace tessera
