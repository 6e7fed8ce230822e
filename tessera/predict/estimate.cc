#include "tessera/predict/estimate.h"

#include <algorithm>

#include "tessera/cost/style.h"
#include "tessera/predict/assumptions.h"

namespace tessera {
namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

// Returns the number of ranks of a stage over which the experts of a block are divided. Either the
// experts are divided over `ep` replicas and each expert is cut over the tensor ranks, or whole
// experts are divided over `ep` ranks, the tensor ranks of several replicas.
int64_t ranks_of_experts(const Run& run) {
  const int64_t ep = std::max<int64_t>(run.ep, 1);
  return ep > run.dp * run.cp ? ep : run.tp * ep;
}

// The number of parameters on the fullest device, before they are sharded by ZeRO.
struct Parameters {
  double dense = 0, experts = 0;
};

Parameters local_parameters(const Run& run) {
  const Architecture& m = run.model;
  Architecture without = m;
  without.experts = without.top_k = 0;
  const double experts = has_experts(m) ? parameter_count(m) - parameter_count(without) : 0;
  const double tables = as_double(m.vocab) * as_double(m.hidden) * (m.tied ? 1 : 2);
  const double blocks = parameter_count(m) - tables - experts;
  const double dense = blocks / as_double(run.pp) +
                       // With several stages the first one has the table of the embedding and the
                       // last one that of the head.
                       tables / as_double(std::min<int64_t>(run.pp, 2));
  return {dense / as_double(run.tp), experts / as_double(run.pp * ranks_of_experts(run))};
}

// Returns the bytes of one parameter in mixed precision: the parameter (2), its gradient (2 or 4),
// and a float32 master copy with two moments (12). The ZeRO stage decides which of these are
// divided by the number of shards.
double bytes_of_parameter(const Run& run, double shards) {
  constexpr double kParameter = 2, kStates = 12;
  if (run.lora > 0) return kParameter;  // not trained: no gradient and no states
  const double gradient = narrow_gradients(run) ? 2 : 4;
  switch (run.zero) {
    case 0: return kParameter + gradient + kStates;
    case 1: return kParameter + gradient + kStates / shards;
    case 2: return kParameter + (gradient + kStates) / shards;
    default: return (kParameter + gradient + kStates) / shards;
  }
}

// Bytes of activations (16 bits each) for each token on a device that has all blocks. `kept`: those
// that are kept for the backward pass. `working`: those that are needed in addition while a block
// runs or while the logits exist.
struct OfToken {
  double kept = 0, working = 0;
};

// Counts the inputs and outputs of norms and products, and the data sent to and from the experts.
// The convolution and the gate of state space blocks are not counted, because the kernels compute
// them again.
OfToken of_hybrid(const Run& run) {
  const Architecture& m = run.model;
  const bool again = run.recompute != Recompute::kNone;
  const double stream = (again ? 2 : 4) * as_double(m.hidden),
               values = as_double(m.ssm_heads * kStateHeadDim);
  const double queries = as_double(m.heads * m.head_dim), keys = as_double(m.kv_heads * m.head_dim);
  const double inner = as_double(m.latent > 0 ? m.latent : m.hidden);
  const double made = again ? 2 : 4;  // a product and its activation, or only the product
  // bytes: the experts' inputs, and their outputs if these are weighed afterwards
  const double moved = run.framework.weigh_inside ? 2 : 4;
  const auto block = [&](char letter) {
    switch (letter) {
      case 'M': return stream + 6 * values + 4 * as_double(kStateGroups * kState);
      case '*': return stream + (again ? 2 : 4) * queries + 4 * keys;
      case 'E':
        if (run.recompute == Recompute::kExperts) return 2 * as_double(m.hidden);
        return stream + as_double(m.top_k) * (moved * inner + made * as_double(m.ffn)) +
               made * as_double(m.shared_ffn) + (m.latent > 0 ? 4 * inner : 0);
      default: return stream + made * as_double(m.ffn);
    }
  };
  double kept = as_double(m.mtp) * (block('*') + block('E') + 8 * as_double(m.hidden));
  for (int64_t i = 0; i < m.layers; ++i)
    kept += block(m.pattern[static_cast<size_t>(i) % m.pattern.size()]);
  if (run.recompute == Recompute::kFull) kept = 2 * as_double(m.hidden * m.layers);
  const double logits = as_double(m.vocab * (8 + 4 * m.mtp)) / as_double(run.pp);
  return {kept / as_double(run.tp), logits / as_double(run.tp)};
}

// Counts for each block the inputs and outputs of both norms, q, k, v, the output of attention, and
// the input and output of the MLP's activation. With selective recompute the outputs of norms,
// attention and activations are not counted, because they are computed again.
OfToken of_transformer(const Run& run) {
  const Architecture& m = run.model;
  const double width = as_double(m.hidden), tp = as_double(run.tp);
  const double inner =
      has_experts(m) ? as_double(m.ffn * m.top_k + m.shared_ffn) : as_double(m.ffn);
  const double split = shards_sequence(run) ? tp : 1;
  // Selective recomputation of attention's core alone keeps all but its scores.
  const bool all = run.recompute == Recompute::kNone ||
                   (run.recompute == Recompute::kSelective && run.framework.selective == "core");
  const double of_head =
      as_double(m.head_dim > 0 ? m.head_dim : m.hidden / std::max<int64_t>(m.heads, 1));
  const double queries = of_head * as_double(m.heads),
               keys = of_head * as_double(m.kv_heads > 0 ? m.kv_heads : m.heads);
  const bool gated = m.form == Form::kLlama || m.form == Form::kMixture;
  const double of_inner =
      2 + (gated ? 2 : 0) + (all && !(gated && run.framework.fused_gating) ? 2 : 0);
  double kept =
      (all ? 8 : 4) * width / split + ((all ? 4 : 2) * queries + 4 * keys + of_inner * inner) / tp;
  if (has_experts(m)) {  // the experts' inputs, and their outputs if these are weighed afterwards
    const double arrives = as_double(m.latent > 0 ? m.latent : m.hidden);
    kept += as_double(m.top_k) * (run.framework.weigh_inside ? 2 : 4) * arrives / tp;
  }
  if (run.recompute == Recompute::kFull) kept = 2 * width / split;
  // Attention that is not fused keeps its scores.
  if (const auto style = parse_style(run.framework.style);
      run.recompute == Recompute::kNone && style && !style->fused_attention)
    kept += style->attention_saved_bytes * as_double(m.heads) * as_double(run.seq) / tp;
  const double block = 20 * width / split + 8 * inner / tp;
  const double logits = run.pp == 1 ? 8 * as_double(m.vocab) / tp : 0;
  return {kept * as_double(m.layers), std::max(block, logits)};
}

// Returns the number of micro-batches in flight on the first stage. It is larger if a stage is cut
// into chunks.
double in_flight(const Run& run) {
  const double whole = as_double(std::min(run.pp, std::max<int64_t>(run.micro_batches, 1)));
  return run.vpp > 1 ? whole * (1 + as_double(run.pp - 1) / as_double(run.pp * run.vpp)) : whole;
}

}  // namespace

double estimated_state_bytes(const Run& run, bool sharded) {
  const Parameters local = local_parameters(run);
  const double replicas = sharded ? as_double(run.dp * run.cp) : 1;
  // The experts of a block are divided over ranks_of_experts() ranks. Their states can be sharded
  // only over the ranks that have the same experts.
  const double of_expert =
      std::max(1.0, replicas * as_double(run.tp) / as_double(ranks_of_experts(run)));
  return local.dense * bytes_of_parameter(run, replicas) +
         local.experts * bytes_of_parameter(run, of_expert);
}

double estimated_bytes(const Run& run) {
  const OfToken one = run.model.form == Form::kHybrid ? of_hybrid(run) : of_transformer(run);
  const double tokens = as_double(run.microbatch) * as_double(run.seq) / as_double(run.cp);
  return assumed("library_bytes") + estimated_state_bytes(run) +
         tokens * (one.kept / as_double(run.pp) * in_flight(run) + one.working);
}

}  // namespace tessera
