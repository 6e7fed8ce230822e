#include "tessera/models/language/llama.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/text.h"
#include "tessera/models/language/delta_net.h"
#include "tessera/models/language/further_tokens.h"
#include "tessera/models/nn.h"

namespace tessera {
namespace {

// Returns whether block `layer`, counted from 0, is one of those that `every` names.
bool is_every(int64_t every, int64_t layer) { return every > 0 && (layer + 1) % every == 0; }

// Returns how many elements of a head positions turn.
int64_t turned_elements(const LlamaConfig& config) {
  if (config.rotary_dim > 0) return config.rotary_dim;
  return config.rope_dim > 0 ? config.rope_dim : config.head_dim;
}

// Returns the numbers that `text` joins by '-', or none if one is not a number that a rotary table can
// have.
std::vector<double> factors_in(const std::string& text) {
  constexpr double kSmallest = 1e-3, kLargest = 9e3;
  std::vector<double> factors;
  for (const std::string& each : split_text(text, '-')) {
    const auto factor = parse_double(each);
    if (!factor || !(*factor >= kSmallest && *factor <= kLargest)) return {};
    factors.push_back(*factor);
  }
  return factors;
}

// Returns the scaling of rotary tables that rope_factors says for sequences of config.seq tokens.
Result<std::vector<int64_t>> scaling_of(const LlamaConfig& config, std::string_view family) {
  if (config.rope_factors == "1") return config.rope_scaling;
  const std::vector<std::string> parts = split_text(config.rope_factors, '/');
  const auto pairs = static_cast<size_t>(turned_elements(config) / 2);
  if (parts.size() == 4) {
    const auto positions = parse_int(parts[0]);
    const std::vector<double> amplitude = factors_in(parts[1]), few = factors_in(parts[2]),
                              many = factors_in(parts[3]);
    if (positions && *positions >= 1 && amplitude.size() == 1 && few.size() == pairs &&
        many.size() == pairs && config.rope_scaling == std::vector<int64_t>{1}) {
      return rotary_factors(amplitude[0], config.seq > *positions ? many : few);
    }
  }
  return model_error(
      family,
      fmt::format("rope_factors must be positions/amplitude/short/long, where short and long are "
                  "{} numbers from 0.001 to 9000 joined by '-', and goes without rope_scaling",
                  pairs));
}

// The first halves of blocks: attention to all tokens, attention in a window, and what blocks may have
// in place of the latter. `rise` is the table that multiplies the queries of blocks without positions.
struct Mixers {
  AttentionOptions heads, windowed;
  DeltaNetOptions delta;
  TensorId rise;
};

// Adds block `layer`, counted from 0, in the scope that is open.
TensorId llama_block(GraphBuilder& g, TensorId x, const LlamaConfig& config, const Mixers& mixers,
                     const FeedForward& feed_forward, int64_t layer) {
  const bool before = config.norms != "after", after = config.norms != "before";
  const auto norm = [&](const char* name, TensorId of) {
    return rms_norm(g, name, of, config.eps, config.norms_shifted);
  };
  TensorId h = before ? norm("ln_1", x) : x;
  const bool full = is_every(config.full_every, layer), delta = config.delta_heads > 0 && !full;
  AttentionOptions options = full ? mixers.heads : mixers.windowed;
  if (is_every(config.unturned_every, layer)) {
    options.rotary_cos = options.rotary_sin = {};
    options.query_scale = mixers.rise;
    if (config.qk_norm_over == "turned") options.head_norm = false;
  }
  h = delta ? gated_delta_net(g, h, mixers.delta) : attention(g, "attn", h, options);
  if (after) h = norm("ln_1_after", h);
  x = g.op1(delta ? "ssm.residual" : "attn.residual", "add", {x, h});
  h = before ? norm("ln_2", x) : x;
  FeedForwardOptions products = {options.in, options.out, config.activation,   config.gated,
                                 after,      config.eps,  config.norms_shifted};
  products.in.bias = products.out.bias = false;
  if (!config.lora_mlp) products.in.lora = products.out.lora = 0;
  return feed_forward(g, x, h, products);
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
      {"rope_dim",
       &config.rope_dim,
       "of latent attention: elements of a head that carry positions, whose keys all heads share "
       "(DeepSeek-V3: 64); 0: whole heads come from the ranks",
       {},
       {},
       0},
      {"value_dim", &config.value_dim, "width of a head of the values; 0: head_dim", {}, {}, 0},
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
      {"qk_norm", &config.qk_norm, "1: RMS norms of queries and keys (Qwen 3)"},
      {"qk_norm_over",
       &config.qk_norm_over,
       "whether these norms are of each head, of all heads of a token (OLMo 2), or of each head "
       "without weights in blocks with positions (Llama 4)",
       {},
       {"head", "all", "turned"}},
      {"sinks", &config.sinks, "1: each query head has one more score, without a value (gpt-oss)"},
      {"attn_gate", &config.attn_gate,
       "1: what heads give is multiplied by the sigmoid of a further product (Qwen 3 Next)"},
      window_key(config.window),
      {"chunk",
       &config.chunk,
       "tokens of a chunk, which attend to each other alone (Llama 4: 8192); 0: all tokens",
       {},
       {},
       0},
      {"full_every",
       &config.full_every,
       "every so many blocks one attends to all tokens, the others have the window, the chunks or "
       "DeltaNets (Gemma 3: 6); 0: all have them",
       {},
       {},
       0},
      {"delta_heads",
       &config.delta_heads,
       "key heads of a gated DeltaNet, which blocks have in place of attention (Qwen 3 Next: 16); "
       "0: none has",
       {},
       {},
       0},
      {"delta_value_heads",
       &config.delta_value_heads,
       "its heads of values; 0: delta_heads",
       {},
       {},
       0},
      {"delta_head_dim", &config.delta_head_dim, "width of its keys"},
      {"delta_value_dim", &config.delta_value_dim, "width of its values"},
      {"delta_conv", &config.delta_conv, "tokens that its convolutions see"},
      {"norms",
       &config.norms,
       "where a block has norms: on what enters attention and MLP, or on what leaves them",
       {},
       {"before", "after", "both"}},
      {"norms_shifted", &config.norms_shifted, "1: weights of norms are added to one (Gemma)"},
      {"embed_scale", &config.embed_scale, "factor of the token embedding"},
      {"score_scale", &config.score_scale, "factor of attention's scores; 0: 1 / sqrt(head_dim)"},
      {"score_cap", &config.score_cap, "soft cap of attention's scores (Gemma 2: 50); 0: none"},
      {"logit_cap", &config.logit_cap, "soft cap of the logits (Gemma 2: 30); 0: none"},
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
       "positions): those of long waves (Llama 3.1); 40-4096-32-1-1 (factor, positions, fast, "
       "slow, "
       "whole): YaRN"},
      {"rope_factors", &config.rope_factors,
       "a factor for each rotary frequency, as 4096/1.19/1-1.1/1.5-2.1 (LongRoPE): "
       "positions/amplitude/short/long; 1: none"},
      {"rotary_dim",
       &config.rotary_dim,
       "elements of a head that positions turn, the first ones; 0: all",
       {},
       {},
       0},
      {"rotary_pairs",
       &config.rotary_pairs,
       "which elements of a head are turned together: i and i + half, or 2 i and 2 i + 1",
       {},
       {"halves", "neighbours"}},
      {"window_theta", &config.window_theta,
       "base of the positions of blocks with a window, which are not scaled; 0: as the others"},
      {"unturned_every",
       &config.unturned_every,
       "every so many blocks one has no rotary positions (SmolLM 3: 4); 0: all have them",
       {},
       {},
       0},
      {"scores_rise_at",
       &config.scores_rise_at,
       "positions after which scores of these blocks grow (Llama 4: 8192): the query at p has the "
       "factor 1 + scores_rise ln(1 + floor((p + 1) / scores_rise_at)); 0: none",
       {},
       {},
       0},
      {"scores_rise", &config.scores_rise, "how fast they grow"},
      {"mtp",
       &config.mtp,
       "tokens further ahead that are predicted too, by a block each (DeepSeek-V3: 1); 0: none",
       {},
       {},
       0},
      {"mtp_loss", &config.mtp_loss, "weight of the mean of their losses"},
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
  // Without rope_dim whole heads are turned, or pairs of them.
  if (config.rope_dim == 0 && config.head_dim % 2 != 0) {
    return model_error(family,
                       fmt::format("head_dim={} must be even (rotary positions)", config.head_dim));
  }
  if (config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim) {
    return model_error(family, fmt::format("rotary_dim={} must be even and at most head_dim={}",
                                           config.rotary_dim, config.head_dim));
  }
  if (config.rope_dim > 0 && (config.kv_rank == 0 || config.rope_dim % 2 != 0 ||
                              config.rope_dim >= config.head_dim || config.rotary_dim > 0)) {
    return model_error(
        family, fmt::format("rope_dim={} wants latent attention (kv_rank), must be even and below "
                            "head_dim={}, and goes without rotary_dim",
                            config.rope_dim, config.head_dim));
  }
  if (config.qk_norm_over != "head" && (!config.qk_norm || config.norms_shifted)) {
    return model_error(family, fmt::format("qk_norm_over={} wants qk_norm=1 and norms_shifted=0",
                                           config.qk_norm_over));
  }
  for (const auto& [key, value] : {std::pair{"score_scale", config.score_scale},
                                   {"score_cap", config.score_cap},
                                   {"logit_cap", config.logit_cap},
                                   {"window_theta", config.window_theta}}) {
    if (!(value >= 0))
      return model_error(family, fmt::format("{}={} must be at least 0", key, value));
  }
  if (config.lora_mlp && config.lora == 0) {
    return model_error(family, "lora_mlp=1 wants a rank, as lora=16");
  }
  TESSERA_TRY_VOID(check_eod(family, config.eod, config.vocab));
  const std::vector<int64_t>& scaling = config.rope_scaling;
  const bool yarn = scaling.size() == 5 && scaling[2] > scaling[3] && scaling[4] <= 2;
  if (scaling.size() != 1 && !yarn && (scaling.size() != 4 || scaling[2] < scaling[1])) {
    return model_error(family,
                       "rope_scaling must be a factor, or factor-low-high-positions with high "
                       "above low, or factor-positions-fast-slow-whole with fast above slow and "
                       "whole 1 or 2");
  }
  if (config.full_every > 0 && config.window == 0 && config.chunk == 0 && config.delta_heads == 0) {
    return model_error(family,
                       "full_every wants a window for the other blocks, as window=1024, or chunks, "
                       "or delta_heads");
  }
  if (config.delta_heads > 0) {
    if (config.window > 0 || config.chunk > 0 || config.eod >= 0)
      return model_error(family, "delta_heads goes without window, chunk and eod");
    if (config.delta_value_heads == 0) config.delta_value_heads = config.delta_heads;
    if (config.delta_value_heads % config.delta_heads != 0) {
      return mismatch("delta_value_heads", config.delta_value_heads, "delta_heads",
                      config.delta_heads);
    }
  }
  if (config.chunk > 0 && (config.window > 0 || config.eod >= 0))
    return model_error(family, "chunk goes without window and eod");
  if (config.chunk > 0 && config.seq > config.chunk && config.seq % config.chunk != 0) {
    return model_error(family, fmt::format("seq={} must be a multiple of chunk={}, or at most that",
                                           config.seq, config.chunk));
  }
  TESSERA_TRY_VOID(scaling_of(config, family));
  if (config.mtp > 0 && (config.embed_scale != 1 || config.logit_cap > 0))
    return model_error(family, "mtp goes without embed_scale and logit_cap");
  if (config.theta <= 0) {
    return model_error(family, fmt::format("theta={} must be above 0", config.theta));
  }
  return {};
}

TensorId add_mlp(GraphBuilder& g, TensorId x, TensorId h, const FeedForwardOptions& options,
                 int64_t width) {
  h = feed_forward(g, "mlp", h,
                   {width, options.activation, options.in, options.out, options.gated});
  if (options.norm_after) h = rms_norm(g, kNormAfter, h, options.eps, options.norm_shifted);
  return g.op1("mlp.residual", "add", {x, h});
}

std::vector<TensorId> add_llama(GraphBuilder& g, const LlamaConfig& config, int64_t batch,
                                const FeedForward& feed_forward,
                                const std::function<void()>& before_blocks) {
  const Dim seq = {"seq", config.seq};
  const Dim hidden = {"hidden", config.hidden};
  const Dim vocab = {"vocab", config.vocab};
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  const TensorId tokens = g.input("tokens", {{"batch", batch}, seq}, DType::kInt64);
  const TensorId targets = g.input("targets", {{"batch", batch}, seq}, DType::kInt64);
  g.set_trains(config.lora == 0);
  Mixers mixers;
  AttentionOptions& heads = mixers.heads;
  heads.heads = config.kv_heads;
  heads.group = config.heads / config.kv_heads;
  heads.head_dim = config.head_dim;
  heads.in = {.weight = normal(kDeviation), .bias = config.qkv_bias, .lora = config.lora};
  heads.out = {.weight = normal(residual), .bias = config.out_bias, .lora = config.lora};
  heads.q_rank = config.q_rank;
  heads.kv_rank = config.kv_rank;
  heads.eps = config.eps;
  heads.head_norm = config.qk_norm;
  heads.norm_over_heads = config.qk_norm_over == "all";
  if (config.qk_norm_over == "turned") {
    heads.head_norm_gain =
        g.buffer("rotary.ones", {{"head_dim", config.head_dim}}, {Init::Kind::kOnes}, config.dtype);
  }
  heads.norm_shifted = config.norms_shifted;
  heads.rope_dim = config.rope_dim;
  heads.value_dim = config.value_dim;
  heads.scale = config.score_scale;
  heads.softcap = config.score_cap;
  heads.sinks = config.sinks;
  heads.gate = config.attn_gate;
  heads.rotary_neighbours = config.rotary_pairs == "neighbours";
  heads.segments = document_numbers(g, config.eod, batch, config.seq);
  const int64_t turned = turned_elements(config);
  add_rotary_tables(g, heads, config.seq, turned, config.theta, config.dtype,
                    *scaling_of(config, "llama"));
  if (config.unturned_every > 0 && config.scores_rise_at > 0 &&
      config.seq >= config.scores_rise_at) {
    mixers.rise =
        g.buffer("attention.rise", {seq},
                 {Init::Kind::kOnes, config.scores_rise, {config.scores_rise_at}}, config.dtype);
  }
  AttentionOptions& windowed = mixers.windowed;
  windowed = heads;
  // 0 if the window has all positions
  windowed.window = config.window < config.seq ? config.window : 0;
  windowed.chunk = config.chunk < config.seq ? config.chunk : 0;
  if (config.window > 0 && config.window_theta > 0) {
    add_rotary_tables(g, windowed, config.seq, turned, config.window_theta, config.dtype, {1},
                      "rotary_window");
  }
  if (config.delta_heads > 0) {
    DeltaNetOptions& delta = mixers.delta;
    delta.heads = config.delta_heads;
    delta.group = config.delta_value_heads / config.delta_heads;
    delta.key_dim = config.delta_head_dim;
    delta.value_dim = config.delta_value_dim;
    delta.conv = config.delta_conv;
    delta.in = heads.in;
    delta.out = heads.out;
    delta.in.bias = delta.out.bias = false;
    delta.eps = config.eps;
    add_unit_gains(g, delta, config.dtype);
  }
  const TensorId table =
      g.parameter("embed.token.weight", {vocab, hidden}, normal(kDeviation), config.dtype);
  TensorId x = g.op1("embed.token", "embedding", {tokens, table});
  if (config.embed_scale != 1)
    x = g.op1("embed.scale", "scale", {x}, {{"factor", config.embed_scale}});
  const FurtherTokens further(g, config.mtp, targets, table);
  before_blocks();
  for (int64_t layer = 0; layer < config.layers && g.ok(); ++layer) {
    g.push(fmt::format("blocks.{}", layer));
    x = llama_block(g, x, config, mixers, feed_forward, layer);
    g.pop();
  }
  std::vector<TensorId> normed = {rms_norm(g, "final.ln", x, config.eps, config.norms_shifted)};
  LinearOptions product = heads.in;
  product.bias = false;
  product.lora = 0;
  for (size_t depth = 0; depth < further.depths() && g.ok(); ++depth) {
    const std::string name = fmt::format("mtp_{}", depth);
    g.push("blocks." + name);
    x = further.join(g, depth, normed.back(), product, config.eps, config.norms_shifted);
    x = llama_block(g, x, config, mixers, feed_forward,
                    config.layers + static_cast<int64_t>(depth));
    g.pop();
    normed.push_back(rms_norm(g, "final." + name, x, config.eps, config.norms_shifted));
  }
  TensorId logits = output_head(g, normed[0], table, config.tied, vocab, normal(kDeviation));
  if (config.logit_cap > 0) logits = soft_cap(g, "head.capped", logits, config.logit_cap);
  cross_entropy_loss(g, logits, targets);
  std::vector<TensorId> losses;
  const TensorId head = config.tied ? table : g.graph().find_tensor("head.weight");
  for (size_t depth = 0; depth < further.depths() && g.ok(); ++depth) {
    losses.push_back(further.loss(g, depth, normed[depth + 1], head,
                                  config.mtp_loss / static_cast<double>(config.mtp)));
  }
  return losses;
}

Result<Graph> build_llama(const LlamaConfig& config, int64_t batch) {
  GraphBuilder g("llama");
  add_to_loss(g, add_llama(g, config, batch,
                           [&](GraphBuilder& builder, TensorId x, TensorId h,
                               const FeedForwardOptions& options) {
                             return add_mlp(builder, x, h, options, config.ffn);
                           }));
  return g.finish();
}

}  // namespace tessera
