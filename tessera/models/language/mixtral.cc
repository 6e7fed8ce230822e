#include "tessera/models/language/mixtral.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tessera/graph/precision.h"
#include "tessera/models/language/further_tokens.h"

namespace tessera {
namespace {

// Makes one product for each expert: h [experts, batch, capacity, in] times a weight [experts,
// in, out], plus a bias [experts, out] if `biased`.
TensorId experts_linear(GraphBuilder& g, const std::string& name, TensorId h, const Dim& experts,
                        const Dim& in, const Dim& out, const Init& init, bool biased) {
  const TensorId weight =
      g.parameter(name + ".weight", {experts, in, out}, init, g.tensor(h).dtype);
  g.publish(weight, fmt::format("{} {} {}", experts.name, out.name, in.name));
  std::vector<TensorId> operands = {h, weight};
  if (biased) {
    operands.push_back(
        g.parameter(name + ".bias", {experts, out}, {Init::Kind::kZeros}, g.tensor(h).dtype));
  }
  const std::string spec =
      fmt::format("experts batch capacity {0}+, experts {0} {1}{2} -> experts batch capacity {1}",
                  in.name, out.name, biased ? ", experts " + out.name : "");
  return g.op1(name, "einsum", operands, {{"spec", spec}});
}

// Applies the activation to the gate of an expert: activation(alpha x) / alpha, of x up to a limit.
TensorId activated(GraphBuilder& g, TensorId x, const MixtureOptions& config) {
  const double alpha = config.form.gate_alpha, limit = config.form.gate_limit;
  if (limit > 0) x = g.op1("gate_limit", "clamp", {x}, {{"max", limit}});
  if (alpha != 1) x = g.op1("gate_alpha", "scale", {x}, {{"factor", alpha}});
  x = g.op1("act", config.activation, {x});
  return alpha == 1 ? x : g.op1("act_alpha", "scale", {x}, {{"factor", 1 / alpha}});
}

// Makes `coefficient` times the mean of `values` [batch].
TensorId mean_over_batch(GraphBuilder& g, const std::string& name, TensorId values,
                         double coefficient) {
  const double factor = coefficient / static_cast<double>(size_of(g, values, "batch"));
  return g.op1(name, "reduce_sum", {values}, {{"dims", std::string("batch")}, {"factor", factor}});
}

// Adds the MLP that every token passes. It has the form of an expert: ops
// shared.{gate,act,up,mul,down} if gated, else shared.{up,act,down}.
TensorId shared_mlp(GraphBuilder& g, TensorId h, const FeedForwardOptions& options,
                    const MixtureOptions& config) {
  const std::vector<Dim> ffn = {{"ffn", config.shared_ffn}};
  const Dim hidden = {"hidden", size_of(g, h, "hidden")};
  g.push("shared");
  TensorId inner;
  if (config.gated) {
    const TensorId act =
        g.op1("act", config.activation, {linear(g, "gate", h, {"hidden"}, ffn, options.in)});
    inner = g.op1("mul", "mul", {act, linear(g, "up", h, {"hidden"}, ffn, options.in)});
  } else {
    inner = g.op1("act", config.activation, {linear(g, "up", h, {"hidden"}, ffn, options.in)});
  }
  const TensorId y = linear(g, "down", inner, {"ffn"}, {hidden}, options.out);
  g.pop();
  return y;
}

// Makes the weight of each slot, [experts, batch, capacity], and sends it to the expert of
// the slot.
TensorId weights_at_experts(GraphBuilder& g, TensorId slot, TensorId weight,
                            const MixtureOptions& config) {
  const TensorId sent = g.op1("slot_weight", "moe_slot_weight", {weight, slot},
                              {{"experts", config.experts}, {"capacity", config.capacity}});
  return g.op1("arrive_weight", "scale", {sent}, {{"factor", 1.0}});
}

// Makes the experts' inner values, of dim ffn, from the tokens in their slots [experts, batch,
// capacity, inner].
TensorId experts_inner(GraphBuilder& g, TensorId slots, const Dim& inner, const Init& init,
                       const MixtureOptions& config) {
  const Dim experts = {"experts", config.experts}, ffn = {"ffn", config.ffn};
  const bool biased = config.form.expert_bias;
  if (!config.gated)
    return activated(g, experts_linear(g, "up", slots, experts, inner, ffn, init, biased), config);
  const TensorId gate = experts_linear(g, "gate", slots, experts, inner, ffn, init, biased);
  const TensorId act = activated(g, gate, config);
  TensorId up = experts_linear(g, "up", slots, experts, inner, ffn, init, biased);
  const double limit = config.form.gate_limit, shift = config.form.up_shift;
  if (limit > 0) up = g.op1("up_limit", "clamp", {up}, {{"min", -limit}, {"max", limit}});
  if (shift != 0) up = g.op1("up_shift", "shift", {up}, {{"by", shift}});
  return g.op1("mul", "mul", {act, up});
}

// Makes the router's scores of each expert from its logits [batch, seq, experts].
TensorId router_scores(GraphBuilder& g, TensorId logits, const MixtureOptions& config) {
  const bool softmax = config.form.scores == "softmax";
  return g.op1("probabilities", config.form.scores, {logits},
               softmax ? Attributes{{"dim", std::string("experts")}} : Attributes{});
}

// Chooses the experts of each token. Returns the outputs of moe_route, the weights multiplied by
// their factor.
std::vector<TensorId> choose_experts(GraphBuilder& g, TensorId scores,
                                     const MixtureOptions& config) {
  const MixtureForm& form = config.form;
  std::vector<TensorId> operands = {scores};
  if (form.choice_bias) {
    const bool trains = g.trains();
    g.set_trains(false);
    operands.push_back(g.parameter("route.bias", {{"experts", config.experts}},
                                   {Init::Kind::kZeros}, g.tensor(scores).dtype));
    g.set_trains(trains);
  }
  std::vector<TensorId> route = g.op("route", "moe_route", operands,
                                     {{"top_k", config.top_k},
                                      {"capacity", config.capacity},
                                      {"normalize", int64_t{config.normalize}},
                                      {"groups", form.groups},
                                      {"top_groups", form.top_groups},
                                      {"group_best", form.group_best}});
  if (form.route_scale != 1 && route.size() == 4)
    route[1] = g.op1("weight", "scale", {route[1]}, {{"factor", form.route_scale}});
  return route;
}

}  // namespace

// Adds the mixture. The ops `arrive`, `arrive_weight` and `return` compute nothing. They are the
// places where slots change ranks if a plan splits experts and batch over the same axis. Because
// these are ops, the received slots are kept for the backward pass, and the gradients of gate and
// up are added before they are sent back. Without the ops the slots would be sent again in the
// backward pass, and each gradient would be sent by itself.
TensorId mixture_of_experts(GraphBuilder& g, TensorId x, TensorId h,
                            const FeedForwardOptions& options, const MixtureOptions& config,
                            RunningLoss& losses) {
  const Dim experts = {"experts", config.experts}, ffn = {"ffn", config.ffn};
  const Dim hidden = {"hidden", size_of(g, h, "hidden")};
  const Dim inner = config.latent > 0 ? Dim{"latent", config.latent} : hidden;
  g.push("moe");
  LinearOptions router = options.in;
  router.bias = config.form.router_bias;
  const TensorId logits = linear(g, "router", h, {"hidden"}, {experts}, router);
  const TensorId probabilities = router_scores(g, logits, config);
  const std::vector<TensorId> route = choose_experts(g, probabilities, config);
  if (route.size() != 4) return {};
  const TensorId slot = route[0], weight = route[1], load = route[2];
  const TensorId tokens =
      config.latent > 0 ? linear(g, "narrow", h, {"hidden"}, {inner}, options.in) : h;
  std::vector<TensorId> dispatched = {tokens, slot};
  if (config.form.weigh_before) dispatched.push_back(weight);
  const TensorId sent = g.op1("dispatch", "moe_dispatch", std::move(dispatched),
                              {{"experts", config.experts}, {"capacity", config.capacity}});
  const TensorId slots = g.op1("arrive", "scale", {sent}, {{"factor", 1.0}});
  TensorId made = experts_inner(g, slots, inner, options.in.weight, config);
  if (config.weigh_inside)
    made = g.op1("weigh", "mul", {made, weights_at_experts(g, slot, weight, config)});
  const TensorId down = experts_linear(g, "down", made, experts, ffn, inner, options.out.weight,
                                       config.form.expert_bias);
  const TensorId returned = g.op1("return", "scale", {down}, {{"factor", 1.0}});
  std::vector<TensorId> combined = {returned, slot};
  if (!config.weigh_inside && !config.form.weigh_before) combined.push_back(weight);
  TensorId y = g.op1("combine", "moe_combine", std::move(combined));
  if (config.latent > 0) y = linear(g, "widen", y, {"latent"}, {hidden}, options.out);
  if (config.shared_ffn > 0) {
    TensorId shared = shared_mlp(g, h, options, config);
    if (config.form.shared_gate) {
      const TensorId gate = linear(g, "shared_gate", h, {"hidden"}, {}, options.in);
      shared =
          g.op1("shared_gate_mul", "mul", {shared, g.op1("shared_gate_act", "sigmoid", {gate})});
    }
    y = g.op1("sum", "add", {y, shared});
  }
  std::vector<TensorId> terms;
  if (config.balance > 0) {
    const TensorId balance =
        g.op1("balance", "moe_balance", {probabilities, load}, {{"top_k", config.top_k}});
    terms.push_back(mean_over_batch(g, "aux", balance, config.balance));
  }
  if (config.z_loss > 0) {
    terms.push_back(
        mean_over_batch(g, "z_aux", g.op1("z_loss", "moe_z_loss", {logits}), config.z_loss));
  }
  losses.add(g, std::move(terms));
  g.pop();
  if (options.norm_after) y = rms_norm(g, kNormAfter, y, options.eps, options.norm_shifted);
  return g.op1("moe.residual", "add", {x, y});
}

Status check_expert_sizes(const MixtureOptions& config, int64_t width, int64_t batch,
                          std::string_view family) {
  constexpr double kMaxElements = 0x1p56;
  const auto experts = static_cast<double>(config.experts);
  const auto hidden = static_cast<double>(width), ffn = static_cast<double>(config.ffn);
  const double slots = experts * static_cast<double>(config.capacity) * static_cast<double>(batch);
  if (experts * hidden * ffn <= kMaxElements && slots * std::max(hidden, ffn) <= kMaxElements)
    return {};
  return model_error(family,
                     fmt::format("batch={} and experts={} are too large for these sizes: a tensor "
                                 "would have more than 2^56 elements",
                                 batch, config.experts));
}

void RunningLoss::start(GraphBuilder& g, const MixtureOptions& config, const Dim& batch,
                        DType dtype) {
  if (config.balance <= 0 && config.z_loss <= 0) return;
  const TensorId zeros = g.op1("embed.zeros", "fill", {},
                               {{"value", 0.0},
                                {"dims", fmt::format("{}={}", batch.name, batch.size)},
                                {"dtype", std::string(dtype_name(storage_dtype(dtype)))}});
  sum_ = g.op1("embed.no_loss", "reduce_sum", {zeros}, {{"dims", batch.name}, {"factor", 1.0}});
}

void RunningLoss::add(GraphBuilder& g, std::vector<TensorId> terms) {
  if (!sum_ || terms.empty()) return;
  terms.insert(terms.begin(), g.op1("loss_before", "scale", {*sum_}, {{"factor", 1.0}}));
  sum_ = g.op1("losses", "add_n", std::move(terms));
}

void RunningLoss::finish(GraphBuilder& g, std::vector<TensorId> others) const {
  if (sum_) others.push_back(*sum_);
  add_to_loss(g, std::move(others));
}

std::vector<ModelKey> model_keys(MixtralConfig& config) {
  std::vector<ModelKey> keys = model_keys(static_cast<LlamaConfig&>(config));
  for (ModelKey& key : keys) {
    if (key.name == "ffn") key.meaning = "width of each expert";
  }
  const auto last = keys.end() - 1;  // the new keys are inserted before dtype
  keys.insert(
      last,
      {{"experts", &config.experts, "experts of a block"},
       {"top_k", &config.top_k, "experts of a token; 1: Switch, unless normalize=1"},
       {"normalize",
        &config.normalize,
        "1: the weights of a token's experts are divided by their sum (of one: its weight is 1); "
        "0: "
        "they are the probabilities",
        "1 if top_k > 1",
        {},
        0},
       {"capacity_factor", &config.capacity_factor,
        "slots of an expert over its fair share of a sequence; experts / top_k drops nothing"},
       {"shared_ffn", &config.shared_ffn, "width of an MLP beside the experts; 0: none", {}, {}, 0},
       {"shared_gate", &config.form.shared_gate,
        "1: what it gives is multiplied by a gate of the token (Qwen 3 Next)"},
       {"latent", &config.latent, "width of tokens at the experts; 0: hidden", {}, {}, 0},
       {"dense_layers", &config.dense_layers, "first blocks without experts", {}, {}, 0},
       {"experts_every", &config.experts_every,
        "every so many of the other blocks one has experts (Llama 4 Maverick: 2)"},
       {"dense_ffn", &config.dense_ffn, "width of their MLP; 0: ffn * top_k", {}, {}, 0},
       {"balance", &config.balance, "coefficient of the load balance loss; 0: none"},
       {"z_loss", &config.z_loss, "coefficient of the router's z-loss; 0: none"},
       {"weigh_inside", &config.weigh_inside,
        "1: experts weigh before their last product, not combine what comes back"},
       {"weigh_before", &config.form.weigh_before, "1: tokens are weighed before they are sent"},
       {"router",
        &config.form.scores,
        "what the router's logits become",
        {},
        {"softmax", "sigmoid"}},
       {"router_bias", &config.form.router_bias, "1: the router's product has a bias"},
       {"choice_bias", &config.form.choice_bias,
        "1: experts are chosen by score plus a bias that is not trained (DeepSeek-V3)"},
       {"groups", &config.form.groups, "groups of experts, of which the best are chosen first"},
       {"top_groups", &config.form.top_groups, "groups of a token"},
       {"group_best", &config.form.group_best,
        "best experts of a group whose sum says how good it is"},
       {"route_scale", &config.form.route_scale, "factor of the weights"},
       {"expert_bias", &config.form.expert_bias, "1: products of experts have biases (gpt-oss)"},
       {"gate_limit", &config.form.gate_limit,
        "limit of what an expert's first products give (gpt-oss: 7); 0: none"},
       {"gate_alpha", &config.form.gate_alpha,
        "the activation is act(alpha x) / alpha (gpt-oss: 1.702)"},
       {"up_shift", &config.form.up_shift, "added to the product that the gate multiplies"}});
  return keys;
}

int64_t expert_capacity(double factor, int64_t top_k, int64_t experts, int64_t seq) {
  const double fair =
      static_cast<double>(top_k) * static_cast<double>(seq) / static_cast<double>(experts);
  // The factor removes rounding errors: in floating point 1.1 * 10 is a little above 11.
  const double slots = std::ceil(factor * fair * (1 - 1e-12));
  return static_cast<int64_t>(std::clamp(slots, 1.0, static_cast<double>(seq)));
}
int64_t expert_capacity(const MixtralConfig& config) {
  return expert_capacity(config.capacity_factor, config.top_k, config.experts, config.seq);
}

Status complete(MixtralConfig& config) {
  TESSERA_TRY_VOID(complete(static_cast<LlamaConfig&>(config), "mixtral"));
  if (config.top_k > config.experts) {
    return model_error("mixtral", fmt::format("top_k={} must be at most experts={}", config.top_k,
                                              config.experts));
  }
  if (config.normalize < 0) config.normalize = config.top_k > 1 ? 1 : 0;
  if (config.normalize > 1)
    return model_error("mixtral", fmt::format("normalize={} must be 0 or 1", config.normalize));
  if ((config.dense_layers > 0 || config.experts_every > 1) && config.dense_ffn == 0)
    config.dense_ffn = config.ffn * config.top_k;
  const MixtureForm& form = config.form;
  if (config.experts % form.groups != 0) {
    return model_error("mixtral", fmt::format("experts={} must be a multiple of groups={}",
                                              config.experts, form.groups));
  }
  const int64_t of_group = config.experts / form.groups;
  if (form.top_groups > form.groups || form.group_best > of_group ||
      config.top_k > form.top_groups * of_group) {
    return model_error(
        "mixtral",
        fmt::format("top_groups={}, group_best={} and top_k={} must fit in groups={} of {} experts",
                    form.top_groups, form.group_best, config.top_k, form.groups, of_group));
  }
  if (form.shared_gate && config.shared_ffn == 0)
    return model_error("mixtral", "shared_gate=1 wants a shared MLP, as shared_ffn=512");
  if (form.weigh_before && config.weigh_inside)
    return model_error("mixtral", "weigh_before=1 and weigh_inside=1 exclude each other");
  if (form.gate_limit < 0 || form.gate_alpha <= 0) {
    return model_error("mixtral", fmt::format("gate_limit={} must be at least 0 and gate_alpha={} "
                                              "above 0",
                                              form.gate_limit, form.gate_alpha));
  }
  if (config.capacity_factor <= 0) {
    return model_error("mixtral",
                       fmt::format("capacity_factor={} must be above 0", config.capacity_factor));
  }
  return {};
}

Result<Graph> build_mixtral(const MixtralConfig& config, int64_t batch) {
  MixtureOptions mixture;
  mixture.experts = config.experts;
  mixture.top_k = config.top_k;
  mixture.normalize = config.normalize == 1;
  mixture.capacity = expert_capacity(config);
  mixture.ffn = config.ffn;
  mixture.shared_ffn = config.shared_ffn;
  mixture.latent = config.latent;
  mixture.balance = config.balance;
  mixture.z_loss = config.z_loss;
  mixture.weigh_inside = config.weigh_inside;
  mixture.activation = config.activation;
  mixture.gated = config.gated;
  mixture.form = config.form;
  TESSERA_TRY_VOID(check_expert_sizes(mixture, config.hidden, batch, "mixtral"));
  GraphBuilder g("mixtral");
  RunningLoss losses;
  int64_t layer = 0;
  const FeedForward feed_forward = [&](GraphBuilder& builder, TensorId x, TensorId h,
                                       const FeedForwardOptions& options) {
    const int64_t number = layer++ - config.dense_layers + 1;
    if (number <= 0 || number % config.experts_every != 0)
      return add_mlp(builder, x, h, options, config.dense_ffn);
    return mixture_of_experts(builder, x, h, options, mixture, losses);
  };
  std::vector<TensorId> further = add_llama(g, config, batch, feed_forward, [&] {
    if (config.dense_layers + config.experts_every <= config.layers + config.mtp)
      losses.start(g, mixture, {"batch", batch}, config.dtype);
  });
  losses.finish(g, std::move(further));
  return g.finish();
}

}  // namespace tessera
