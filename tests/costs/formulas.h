// Closed forms of published work, in symbols of docs/theory/cost-model.md: oracles for tests and
// documentation, and bounds for planners. The exact costs of a program come from its instruction
// list.
//
// b micro-batch, s sequence, h hidden, a heads, g key heads, f FFN width, L layers, V vocabulary,
// t tensor, p pipeline, d data parallel degree, v virtual stages a device, m micro-batches.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct TransformerSizes {
  double layers = 0, hidden = 0, heads = 0, key_heads = 0, ffn = 0, vocab = 0, seq = 0;
  bool gated = false;  // three FFN matrices (SwiGLU) instead of two
};

// ---- flops (section 7)
// A step of `batch` sequences as Megatron-LM counts it (Narayanan et al. 2021): 96 B s L h^2 (1 +
// s/6h + V/16Lh) with full recompute, else 72 B s L h^2 (1 + s/6h + V/12Lh). f = 4h, all heads.
double megatron_flops(const TransformerSizes& sizes, double batch, bool recompute);
// A token without recompute, with full attention although it is causal: 12 L h^2 (1 + g/a + s/h) +
// 18 L f h (12 L f h if not gated) + 6 V h.
double model_flops_per_token(const TransformerSizes& sizes);
// A token as llm-foundry counts it: 6 P + 12 L h s.
double foundry_flops_per_token(const TransformerSizes& sizes, double parameters);

// ---- parameters and states (section 6.1)
// Parameters of a layer: GPT 12 h^2 + 13 h (f = 4h); gated with grouped queries h^2 (2 + 2g/a) +
// 3hf + 2h.
double layer_parameters(const TransformerSizes& sizes);

enum class StateRecipe : uint8_t {
  kSgd32,        // fp32 with momentum: 12
  kAdam32,       // 16
  kMixed,        // 16-bit weights, fp32 main gradients: 18
  kMixedNarrow,  // 16-bit gradients: 16
  kDistributed,  // Megatron's distributed optimizer: 6 + 12/d
  kZero1,        // 4 + 12/d
  kZero2,        // 2 + 14/d
  kZero3,        // 16/d, without the gathered units
};
double state_bytes_per_parameter(StateRecipe recipe, double data_parallel);

// ---- activations (section 6.2; Korthikanti et al. 2022)
enum class ActivationScheme : uint8_t {
  kTensorParallel,    // sbh (10 + 24/t + 5as/(ht))
  kSequenceParallel,  // sbh/t (34 + 5as/h)
  kSelective,         // attention core recomputed, with sequence sharding: 34 sbh/t
  kFull,              // 2sbh
  kFullSharded,       // 2sbh/t
};
// Bytes saved for one layer and micro-batch: 16 bits, GPT with dropout, unfused attention, f = 4h.
double layer_activation_bytes(const TransformerSizes& sizes, double micro_batch, double tensor,
                              ActivationScheme scheme);
// RMS norm, grouped queries, SwiGLU, fused attention, no dropout, everything sharded by t: sbh (12
// + 4g/a) + 6sbf + 4sba; 8sbf if silu and product are separate ops.
double modern_layer_activation_bytes(const TransformerSizes& sizes, double micro_batch,
                                     double tensor, bool fused_product);

enum class PipelineOrder : uint8_t { kGpipe, kOneForwardOneBackward, kInterleaved };
// Layers times micro-batches whose activations stage 0 holds at its peak.
double layers_in_flight(PipelineOrder order, double layers, double stages, double virtual_stages,
                        double micro_batches);

// ---- time (section 8)
// GPipe and 1F1B (m + p - 1)(F + B); interleaved m (F + B) + (p - 1)(F + B)/v. Messages cost
// nothing.
double pipeline_seconds(PipelineOrder order, double stages, double virtual_stages,
                        double micro_batches, double forward, double backward);
// 1F1B of unequal stages: sum of F + B and (m - 1) times the slowest stage. Exact where B is
// proportional to F often, else up to 20 % too large.
double unequal_pipeline_estimate(const std::vector<double>& forward,
                                 const std::vector<double>& backward, double micro_batches);
// Lower bounds for every plan: the work at the best rate of all devices, and the bytes that must
// pass the narrowest cut.
double work_bound(double flops, double devices, double peak, double best_efficiency);
double cut_bound(double bytes, double bytes_per_second);
// n ranks that wait for the slowest, each with relative noise sigma: 1 + sigma sqrt(2 ln n).
double straggler_factor(double ranks, double sigma);

}  // namespace tessera
