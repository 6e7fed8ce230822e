#include "formulas.h"

#include <algorithm>
#include <cmath>

namespace tessera {

double megatron_flops(const TransformerSizes& x, double batch, bool recompute) {
  const double passes = recompute ? 4 : 3;
  const double layer = 24 * passes * batch * x.seq * x.layers * x.hidden * x.hidden;
  return layer * (1 + x.seq / (6 * x.hidden) + x.vocab / (4 * passes * x.layers * x.hidden));
}

double model_flops_per_token(const TransformerSizes& x) {
  const double attention =
      12 * x.layers * x.hidden * x.hidden * (1 + x.key_heads / x.heads + x.seq / x.hidden);
  return attention + (x.gated ? 18 : 12) * x.layers * x.ffn * x.hidden + 6 * x.vocab * x.hidden;
}

double foundry_flops_per_token(const TransformerSizes& x, double parameters) {
  return 6 * parameters + 12 * x.layers * x.hidden * x.seq;
}

double layer_parameters(const TransformerSizes& x) {
  if (!x.gated) return 12 * x.hidden * x.hidden + 13 * x.hidden;
  return x.hidden * x.hidden * (2 + 2 * x.key_heads / x.heads) + 3 * x.hidden * x.ffn +
         2 * x.hidden;
}

double state_bytes_per_parameter(StateRecipe recipe, double d) {
  switch (recipe) {
    case StateRecipe::kSgd32: return 12;
    case StateRecipe::kAdam32: return 16;
    case StateRecipe::kMixed: return 18;
    case StateRecipe::kMixedNarrow: return 16;
    case StateRecipe::kDistributed: return 6 + 12 / d;
    case StateRecipe::kZero1: return 4 + 12 / d;
    case StateRecipe::kZero2: return 2 + 14 / d;
    case StateRecipe::kZero3: return 16 / d;
  }
  return 0;
}

double layer_activation_bytes(const TransformerSizes& x, double micro_batch, double t,
                              ActivationScheme scheme) {
  const double sbh = x.seq * micro_batch * x.hidden;
  const double scores = 5 * x.heads * x.seq / x.hidden;
  switch (scheme) {
    case ActivationScheme::kTensorParallel: return sbh * (10 + 24 / t + scores / t);
    case ActivationScheme::kSequenceParallel: return sbh / t * (34 + scores);
    case ActivationScheme::kSelective: return 34 * sbh / t;
    case ActivationScheme::kFull: return 2 * sbh;
    case ActivationScheme::kFullSharded: return 2 * sbh / t;
  }
  return 0;
}

double modern_layer_activation_bytes(const TransformerSizes& x, double micro_batch, double t,
                                     bool fused_product) {
  const double sb = x.seq * micro_batch;
  return (sb * x.hidden * (12 + 4 * x.key_heads / x.heads) + (fused_product ? 6 : 8) * sb * x.ffn +
          4 * sb * x.heads) /
         t;
}

double layers_in_flight(PipelineOrder order, double layers, double p, double v, double m) {
  switch (order) {
    case PipelineOrder::kGpipe: return m * layers / p;
    case PipelineOrder::kOneForwardOneBackward: return std::min(m, p) * layers / p;
    case PipelineOrder::kInterleaved: return layers * (1 + (p - 1) / (p * v));
  }
  return 0;
}

double pipeline_seconds(PipelineOrder order, double p, double v, double m, double forward,
                        double backward) {
  const double both = forward + backward;
  return m * both + (p - 1) * both / (order == PipelineOrder::kInterleaved ? v : 1);
}

double unequal_pipeline_estimate(const std::vector<double>& forward,
                                 const std::vector<double>& backward, double m) {
  double sum = 0, slowest = 0;
  for (size_t i = 0; i < forward.size(); ++i) {
    sum += forward[i] + backward[i];
    slowest = std::max(slowest, forward[i] + backward[i]);
  }
  return sum + (m - 1) * slowest;
}

double work_bound(double flops, double devices, double peak, double best_efficiency) {
  return flops / (devices * peak * best_efficiency);
}
double cut_bound(double bytes, double bytes_per_second) { return bytes / bytes_per_second; }

double straggler_factor(double ranks, double sigma) {
  return 1 + sigma * std::sqrt(2 * std::log(ranks));
}

}  // namespace tessera
