#include "tessera/models/mixtral.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tessera/graph/precision.h"

namespace tessera {
namespace {

// Makes one product for each expert: h [experts, batch, capacity, in] times a weight [experts,
// in, out].
TensorId experts_linear(GraphBuilder& g, const std::string& name, TensorId h, const Dim& experts,
                        const Dim& in, const Dim& out, const Init& init) {
  const TensorId weight =
      g.parameter(name + ".weight", {experts, in, out}, init, g.tensor(h).dtype);
  g.publish(weight, fmt::format("{} {} {}", experts.name, out.name, in.name));
  const std::string spec =
      fmt::format("experts batch capacity {0}+, experts {0} {1} -> experts batch capacity {1}",
                  in.name, out.name);
  return g.op1(name, "einsum", {h, weight}, {{"spec", spec}});
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
  if (!config.gated) {
    return g.op1("act", config.activation,
                 {experts_linear(g, "up", slots, experts, inner, ffn, init)});
  }
  const TensorId gate = experts_linear(g, "gate", slots, experts, inner, ffn, init);
  const TensorId act = g.op1("act", config.activation, {gate});
  const TensorId up = experts_linear(g, "up", slots, experts, inner, ffn, init);
  return g.op1("mul", "mul", {act, up});
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
  const TensorId logits = linear(g, "router", h, {"hidden"}, {experts}, options.in);
  const TensorId probabilities =
      g.op1("probabilities", "softmax", {logits}, {{"dim", std::string("experts")}});
  const std::vector<TensorId> route = g.op("route", "moe_route", {probabilities},
                                           {{"top_k", config.top_k},
                                            {"capacity", config.capacity},
                                            {"normalize", int64_t{config.normalize}}});
  if (route.size() != 4) return {};
  const TensorId slot = route[0], weight = route[1], load = route[2];
  const TensorId tokens =
      config.latent > 0 ? linear(g, "narrow", h, {"hidden"}, {inner}, options.in) : h;
  const TensorId sent = g.op1("dispatch", "moe_dispatch", {tokens, slot},
                              {{"experts", config.experts}, {"capacity", config.capacity}});
  const TensorId slots = g.op1("arrive", "scale", {sent}, {{"factor", 1.0}});
  TensorId made = experts_inner(g, slots, inner, options.in.weight, config);
  if (config.weigh_inside)
    made = g.op1("weigh", "mul", {made, weights_at_experts(g, slot, weight, config)});
  const TensorId down = experts_linear(g, "down", made, experts, ffn, inner, options.out.weight);
  const TensorId returned = g.op1("return", "scale", {down}, {{"factor", 1.0}});
  std::vector<TensorId> combined = {returned, slot};
  if (!config.weigh_inside) combined.push_back(weight);
  TensorId y = g.op1("combine", "moe_combine", std::move(combined));
  if (config.latent > 0) y = linear(g, "widen", y, {"latent"}, {hidden}, options.out);
  if (config.shared_ffn > 0) {
    y = g.op1("sum", "add", {y, shared_mlp(g, h, options, config)});
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
  if (options.norm_after) y = rms_norm(g, kNormAfter, y, options.eps);
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
  if (others.empty()) return;
  others.insert(others.begin(), g.graph().loss);
  g.graph().loss = g.op1("loss.total", "add_n", std::move(others));
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
       {"latent", &config.latent, "width of tokens at the experts; 0: hidden", {}, {}, 0},
       {"dense_layers", &config.dense_layers, "first blocks without experts", {}, {}, 0},
       {"experts_every", &config.experts_every,
        "every so many of the other blocks one has experts (Llama 4 Maverick: 2)"},
       {"dense_ffn", &config.dense_ffn, "width of their MLP; 0: ffn * top_k", {}, {}, 0},
       {"balance", &config.balance, "coefficient of the load balance loss; 0: none"},
       {"z_loss", &config.z_loss, "coefficient of the router's z-loss; 0: none"},
       {"weigh_inside", &config.weigh_inside,
        "1: experts weigh before their last product, not combine what comes back"}});
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
  if (config.dense_layers + config.experts_every > config.layers) {
    return model_error(
        "mixtral", config.experts_every == 1
                       ? fmt::format("dense_layers={} must be below layers={}", config.dense_layers,
                                     config.layers)
                       : fmt::format("dense_layers={} and experts_every={} leave no block of "
                                     "layers={} with experts",
                                     config.dense_layers, config.experts_every, config.layers));
  }
  if ((config.dense_layers > 0 || config.experts_every > 1) && config.dense_ffn == 0)
    config.dense_ffn = config.ffn * config.top_k;
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
  add_llama(g, config, batch, feed_forward, [&] {
    losses.start(g, mixture, {"batch", batch}, config.dtype);
  });
  losses.finish(g);
  return g.finish();
}

}  // namespace tessera
