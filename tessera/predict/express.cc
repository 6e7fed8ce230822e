#include "tessera/predict/express.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/text.h"
#include "tessera/cost/style.h"
#include "tessera/models/architecture_text.h"
#include "tessera/plan/load.h"
#include "tessera/predict/assumptions.h"

namespace tessera {
namespace {

constexpr int64_t kUnbounded = int64_t{1} << 40;

int64_t padded(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

void say(Run& run, std::string text) { run.reasons.push_back(std::move(text)); }

// ---- changes of runs that no recipe supports

// Changes cp and ep to what the recipes support. For mixtures and hybrids cp becomes 1, and pieces
// of sequences become separate sequences of more replicas. Experts are divided over ep replicas,
// where ep divides the number of replicas, or over the tensor ranks of several replicas.
void fit_experts(Run& run) {
  if (!has_experts(run.model) && run.model.form != Form::kHybrid) return;
  if (run.cp > 1) {
    say(run, fmt::format("cp = {} as replicas of sequences of {}: {} is by sequence", run.cp,
                         run.seq / run.cp, has_experts(run.model) ? "routing" : "the scan"));
    run.seq /= run.cp;
    run.dp *= run.cp;
    run.global_batch *= run.cp;
    run.cp = 1;
  }
  if (!has_experts(run.model)) return;
  const int64_t of_replica = run.ep / run.tp;
  if (run.ep > run.dp && run.tp > 1 && run.ep % run.tp == 0 && run.dp % of_replica == 0 &&
      run.ep <= run.model.experts) {
    say(run, fmt::format("whole experts over {} ranks: the {} tensor ranks of {} replicas", run.ep,
                         run.tp, of_replica));
    run.ep = of_replica;
    run.experts_over_tp = true;
    return;
  }
  int64_t ep = std::min({run.ep, run.dp, run.model.experts});
  while (run.dp % ep != 0) --ep;
  if (ep == run.ep) return;
  say(run, fmt::format("ep = {} in place of {}: within the {} replicas", ep, run.ep, run.dp));
  run.ep = ep;
}

void fit_pipeline(Run& run) {
  const int64_t layers = run.model.layers * (run.model.form == Form::kT5 ? 2 : 1);
  if (run.pp > layers) {
    say(run, fmt::format("pp = {} in place of {}: {} layers", layers, run.pp, layers));
    run.dp = run.dp * run.pp / layers;
    run.pp = layers;
  }
  if (run.vpp == 1) return;
  int64_t chunks = std::min(run.vpp, layers / run.pp);
  if (run.micro_batches % run.pp != 0) chunks = 1;
  if (chunks == run.vpp) return;
  say(run, fmt::format("{} chunks in place of {}: {}", chunks, run.vpp,
                       run.micro_batches % run.pp != 0 ? "micro-batches are no multiple of pp"
                                                       : "too few layers"));
  run.vpp = chunks;
}

// Sets kv_heads to tp if tp is larger. Megatron cuts the groups of query heads in this case and
// gives each rank a copy of one key head, so each rank has one key head.
void fit_heads(Run& run) {
  Architecture& model = run.model;
  if (run.tp <= model.kv_heads || model.kv_heads == model.heads) return;
  if (model.heads % run.tp != 0) return;
  say(run,
      fmt::format("{} key heads in place of {}: one for each tensor rank", run.tp, model.kv_heads));
  model.kv_heads = run.tp;
}

// ---- model spec

// Returns the text of the run's model: its architecture, with the run's length of sequences and the
// vocabulary as the framework pads it, and what the run and its framework add to it.
Result<std::string> model_spec(const Run& run) {
  Architecture m = run.model;
  if (!takes_images(m)) m.seq = run.seq;
  if (run.tp >= run.framework.vocab_from_tp)
    m.vocab = padded(m.vocab, run.framework.vocab_multiple * run.tp);
  TESSERA_TRY(std::string text, architecture_text(m));
  const bool gated = m.form == Form::kLlama || m.form == Form::kMixture || m.form == Form::kHybrid;
  if (gated && run.lora > 0) text += fmt::format(",lora={}", run.lora);
  if (gated && run.lora_mlp) text += ",lora_mlp=1";
  if (has_experts(m) && run.framework.weigh_inside) text += ",weigh_inside=1";
  if (m.form == Form::kGpt && run.cp == 1 && run.framework.dropout > 0)
    text += fmt::format(",dropout={}", run.framework.dropout);
  // Batch norm takes its statistics over the images of a replica's micro-batch (`ghost`).
  if (m.form == Form::kConvolution) text += fmt::format(",ghost={}", run.microbatch);
  return text;
}

// ---- plan

// Returns the value of the recipes' argument `recompute`. For mixtures and hybrids users of
// Megatron-Core choose modules. Here selective means its modules layernorm, moe_act, mla_up_proj
// and, for hybrids, which have few attentions, core_attn; experts means moe in addition.
// Convolution and gate of state space blocks are always computed again, because their kernel does
// so in every run (mamba_split_conv1d_scan_combined of mamba_ssm).
std::string recompute_argument(const Run& run) {
  const Architecture& m = run.model;
  const bool hybrid = m.form == Form::kHybrid;
  const bool by_modules = hybrid || (has_experts(m) && run.framework.interleaved);
  if (run.recompute == Recompute::kSelective && !by_modules) return run.framework.selective;
  if (run.recompute == Recompute::kFull || !by_modules)
    return std::string(recompute_name(run.recompute));
  std::vector<std::string> modules;
  if (m.ssm_heads > 0) modules.emplace_back("scan");
  if (run.recompute != Recompute::kNone) {
    modules.insert(modules.end(), {"norm", "act"});
    if (hybrid) modules.emplace_back("core");
    if (m.q_rank > 0 || m.kv_rank > 0) modules.emplace_back("mla_up");
  }
  if (run.recompute == Recompute::kExperts) modules.emplace_back("moe");
  return modules.empty() ? "none" : join(modules, "+");
}

DType compute_dtype(const Run& run) {
  return run.arithmetic == Arithmetic::kFp16 ? DType::kFloat16 : DType::kBFloat16;
}

std::string recipe_call(const Run& run) {
  const bool mixture = has_experts(run.model);
  std::string call = mixture ? fmt::format("expert_parallel(ep={},dp={}", run.ep, run.dp / run.ep)
                             : fmt::format("megatron(dp={}", run.dp);
  const auto add = [&call](std::string_view key, int64_t value, int64_t otherwise) {
    if (value != otherwise) call += fmt::format(",{}={}", key, value);
  };
  add("tp", run.tp, 1);
  add("pp", run.pp, 1);
  add("cp", run.cp, 1);
  add("zero", run.zero, 0);
  add("micro_batches", run.micro_batches, 1);
  if (run.vpp > 1) call += fmt::format(",schedule=interleaved,chunks={}", run.vpp);
  if (const std::string again = recompute_argument(run); again != "none")
    call += ",recompute=" + again;
  if (run.tp > 1 && shards_sequence(run)) call += ",sequence_shard=true";
  if (run.experts_over_tp) call += ",experts_over_tp=true";
  // With `precision` the recipe keeps the float32 masters in shards, and for each step a 16-bit
  // copy that is gathered from the masters.
  if (run.framework.gathers_once && !is_wide(run.arithmetic))
    call += fmt::format(",precision={}", dtype_name(compute_dtype(run)));
  return call + ")";
}

StoreEntry store(std::string tensors) {
  StoreEntry entry;
  entry.tensors = std::move(tensors);
  return entry;
}

// Switches recompute off for the blocks of the last stage, so that full recompute applies to all
// other blocks.
void keep_last_stage(Plan& plan, const Run& run) {
  const int64_t stages = run.pp * run.vpp;
  const int64_t layers = run.model.layers;
  const int64_t first = layers - layers / stages;
  StoreEntry entry = store(first + 1 == layers ? fmt::format("blocks.{}", first)
                                               : fmt::format("blocks.[{}-{}]", first, layers - 1));
  entry.recompute = false;
  plan.stores.push_back(std::move(entry));
}

void set_precision(Plan& plan, const Run& run) {
  if (is_wide(run.arithmetic)) return;
  const DType compute = compute_dtype(run);
  plan.precision.compute = compute;
  plan.precision.gradient = narrow_gradients(run) ? compute : DType::kFloat32;
  plan.precision.state = DType::kFloat32;
}

// Returns the bytes of a block's weights on one rank in the dtype of the computation.
int64_t block_bytes(const Run& run) {
  const Architecture& m = run.model;
  const double tables = static_cast<double>(m.vocab * m.hidden) * (m.tied ? 1 : 2);
  const double weights = (parameter_count(m) - tables) / static_cast<double>(m.layers * run.tp);
  return static_cast<int64_t>(weights * (is_wide(run.arithmetic) ? 4 : 2));
}

// Returns "blocks.*.ln_1.weight" for "blocks.12.ln_1.weight".
std::string of_all_blocks(const std::string& name) {
  std::vector<std::string> parts = split_text(name, '.');
  for (std::string& part : parts) {
    if (std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }))
      part = "*";
  }
  return join(parts, ".");
}

// Adds a plan entry that keeps small parameters whole on every rank, although their gradients and
// states are sharded.
void keep_small_parameters(Plan& plan, const Graph& graph, int64_t most_elements) {
  std::set<std::string> small;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && tensor.elements() <= most_elements)
      small.insert(of_all_blocks(tensor.name));
  }
  if (small.empty()) return;
  StoreEntry whole = store("{" + join({small.begin(), small.end()}, ",") + "}");
  whole.over.emplace();
  plan.stores.push_back(std::move(whole));
}

// Adds the details to the plan that the recipes have no arguments for.
void add_details(Plan& plan, const Graph& graph, const Run& run) {
  set_precision(plan, run);
  plan.bucket_bytes = std::min(run.framework.bucket_bytes, kUnbounded);
  if (run.zero == 3 && run.framework.whole_blocks)
    plan.bucket_bytes = std::max(plan.bucket_bytes, block_bytes(run) + block_bytes(run) / 10);
  if (run.zero == 3 && run.framework.prefetch > 0) {
    plan.prefetch = Prefetch{"blocks.*", run.framework.prefetch};
  }
  if (run.zero == 3) keep_small_parameters(plan, graph, run.framework.persistent_elements);
  if (run.zero >= 2 && run.pp > 1 && run.framework.keeps_gathered && !is_wide(run.arithmetic)) {
    if (run.zero == 3) {
      StoreEntry narrow = store("*.cast");
      narrow.keep = Keep::kStep;
      plan.stores.push_back(std::move(narrow));
    }
    // Gradients are summed whole and are reduced once a step.
    StoreEntry gradients = store("grad.*.cast");
    gradients.over.emplace();
    plan.stores.push_back(std::move(gradients));
  }
  const bool gated = run.model.form == Form::kLlama || run.model.form == Form::kMixture;
  if (gated && run.framework.fused_gating && run.recompute != Recompute::kFull) {
    StoreEntry activation = store("blocks.*.{mlp,moe}.act");
    activation.recompute = true;
    plan.stores.push_back(std::move(activation));
  }
  // The kernel that applies the weights of tokens also applies the activation. Its backward pass
  // reads the products, so the unweighed activation is not kept.
  if (has_experts(run.model) && run.framework.weigh_inside && run.recompute != Recompute::kFull) {
    StoreEntry unweighed = store(gated ? "blocks.*.moe.mul" : "blocks.*.moe.act");
    unweighed.recompute = true;
    plan.stores.push_back(std::move(unweighed));
  }
  if (run.recompute == Recompute::kFull && !run.framework.recompute_last_stage) {
    keep_last_stage(plan, run);
  }
}

std::string style_text(const Run& run) {
  std::string text = run.framework.style;
  if (run.arithmetic == Arithmetic::kTf32 || run.arithmetic == Arithmetic::kFp8 ||
      run.arithmetic == Arithmetic::kFp4) {
    text += fmt::format(",matmul_arithmetic={}", arithmetic_name(run.arithmetic));
  }
  // With zero >= 2 there are no buffers for whole gradients, because each bucket is freed once it
  // is reduced.
  if (const auto style = parse_style(text); run.zero >= 2 && style && style->gradient_buffers)
    text += ",gradient_buffers=false";
  return text;
}

}  // namespace

Result<Expressed> express(const Run& completed) {
  Run run = completed;
  fit_experts(run);
  fit_pipeline(run);
  fit_heads(run);
  if (run.zero == 2 && run.framework.vocab_multiple > 1) {
    say(run, "zero = 2 as 1: gradients are reduced once a step");
    run.zero = 1;
  }
  Expressed out;
  TESSERA_TRY(out.model, model_spec(run));
  out.batch = run.dp * run.microbatch * run.micro_batches;
  out.step_scale = static_cast<double>(run.global_batch) / static_cast<double>(out.batch);
  out.recipe = recipe_call(run);
  // The graph of batch 1 suffices, because a recipe reads from the graph only sizes that do not
  // depend on the batch.
  TESSERA_TRY(const Model smallest, build_model(out.model, 1));
  TESSERA_TRY(Plan plan, load_plan(out.recipe, smallest.graph));
  add_details(plan, smallest.graph, run);
  out.plan = to_toml(plan);
  out.gpus_a_node = run.gpus_a_node;
  out.cluster =
      fmt::format("{}:{}", run.machine.preset, (run.gpus + run.gpus_a_node - 1) / run.gpus_a_node);
  out.changes = run.framework.machine;
  out.style = style_text(run);
  out.memory = run.framework.memory;
  out.uncertainty_factor =
      assumed(run.framework.guessed ? "uncertainty_factor_guessed" : "uncertainty_factor");
  out.reasons = run.reasons;
  return out;
}

}  // namespace tessera
