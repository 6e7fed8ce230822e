#include "tessera/models/language/nemotron_h.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/text.h"
#include "tessera/models/language/further_tokens.h"
#include "tessera/models/language/mixtral.h"
#include "tessera/models/nn.h"

namespace tessera {
namespace {

constexpr std::string_view kFamily = "nemotron_h";
constexpr std::string_view kLetters = "M*-E";
// The initial step size. On a logarithmic scale it is the middle of Mamba's range 0.001 to 0.1.
constexpr double kStepSize = 0.01;

bool has(const NemotronHConfig& config, char letter) {
  return config.pattern.find(letter) != std::string::npos ||
         (config.mtp > 0 && config.mtp_pattern.find(letter) != std::string::npos);
}

class NemotronBuilder {
 public:
  NemotronBuilder(GraphBuilder& g, const NemotronHConfig& config) : g_(g), config_(config) {
    const double residual = kDeviation / std::sqrt(static_cast<double>(config.layers));
    options_ = {{normal(kDeviation), /*bias=*/false}, {normal(residual), /*bias=*/false}};
    attention_.heads = config.kv_heads;
    attention_.group = config.heads / config.kv_heads;
    attention_.head_dim = config.head_dim;
    attention_.in = options_.in;
    attention_.out = options_.out;
    experts_.experts = config.experts;
    experts_.top_k = config.top_k;
    experts_.normalize = config.top_k > 1;
    experts_.capacity =
        expert_capacity(config.capacity_factor, config.top_k, config.experts, config.seq);
    experts_.ffn = config.expert_ffn;
    experts_.shared_ffn = config.shared_ffn;
    experts_.latent = config.latent;
    experts_.balance = config.balance;
    experts_.z_loss = config.z_loss;
    experts_.weigh_inside = config.weigh_inside;
    experts_.gated = false;
    experts_.activation = "relu2";
  }

  TensorId block(TensorId x, char letter) {
    const TensorId h = rms_norm(g_, "ln_1", x, config_.eps);
    switch (letter) {
      case 'M': return g_.op1("ssm.residual", "add", {x, state_space(h)});
      case '*': return g_.op1("attn.residual", "add", {x, attention(g_, "attn", h, attention_)});
      case 'E': return mixture_of_experts(g_, x, h, options_, experts_, losses_);
      default: {
        const MlpOptions mlp = {config_.ffn, "relu2", options_.in, options_.out};
        return g_.op1("mlp.residual", "add", {x, feed_forward(g_, "mlp", h, mlp)});
      }
    }
  }

  Status check(int64_t batch) const {
    return check_expert_sizes(experts_, config_.hidden, batch, kFamily);
  }
  // Adds the table of ones that the norms read in place of weights. Must be called before the
  // first block.
  void add_ones() {
    ones_ = g_.buffer("ssm.ones", {{"width", group_size() * config_.ssm_head_dim}},
                      {Init::Kind::kOnes}, config_.dtype);
  }
  // Starts the auxiliary losses. Must be called before the first block.
  void start_losses(int64_t batch) {
    if (has(config_, 'E')) losses_.start(g_, experts_, {"batch", batch}, config_.dtype);
  }
  const RunningLoss& losses() const { return losses_; }

  // Returns the stream that predicts the token after the one that `x` predicts.
  TensorId further(TensorId x, const FurtherTokens& tokens, size_t depth) {
    for (size_t i = 0; i < config_.mtp_pattern.size(); ++i) {
      g_.push(fmt::format("blocks.mtp_{}_{}", depth, i));
      if (i == 0) x = tokens.join(g_, depth, x, options_.in, config_.eps);
      x = block(x, config_.mtp_pattern[i]);
      g_.pop();
    }
    return x;
  }

 private:
  int64_t group_size() const { return config_.ssm_heads / config_.ssm_groups; }

  // Applies an RMS norm to y silu(z) within each group, and multiplies each number by a
  // trained weight.
  TensorId gated_norm(TensorId y, TensorId z) {
    const TensorId gated = g_.op1("gated", "mul", {y, g_.op1("gate", "silu", {z})});
    const TensorId rows =
        g_.op1("join", "group", {gated},
               {{"first", int64_t{3}}, {"count", int64_t{2}}, {"name", std::string("width")}});
    const std::vector<TensorId> normed =
        g_.op("norm", "rms_norm", {rows, ones_}, {{"eps", config_.eps}});
    if (normed.empty()) return {};
    const std::vector<Dim> all = g_.tensor(normed[0]).dims;
    const TensorId weight = g_.parameter("gain.weight", {all.begin() + 2, all.end()},
                                         {Init::Kind::kOnes}, config_.dtype);
    g_.publish(weight, as_vector({all.begin() + 2, all.end()}));
    return g_.op1("gain", "mul", {normed[0], weight});
  }

  TensorId convolution(const std::string& name, TensorId x) {
    return causal_convolution(g_, name, x, config_.conv, /*biased=*/true);
  }

  TensorId state_space(TensorId h) {
    const Dim heads = {"heads", config_.ssm_groups}, group = {"group", group_size()};
    const Dim head_dim = {"head_dim", config_.ssm_head_dim}, state = {"state", config_.state};
    const std::vector<Dim> values = {heads, group, head_dim}, keys = {heads, state};
    g_.push("ssm");
    const TensorId z = linear(g_, "z", h, {"hidden"}, values, options_.in);
    const TensorId x = convolution("x", linear(g_, "x", h, {"hidden"}, values, options_.in));
    const TensorId b = convolution("b", linear(g_, "b", h, {"hidden"}, keys, options_.in));
    const TensorId c = convolution("c", linear(g_, "c", h, {"hidden"}, keys, options_.in));
    LinearOptions steps = options_.in;
    steps.bias = true;
    steps.bias_values = {Init::Kind::kConstant, std::log(std::expm1(kStepSize))};
    const TensorId dt =
        g_.op1("dt_act", "softplus", {linear(g_, "dt", h, {"hidden"}, {heads, group}, steps)});
    const TensorId log =
        g_.parameter("a_exp.weight", {heads, group}, {Init::Kind::kUniform, 1.0}, config_.dtype);
    const TensorId a = g_.op1("a", "scale", {g_.op1("a_exp", "exp", {log})}, {{"factor", -1.0}});
    const TensorId d =
        g_.parameter("scan.weight", {heads, group}, {Init::Kind::kOnes}, config_.dtype);
    for (const TensorId of_heads : {log, d}) g_.publish(of_heads, as_vector({heads, group}));
    const TensorId y =
        g_.op1("scan", "state_scan", {x, dt, a, b, c, d}, {{"chunk", config_.chunk}});
    const TensorId out = linear(g_, "out", gated_norm(y, z), {"heads", "width"},
                                {{"hidden", config_.hidden}}, options_.out);
    g_.pop();
    return out;
  }

  GraphBuilder& g_;
  const NemotronHConfig& config_;
  FeedForwardOptions options_;
  AttentionOptions attention_;
  MixtureOptions experts_;
  TensorId ones_;
  RunningLoss losses_;
};

Status check_letters(std::string_view key, const std::string& pattern) {
  const size_t wrong = pattern.find_first_not_of(kLetters);
  if (wrong == std::string::npos) return {};
  return model_error(
      kFamily, fmt::format("{}={} must be letters M (state space), * (attention), - (MLP) and E "
                           "(experts), found '{}'",
                           key, pattern, pattern.substr(wrong, 1)));
}

Status check_pattern(NemotronHConfig& config) {
  TESSERA_TRY_VOID(check_letters("pattern", config.pattern));
  TESSERA_TRY_VOID(check_letters("mtp_pattern", config.mtp_pattern));
  const std::string once = config.pattern;
  if (config.layers == 0) config.layers = static_cast<int64_t>(once.size());
  while (static_cast<int64_t>(config.pattern.size()) < config.layers) config.pattern += once;
  config.pattern.resize(static_cast<size_t>(config.layers));
  return {};
}

Status multiple(std::string_view whole, int64_t value, std::string_view part, int64_t divisor) {
  if (value % divisor == 0) return {};
  return model_error(kFamily,
                     fmt::format("{}={} must be a multiple of {}={}", whole, value, part, divisor));
}

}  // namespace

std::vector<ModelKey> model_keys(NemotronHConfig& config) {
  return {
      {"pattern", &config.pattern, "blocks: M state space, * attention, - MLP, E experts"},
      {"layers", &config.layers, "number of blocks", "letters of the pattern", {}, 0},
      {"hidden", &config.hidden, "width; a multiple of heads unless head_dim is given"},
      {"heads", &config.heads, "query heads; a multiple of kv_heads"},
      {"kv_heads", &config.kv_heads, "key and value heads"},
      {"head_dim", &config.head_dim, "width of a head", "hidden / heads"},
      {"seq", &config.seq, "tokens of a sequence"},
      {"vocab", &config.vocab, "tokens of the vocabulary"},
      {"ffn", &config.ffn, "width of the MLP"},
      {"ssm_heads", &config.ssm_heads, "heads of state space; a multiple of ssm_groups"},
      {"ssm_head_dim", &config.ssm_head_dim, "width of such a head"},
      {"ssm_groups", &config.ssm_groups, "groups of heads that share B and C"},
      {"state", &config.state, "numbers of the state for each number of a head"},
      {"conv", &config.conv, "tokens that the convolution sees"},
      {"chunk", &config.chunk, "tokens of a chunk of the scan"},
      {"experts", &config.experts, "experts of a block"},
      {"top_k", &config.top_k, "experts of a token"},
      {"expert_ffn", &config.expert_ffn, "width of each expert", "ffn"},
      {"capacity_factor", &config.capacity_factor, "as of mixtral"},
      {"shared_ffn", &config.shared_ffn, "width of an MLP beside the experts; 0: none", {}, {}, 0},
      {"latent", &config.latent, "width of tokens at the experts; 0: hidden", {}, {}, 0},
      {"balance", &config.balance, "coefficient of the load balance loss; 0: none"},
      {"z_loss", &config.z_loss, "coefficient of the router's z-loss; 0: none"},
      {"weigh_inside", &config.weigh_inside, "as of mixtral"},
      {"mtp", &config.mtp, "tokens further ahead that are predicted too; 0: none", {}, {}, 0},
      {"mtp_pattern", &config.mtp_pattern, "blocks of each of them"},
      {"mtp_loss", &config.mtp_loss, "weight of the mean of their losses"},
      {"tied", &config.tied, "1: the head uses the token embedding"},
      {"eps", &config.eps, "epsilon of the RMS norms"},
      {"dtype", &config.dtype, "of parameters and activations"},
  };
}

Status complete(NemotronHConfig& config) {
  TESSERA_TRY_VOID(check_pattern(config));
  TESSERA_TRY_VOID(multiple("heads", config.heads, "kv_heads", config.kv_heads));
  TESSERA_TRY_VOID(multiple("ssm_heads", config.ssm_heads, "ssm_groups", config.ssm_groups));
  if (config.head_dim == 0) {
    TESSERA_TRY_VOID(multiple("hidden", config.hidden, "heads", config.heads));
    config.head_dim = config.hidden / config.heads;
  }
  if (config.expert_ffn == 0) config.expert_ffn = config.ffn;
  if (config.top_k > config.experts) {
    return model_error(
        kFamily, fmt::format("top_k={} must be at most experts={}", config.top_k, config.experts));
  }
  if (config.capacity_factor <= 0) {
    return model_error(kFamily,
                       fmt::format("capacity_factor={} must be above 0", config.capacity_factor));
  }
  return {};
}

Result<Graph> build_nemotron_h(const NemotronHConfig& config, int64_t batch) {
  const Dim seq = {"seq", config.seq}, hidden = {"hidden", config.hidden};
  const Dim vocab = {"vocab", config.vocab};
  GraphBuilder g{std::string(kFamily)};
  NemotronBuilder builder(g, config);
  if (has(config, 'E')) TESSERA_TRY_VOID(builder.check(batch));
  const TensorId tokens = g.input("tokens", {{"batch", batch}, seq}, DType::kInt64);
  const TensorId targets = g.input("targets", {{"batch", batch}, seq}, DType::kInt64);
  if (has(config, 'M')) builder.add_ones();
  builder.start_losses(batch);
  const TensorId table =
      g.parameter("embed.token.weight", {vocab, hidden}, normal(kDeviation), config.dtype);
  TensorId x = g.op1("embed.token", "embedding", {tokens, table});
  const FurtherTokens further(g, config.mtp, targets, table);
  for (size_t layer = 0; layer < config.pattern.size() && g.ok(); ++layer) {
    g.push(fmt::format("blocks.{}", layer));
    x = builder.block(x, config.pattern[layer]);
    g.pop();
  }
  std::vector<TensorId> streams = {x};
  for (size_t depth = 0; depth < further.depths() && g.ok(); ++depth)
    streams.push_back(builder.further(streams.back(), further, depth));
  x = rms_norm(g, "final.ln", x, config.eps);
  cross_entropy_loss(g, output_head(g, x, table, config.tied, vocab, normal(kDeviation)), targets);
  std::vector<TensorId> further_losses;
  const TensorId head = config.tied ? table : g.graph().find_tensor("head.weight");
  for (size_t depth = 0; depth < further.depths() && g.ok(); ++depth) {
    const TensorId last =
        rms_norm(g, fmt::format("final.mtp_{}", depth), streams[depth + 1], config.eps);
    further_losses.push_back(
        further.loss(g, depth, last, head, config.mtp_loss / static_cast<double>(config.mtp)));
  }
  builder.losses().finish(g, std::move(further_losses));
  return g.finish();
}

}  // namespace tessera
