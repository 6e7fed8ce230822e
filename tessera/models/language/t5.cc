#include "tessera/models/language/t5.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

AttentionOptions heads_of(const T5Config& config) {
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  AttentionOptions heads;
  heads.heads = config.heads;
  heads.head_dim = config.head_dim;
  heads.in = {normal(kDeviation), /*bias=*/false};
  heads.out = {normal(residual), /*bias=*/false};
  heads.scale = config.scaled_scores ? 0 : 1;
  return heads;
}

// The relative positions of the encoder or the decoder: a table with a bias for each head and
// bucket of distances, which all blocks share, and the bucket of each pair of tokens.
struct Positions {
  TensorId table, buckets;
};

Positions positions(GraphBuilder& g, const std::string& stack, int64_t seq, bool both_sides,
                    const T5Config& config) {
  return {g.parameter(stack + ".relative.weight",
                      {{"buckets", config.buckets}, {"heads", config.heads}}, normal(kDeviation),
                      config.dtype),
          g.buffer(stack + ".buckets", {{"seq", seq}, {"kv", seq}},
                   {Init::Kind::kDistanceBuckets,
                    0,
                    {config.buckets, config.max_distance, int64_t{both_sides}}},
                   DType::kInt64)};
}

// Adds a decoder block if `memory` (the encoder's output) is valid, else an encoder block.
TensorId t5_block(GraphBuilder& g, TensorId x, const T5Config& config, const Positions& relative,
                  TensorId memory, int64_t index) {
  AttentionOptions heads = heads_of(config);
  heads.causal = memory.valid();
  g.push(fmt::format("blocks.{}", index));
  heads.bias = g.op1("attn.bias", "embedding", {relative.buckets, relative.table});
  TensorId h = rms_norm(g, "ln_1", x, config.eps);
  h = attention(g, "attn", h, heads);
  x = g.op1("attn.residual", "add", {x, h});
  if (memory.valid()) {
    heads.causal = false;
    heads.bias = {};
    heads.memory = memory;
    h = rms_norm(g, "ln_cross", x, config.eps);
    h = attention(g, "attn.cross", h, heads);
    x = g.op1("attn.cross.residual", "add", {x, h});
  }
  h = rms_norm(g, "ln_2", x, config.eps);
  h = feed_forward(g, "mlp", h, {config.ffn, config.activation, heads.in, heads.out, config.gated});
  x = g.op1("mlp.residual", "add", {x, h});
  g.pop();
  return x;
}

}  // namespace

std::vector<ModelKey> model_keys(T5Config& config) {
  return {
      {"layers", &config.layers, "blocks of the encoder, and of the decoder"},
      {"hidden", &config.hidden, "width"},
      {"heads", &config.heads, "attention heads"},
      {"head_dim", &config.head_dim, "width of a head", "hidden / heads"},
      {"source", &config.source, "tokens that the encoder reads"},
      {"seq", &config.seq, "tokens of the decoder"},
      {"vocab", &config.vocab, "tokens of the vocabulary"},
      {"ffn", &config.ffn, "width of the MLP", "4 * hidden"},
      {"buckets", &config.buckets, "buckets of distances between tokens; a multiple of 4"},
      {"max_distance", &config.max_distance, "distance from which on all share a bucket"},
      {"tied", &config.tied, "1: the head uses the token embedding"},
      {"gated", &config.gated, "1: the MLP has a gate (T5 1.1, Flan)"},
      {"activation", &config.activation, "of the MLP", {}, {"gelu", "gelu_erf", "relu", "silu"}},
      {"scaled_scores", &config.scaled_scores,
       "1: attention divides its scores by the root of head_dim; 0: as T5 is published"},
      {"scaled_head", &config.scaled_head,
       "1: the head's input is divided by the root of hidden, as T5 with tied=1 is published"},
      {"eps", &config.eps, "epsilon of the RMS norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(T5Config& config) {
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  // In the encoder, keys before and after a query have half of the buckets each. Half of these
  // buckets have one distance each. So the number of buckets must be a multiple of 4.
  if (config.buckets % 4 != 0) {
    return model_error("t5", fmt::format("buckets={} must be a multiple of 4", config.buckets));
  }
  if (config.max_distance <= config.buckets / 2) {
    return model_error("t5", fmt::format("max_distance={} must be above buckets / 2 = {}",
                                         config.max_distance, config.buckets / 2));
  }
  if (config.head_dim != 0) return {};
  if (config.hidden % config.heads != 0) {
    return model_error(
        "t5", fmt::format("hidden={} must be a multiple of heads={}", config.hidden, config.heads));
  }
  config.head_dim = config.hidden / config.heads;
  return {};
}

Result<Graph> build_t5(const T5Config& config, int64_t batch) {
  const Dim hidden = {"hidden", config.hidden};
  const Dim vocab = {"vocab", config.vocab};
  const Init init = normal(kDeviation);
  GraphBuilder g("t5");
  const auto ids = [&](const char* name, int64_t length) {
    return g.input(name, {{"batch", batch}, {"seq", length}}, DType::kInt64);
  };
  const TensorId source = ids("source", config.source), tokens = ids("tokens", config.seq),
                 targets = ids("targets", config.seq);
  const TensorId table = g.parameter("embed.token.weight", {vocab, hidden}, init, config.dtype);
  TensorId memory = g.op1("embed.source", "embedding", {source, table});
  TensorId x = g.op1("embed.token", "embedding", {tokens, table});
  const Positions of_source = positions(g, "encoder", config.source, true, config),
                  of_tokens = positions(g, "decoder", config.seq, false, config);
  for (int64_t i = 0; i < config.layers && g.ok(); ++i) {
    memory = t5_block(g, memory, config, of_source, {}, i);
  }
  memory = rms_norm(g, "encoder.ln", memory, config.eps);
  for (int64_t i = 0; i < config.layers && g.ok(); ++i) {
    x = t5_block(g, x, config, of_tokens, memory, config.layers + i);
  }
  x = rms_norm(g, "final.ln", x, config.eps);
  if (config.scaled_head) {
    x = g.op1("final.scale", "scale", {x},
              {{"factor", 1 / std::sqrt(static_cast<double>(config.hidden))}});
  }
  cross_entropy_loss(g, output_head(g, x, table, config.tied, vocab, init), targets);
  return g.finish();
}

}  // namespace tessera
