#include "tessera/models/llama.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/models/nn.h"

namespace tessera {
namespace {

TensorId llama_block(GraphBuilder& g, TensorId x, const LlamaConfig& config,
                     const AttentionOptions& heads, const FeedForward& feed_forward,
                     int64_t layer) {
  g.push(fmt::format("blocks.{}", layer));
  const bool before = config.norms != "after", after = config.norms != "before";
  TensorId h = before ? rms_norm(g, "ln_1", x, config.eps) : x;
  AttentionOptions options = heads;
  if (config.full_every > 0 && (layer + 1) % config.full_every == 0) options.window = 0;
  h = attention(g, "attn", h, options);
  if (after) h = rms_norm(g, "ln_1_after", h, config.eps);
  x = g.op1("attn.residual", "add", {x, h});
  h = before ? rms_norm(g, "ln_2", x, config.eps) : x;
  FeedForwardOptions products = {heads.in,     heads.out, config.activation,
                                 config.gated, after,     config.eps};
  products.in.bias = products.out.bias = false;
  if (!config.lora_mlp) products.in.lora = products.out.lora = 0;
  x = feed_forward(g, x, h, products);
  g.pop();
  return x;
}

}  // namespace

std::vector<ModelKey> model_keys(LlamaConfig& config) {
  return {
      {"layers", &config.layers, "number of blocks"},
      {"hidden", &config.hidden, "width; a multiple of heads unless head_dim is given"},
      {"heads", &config.heads, "query heads; a multiple of kv_heads"},
      {"kv_heads", &config.kv_heads, "key and value heads", "heads"},
      {"head_dim", &config.head_dim, "width of a head; even", "hidden / heads"},
      {"seq", &config.seq, "tokens of a sequence"},
      {"vocab", &config.vocab, "tokens of the vocabulary"},
      {"ffn", &config.ffn, "width of the MLP (llama 3 8B: 14336)", "8/3 hidden, up to 256s"},
      {"q_rank",
       &config.q_rank,
       "numbers that queries are made from (latent attention); 0: none",
       {},
       {},
       0},
      {"kv_rank", &config.kv_rank, "the same of keys and values", {}, {}, 0},
      {"lora",
       &config.lora,
       "rank of trained factors beside attention's products (LoRA), all else is left as it is; 0: "
       "everything is trained",
       {},
       {},
       0},
      {"lora_mlp", &config.lora_mlp, "1: factors beside the MLP's products too"},
      {"qkv_bias", &config.qkv_bias, "1: queries, keys and values have biases (Qwen 2)"},
      {"out_bias", &config.out_bias, "1: attention's last product has a bias"},
      {"qk_norm", &config.qk_norm, "1: RMS norms of each head's queries and keys (Qwen 3)"},
      window_key(config.window),
      {"full_every",
       &config.full_every,
       "every so many blocks one attends to all tokens, the others have the window (Gemma 3: 6); "
       "0: all have it",
       {},
       {},
       0},
      {"norms",
       &config.norms,
       "where a block has norms: on what enters attention and MLP, or on what leaves them",
       {},
       {"before", "after", "both"}},
      {"activation",
       &config.activation,
       "of the MLP",
       {},
       {"silu", "gelu", "gelu_erf", "relu", "relu2"}},
      {"gated", &config.gated, "1: the activation is multiplied by a second product (SwiGLU)"},
      eod_key(config.eod),
      {"theta", &config.theta, "base of the rotary positions"},
      {"rope_scaling", &config.rope_scaling,
       "of rotary frequencies; 1: none; 8: all are divided by 8; 8-1-4-8192 (factor, low, high, "
       "positions): those of long waves (Llama 3.1)"},
      {"tied", &config.tied, "1: the head uses the token embedding"},
      {"eps", &config.eps, "epsilon of the RMS norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(LlamaConfig& config, std::string_view family) {
  const auto mismatch = [family](std::string_view whole, int64_t value, std::string_view part,
                                 int64_t divisor) {
    return model_error(
        family, fmt::format("{}={} must be a multiple of {}={}", whole, value, part, divisor));
  };
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.ffn == 0) config.ffn = (config.hidden * 8 / 3 + 255) / 256 * 256;
  if (config.heads % config.kv_heads != 0) {
    return mismatch("heads", config.heads, "kv_heads", config.kv_heads);
  }
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      return mismatch("hidden", config.hidden, "heads", config.heads);
    }
    config.head_dim = config.hidden / config.heads;
  }
  if (config.head_dim % 2 != 0) {
    return model_error(family,
                       fmt::format("head_dim={} must be even (rotary positions)", config.head_dim));
  }
  if (config.lora_mlp && config.lora == 0) {
    return model_error(family, "lora_mlp=1 wants a rank, as lora=16");
  }
  TESSERA_TRY_VOID(check_eod(family, config.eod, config.vocab));
  const std::vector<int64_t>& scaling = config.rope_scaling;
  if (scaling.size() != 1 && (scaling.size() != 4 || scaling[2] <= scaling[1])) {
    return model_error(family,
                       "rope_scaling must be a factor, or factor-low-high-positions with high "
                       "above low");
  }
  if (config.full_every > 0 && config.window == 0) {
    return model_error(family, "full_every wants a window for the other blocks, as window=1024");
  }
  if (config.theta <= 0) {
    return model_error(family, fmt::format("theta={} must be above 0", config.theta));
  }
  return {};
}

TensorId add_mlp(GraphBuilder& g, TensorId x, TensorId h, const FeedForwardOptions& options,
                 int64_t width) {
  h = feed_forward(g, "mlp", h,
                   {width, options.activation, options.in, options.out, options.gated});
  if (options.norm_after) h = rms_norm(g, kNormAfter, h, options.eps);
  return g.op1("mlp.residual", "add", {x, h});
}

void add_llama(GraphBuilder& g, const LlamaConfig& config, int64_t batch,
               const FeedForward& feed_forward, const std::function<void()>& before_blocks) {
  const Dim seq = {"seq", config.seq};
  const Dim hidden = {"hidden", config.hidden};
  const Dim vocab = {"vocab", config.vocab};
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  const TensorId tokens = g.input("tokens", {{"batch", batch}, seq}, DType::kInt64);
  const TensorId targets = g.input("targets", {{"batch", batch}, seq}, DType::kInt64);
  g.set_trains(config.lora == 0);
  AttentionOptions heads;
  heads.heads = config.kv_heads;
  heads.group = config.heads / config.kv_heads;
  heads.head_dim = config.head_dim;
  heads.in = {.weight = normal(kDeviation), .bias = config.qkv_bias, .lora = config.lora};
  heads.out = {.weight = normal(residual), .bias = config.out_bias, .lora = config.lora};
  heads.q_rank = config.q_rank;
  heads.kv_rank = config.kv_rank;
  heads.eps = config.eps;
  heads.head_norm = config.qk_norm;
  // 0 if the window has all positions
  heads.window = config.window < config.seq ? config.window : 0;
  heads.segments = document_numbers(g, config.eod, batch, config.seq);
  add_rotary_tables(g, heads, config.seq, config.theta, config.dtype, config.rope_scaling);
  const TensorId table =
      g.parameter("embed.token.weight", {vocab, hidden}, normal(kDeviation), config.dtype);
  TensorId x = g.op1("embed.token", "embedding", {tokens, table});
  before_blocks();
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer) {
    x = llama_block(g, x, config, heads, feed_forward, layer);
  }
  x = rms_norm(g, "final.ln", x, config.eps);
  cross_entropy_loss(g, output_head(g, x, table, config.tied, vocab, normal(kDeviation)), targets);
}

Result<Graph> build_llama(const LlamaConfig& config, int64_t batch) {
  GraphBuilder g("llama");
  add_llama(g, config, batch,
            [&](GraphBuilder& builder, TensorId x, TensorId h, const FeedForwardOptions& options) {
              return add_mlp(builder, x, h, options, config.ffn);
            });
  return g.finish();
}

}  // namespace tessera
