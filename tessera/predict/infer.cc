#include "tessera/predict/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "tessera/base/text.h"
#include "tessera/cost/style.h"
#include "tessera/predict/assumptions.h"
#include "tessera/predict/estimate.h"
#include "tessera/predict/infer_model.h"

namespace tessera {
namespace {

bool fits(const Run& run) {
  return estimated_bytes(run) <=
         assumed("usable_memory") * static_cast<double>(run.machine.memory_bytes);
}

// ---- precision

Status set_arithmetic(Run& run, const Row& row) {
  if (row.dtype.empty()) {
    run.arithmetic = run.machine.bfloat16 ? Arithmetic::kBf16 : Arithmetic::kFp16;
    run.reasons.push_back(fmt::format("dtype {}", arithmetic_name(run.arithmetic)));
  } else if (row.dtype.arithmetic) {
    run.arithmetic = *row.dtype.arithmetic;
  } else {
    return invalid_input(fmt::format("the dtype '{}' is not known", row.dtype.text));
  }
  const auto replace = [&run](Arithmetic from, bool has_it, Arithmetic with) {
    if (run.arithmetic != from || has_it) return;
    run.arithmetic = with;
    run.reasons.push_back(fmt::format("{} in place of {}, which the GPU has not",
                                      arithmetic_name(with), arithmetic_name(from)));
  };
  replace(Arithmetic::kFp4, run.machine.fp4, Arithmetic::kFp8);
  replace(Arithmetic::kFp8, run.machine.fp8, Arithmetic::kBf16);
  replace(Arithmetic::kBf16, run.machine.bfloat16, Arithmetic::kFp16);
  replace(Arithmetic::kFp16, run.machine.float16, Arithmetic::kBf16);
  replace(Arithmetic::kTf32, run.machine.tf32, Arithmetic::kFp32);
  return {};
}

// ---- degrees

// A choice of tensor parallelism and pipeline stages.
struct Degrees {
  int64_t tp = 1, pp = 1;
};

// Returns all choices of degrees for which the GPUs make a whole number of replicas, smaller
// degrees first. A degree that the row states is fixed. If tp is open, it is at most the GPUs of a
// node. If pp is open, it divides the layers, or gives exactly the number of replicas that the row
// states.
std::vector<Degrees> possible_degrees(const Run& run, const Row& row) {
  const bool tp_open = !row.tp, pp_open = !row.pp;
  std::vector<Degrees> all;
  const int64_t most_tp =
      tp_open ? std::min({assumed_whole("most_tensor_parallelism"), run.gpus_a_node, run.gpus})
              : run.tp;
  for (int64_t pp = run.pp; pp <= (pp_open ? run.model.layers : run.pp); ++pp) {
    const bool even = run.model.layers % pp == 0 || pp == run.pp;
    for (int64_t tp = run.tp; tp <= most_tp; tp *= 2) {
      const int64_t shared = tp * pp * run.cp;
      if (run.gpus % shared != 0) continue;
      if (even || (row.dp && shared * *row.dp == run.gpus)) all.push_back({tp, pp});
    }
  }
  return all;
}

// Sets ZeRO stage 1 if the row states no stage and either the framework usually does so or the
// states of a replica do not fit on the devices otherwise.
void take_usual_zero(Run& run, const Row& row) {
  if (row.zero || run.zero > 1 || run.lora > 0) return;
  const double memory = static_cast<double>(run.machine.memory_bytes);
  const bool needed = estimated_state_bytes(run, false) > memory;
  run.zero = (run.framework.sharded_state || needed) && run.dp * run.cp > 1 ? 1 : 0;
}

// Chooses the degrees that the row does not state. Prefers choices that leave the stated number of
// replicas, a number of replicas that ep divides, and a whole number of sequences for each replica.
// Takes the first of these choices with which the run fits in memory, or the last one if none fits.
void choose_degrees(Run& run, const Row& row) {
  std::vector<Degrees> possible = possible_degrees(run, row);
  const auto replicas = [&run](const Degrees& one) {
    return run.gpus / (one.tp * one.pp * run.cp);
  };
  const auto keep = [&possible](const auto& wanted) {
    std::vector<Degrees> kept;
    std::copy_if(possible.begin(), possible.end(), std::back_inserter(kept), wanted);
    if (!kept.empty()) possible = std::move(kept);
  };
  if (row.dp) keep([&](const Degrees& one) { return replicas(one) == *row.dp; });
  keep([&](const Degrees& one) { return replicas(one) % run.ep == 0; });
  // Each replica must get the same number of whole sequences. If a step has fewer sequences than
  // nodes, set_batch() cuts the sequences instead, and any number of replicas is possible.
  if (row.global_batch && *row.global_batch * run.gpus_a_node >= run.gpus) {
    keep([&](const Degrees& one) { return *row.global_batch % replicas(one) == 0; });
  }
  for (const Degrees& one : possible) {
    run.tp = one.tp;
    run.pp = one.pp;
    run.dp = replicas(one);
    take_usual_zero(run, row);
    if (fits(run)) return;
  }
}

// Sets ep if the row does not state it: divides the experts of a mixture over the smallest number
// of replicas with which the run fits in memory.
void choose_experts(Run& run, const Row& row) {
  if (row.ep || !has_experts(run.model) || fits(run)) return;
  const int64_t before = run.ep;
  while (!fits(run) && run.dp % (2 * run.ep) == 0 && run.model.experts % (2 * run.ep) == 0) {
    run.ep *= 2;
  }
  if (run.ep != before)
    run.reasons.push_back(fmt::format("ep = {}: the smallest that fits", run.ep));
}

// Reduces gpus_a_node for a run whose GPUs are not a whole number of nodes (a rack of 18 trays of
// which 16 are used), so that all nodes have the same number of GPUs. Does nothing if that would
// leave half of a node or less.
void place_evenly(Run& run, int64_t gpus) {
  if (gpus <= run.gpus_a_node || gpus % run.gpus_a_node == 0) return;
  int64_t used = run.gpus_a_node;
  while (gpus % used != 0) --used;
  if (used <= run.gpus_a_node / 2) return;
  run.reasons.push_back(fmt::format("{} of {} GPUs a node", used, run.gpus_a_node));
  run.gpus_a_node = used;
}

Status set_degrees(Run& run, const Row& row) {
  run.gpus_a_node = row.gpus_a_node.value_or(run.machine.gpus_a_node);
  if (run.machine.joined && run.gpus_a_node != run.machine.gpus_a_node) {
    run.gpus_a_node = run.machine.gpus_a_node;
    run.reasons.push_back(fmt::format("{} chips a node, not {}: those that the interconnect joins",
                                      run.gpus_a_node, *row.gpus_a_node));
  }
  if (!row.gpus_a_node) run.reasons.push_back(fmt::format("{} GPUs a node", run.gpus_a_node));
  if (row.gpus) place_evenly(run, *row.gpus);
  run.tp = row.tp.value_or(1);
  run.pp = row.pp.value_or(1);
  run.cp = row.cp.value_or(1);
  if (row.gpus) {
    run.gpus = *row.gpus;
  } else if (row.dp) {
    run.gpus = run.tp * run.pp * run.cp * *row.dp;
    run.reasons.push_back(fmt::format("{} GPUs = tp pp cp dp", run.gpus));
  } else {
    return invalid_input("neither the number of GPUs nor dp is stated");
  }
  if (run.gpus < run.gpus_a_node && !row.gpus_a_node) run.gpus_a_node = run.machine.gpus_a_node;
  run.zero = row.zero.value_or(0);
  if (run.framework.sharded_parameters && !row.zero && !row.tp && !row.pp && run.gpus > 1) {
    run.zero = 3;
    run.reasons.emplace_back("zero = 3 (sharded parameters)");
  }
  if (run.zero > 3)
    return invalid_input(fmt::format("expected zero from 0 to 3, found {}", run.zero));
  run.ep = has_experts(run.model) ? row.ep.value_or(1) : 1;
  if (!row.tp || !row.pp) {
    choose_degrees(run, row);
    run.reasons.push_back(fmt::format("tp = {}, pp = {}: the smallest that fit", run.tp, run.pp));
  }
  const int64_t shared = run.tp * run.pp * run.cp;
  if (run.gpus % shared != 0) {
    return invalid_input(
        fmt::format("tp {} pp {} cp {} do not divide {} GPUs", run.tp, run.pp, run.cp, run.gpus));
  }
  run.dp = run.gpus / shared;
  if (!row.dp) {
    run.reasons.push_back(fmt::format("dp = {} = GPUs / (tp pp cp)", run.dp));
  } else if (*row.dp != run.dp) {
    run.reasons.push_back(
        fmt::format("dp = {} = GPUs / (tp pp cp), not {} as stated", run.dp, *row.dp));
  }
  take_usual_zero(run, row);
  if (!row.zero && run.zero == 1) {
    run.reasons.emplace_back(run.framework.sharded_state ? "zero = 1 (distributed optimizer)"
                                                         : "zero = 1: whole states do not fit");
  }
  choose_experts(run, row);
  return {};
}

// ---- low-rank fine-tuning

void train_low_rank(Run& run, int64_t rank, bool mlp, std::string_view why) {
  run.lora = rank;
  run.lora_mlp = mlp;
  run.reasons.push_back(fmt::format("low-rank factors (LoRA) of rank {}: {}", run.lora, why));
}

bool can_train_low_rank(const Run& run) {
  return run.model.form == Form::kLlama || run.model.form == Form::kMixture;
}

// Finds out whether only low-rank factors are trained. The row's column decides first, then words
// in names and notes, then the batch: a llama with at most one sequence a GPU is the fine-tuning
// benchmark of MLPerf. The benchmark trains factors for the products of attention; other runs train
// factors for all products of a block.
Status find_low_rank(Run& run, const Row& row) {
  if (row.lora == 0) return {};
  const bool mlp = !run.framework.benchmark_fine_tuning;
  StatedLowRank said;
  std::string where;
  for (const auto& [name, text] :
       {std::pair("by the name of the model", std::string_view(row.model)),
        std::pair("by the name of the source", std::string_view(row.source)),
        std::pair("by the notes", std::string_view(row.notes))}) {
    const StatedLowRank own = low_rank_in(text);
    if (!own.trains) continue;
    if (where.empty()) where = name;
    said.trains = true;
    said.narrow_base = said.narrow_base || own.narrow_base;
    if (!said.rank) said.rank = own.rank;
  }
  if (row.lora) where = "as stated";
  if ((row.lora || said.trains) && !can_train_low_rank(run)) {
    return invalid_input(
        fmt::format("low-rank factors (LoRA) are built for Llama and Mixtral, and not for '{}'",
                    run.model.name));
  }
  if (said.narrow_base)
    run.reasons.emplace_back("QLoRA priced as LoRA: what is not trained in 16 bits, not in 4");
  const int64_t usual = assumed_whole("lora_rank");
  const bool benchmark = run.framework.benchmark_fine_tuning && row.global_batch &&
                         run.model.form == Form::kLlama &&
                         *row.global_batch <= row.gpus.value_or(1);
  if (row.lora || said.trains) {
    train_low_rank(run, row.lora.value_or(said.rank.value_or(usual)), mlp, where);
  } else if (benchmark) {
    train_low_rank(run, usual, false, "the benchmark's fine-tuning");
  }
  return {};
}

// Assumes low-rank factors if the states of all parameters do not fit on the devices, because the
// published run cannot have trained all parameters.
void check_states(Run& run, const Row& row) {
  const double states = estimated_state_bytes(run);
  const bool possible =
      states <= assumed("surely_too_much_memory") * static_cast<double>(run.machine.memory_bytes);
  if (run.lora == 0 && row.lora != 0 && !possible && run.model.form == Form::kLlama &&
      run.zero <= 1) {
    train_low_rank(run, assumed_whole("lora_rank"), true,
                   fmt::format("states of all parameters are {:.0f} GB a GPU", states / 1e9));
  }
  // Low-rank factors have so few states that they are not sharded.
  if (run.lora > 0 && run.zero < 3) run.zero = 0;
}

// ---- batch and recompute

// Returns whether the recipes support kExperts for this model. They do for hybrids with experts.
bool knows_experts(const Run& run) {
  return run.model.form == Form::kHybrid && has_experts(run.model);
}
// Returns the strongest recomputation that is assumed for a row that states none. Frameworks that
// interleave stages have selective recomputation, and published runs with them use it. So full
// recomputation is not assumed for them, even if the estimated memory is too large.
Recompute most_recompute(const Run& run) {
  if (!run.framework.interleaved) return Recompute::kFull;
  return knows_experts(run) ? Recompute::kExperts : Recompute::kSelective;
}

// Returns the next stronger recomputation than the run's; full is the strongest.
Recompute more(const Run& run) {
  switch (run.recompute) {
    case Recompute::kNone: return Recompute::kSelective;
    case Recompute::kSelective: return knows_experts(run) ? Recompute::kExperts : Recompute::kFull;
    case Recompute::kExperts:
    case Recompute::kFull: break;
  }
  return Recompute::kFull;
}

// Returns the recomputation that the row states, or the framework's if the framework ignores
// statements. Returns nothing if the row states none.
std::optional<Recompute> stated_recompute(Run& run, const Row& row) {
  if (!run.framework.recompute_as_stated) return run.framework.recompute;
  if (!row.recompute.what) return std::nullopt;
  const bool as_full = *row.recompute.what == Recompute::kExperts && !knows_experts(run);
  if (!row.recompute.known || as_full)
    run.reasons.push_back(fmt::format("recompute '{}' taken as full", row.recompute.text));
  return as_full ? Recompute::kFull : *row.recompute.what;
}

// Chooses the recomputation if the row states none. Begins with the framework's and takes the next
// stronger until the run fits in memory or most_recompute() is reached.
void choose_recompute(Run& run) {
  run.recompute = run.framework.recompute;
  while (run.recompute < most_recompute(run) && !fits(run)) run.recompute = more(run);
  run.reasons.push_back(fmt::format("recompute {} ({})", recompute_name(run.recompute),
                                    run.recompute == run.framework.recompute
                                        ? "usual of " + run.framework.name
                                        : std::string("the least that fits")));
}

// Chooses the sequences of a micro-batch if the row does not state them: the largest power of two
// that divides the replica's sequences, fits in memory and is at most most_microbatch
// (assumptions.toml). With pipeline stages a micro-batch has more than one sequence only if at
// least 8 micro-batches for each stage remain.
int64_t choose_microbatch(Run run, int64_t of_replica, bool recompute_open) {
  int64_t best = 1;
  for (int64_t b = 1; b <= std::min(of_replica, assumed_whole("most_microbatch")); b *= 2) {
    if (of_replica % b != 0) break;
    if (run.pp > 1 && of_replica / b < 8 * run.pp && b > 1) break;
    run.microbatch = b;
    run.micro_batches = of_replica / b;
    if (recompute_open) run.recompute = Recompute::kFull;
    if (b > 1 && !fits(run)) break;
    best = b;
  }
  return best;
}

// Returns the batch if the row states none. For images it is a usual number for each replica. For
// sequences it has a usual number of tokens, and, with stages, at least 4 micro-batches for each
// stage.
int64_t usual_batch(const Run& run, bool microbatch_known) {
  if (takes_images(run.model))
    return run.dp * (microbatch_known ? run.microbatch : assumed_whole("images_a_replica"));
  const bool small = parameter_count(run.model) < assumed("small_model_parameters");
  const double tokens = assumed(small ? "small_model_tokens" : "large_model_tokens");
  const int64_t unit = run.dp * run.microbatch;
  const int64_t least = run.pp > 1 ? 4 * run.pp : 1;
  const auto wanted = static_cast<int64_t>(tokens / static_cast<double>(run.seq * unit));
  int64_t count = std::max(wanted, least);
  if (run.pp > 1) count = (count + run.pp - 1) / run.pp * run.pp;
  return unit * count;
}

// Sets vpp, the number of chunks of a stage. If the row does not state it and the framework
// interleaves, takes chunks of two blocks, or else of 1, 3 or 4 blocks, if these divide the layers.
void set_chunks(Run& run, const Row& row) {
  run.vpp = run.pp > 1 ? row.vpp.value_or(1) : 1;
  if (row.vpp || run.pp == 1 || !run.framework.interleaved) return;
  if (has_experts(run.model) || run.micro_batches % run.pp != 0) return;
  for (const int64_t blocks : {2, 1, 3, 4}) {
    // All chunks have `blocks` blocks, but the first and the last may have one less.
    const int64_t of_round = run.pp * blocks, missing = -run.model.layers % of_round;
    if (missing != 0 && of_round + missing > 2) continue;
    run.vpp = (run.model.layers + of_round - 1) / of_round;
    break;
  }
  if (run.vpp > 1) run.reasons.push_back(fmt::format("vpp = {}", run.vpp));
}

// Sets global_batch, microbatch and micro_batches. Rounds the stated batch to whole micro-batches
// of whole sequences.
void set_batch(Run& run, const Row& row) {
  const bool recompute_open = row.recompute.empty() && run.framework.recompute != Recompute::kNone;
  if (row.microbatch) run.microbatch = *row.microbatch;
  if (!row.global_batch) {
    run.global_batch = usual_batch(run, row.microbatch.has_value());
    run.reasons.push_back(fmt::format("global batch {} (usual)", run.global_batch));
  } else {
    run.global_batch = *row.global_batch;
  }
  // If a step has fewer sequences than replicas, some replicas become context parallelism, which
  // cuts the sequences.
  if (run.global_batch < run.dp && run.dp % run.global_batch == 0) {
    run.cp *= run.dp / run.global_batch;
    run.dp = run.global_batch;
    run.reasons.push_back(
        fmt::format("dp = {}, cp = {}: a step has {} sequences", run.dp, run.cp, run.global_batch));
  }
  const int64_t of_replica = std::max<int64_t>(1, run.global_batch / run.dp);
  if (!row.microbatch) {
    run.microbatch =
        takes_images(run.model) ? of_replica : choose_microbatch(run, of_replica, recompute_open);
    run.reasons.push_back(fmt::format("micro-batch {}", run.microbatch));
  }
  run.microbatch = std::min(run.microbatch, of_replica);
  run.micro_batches = std::max<int64_t>(1, (of_replica + run.microbatch / 2) / run.microbatch);
  // If the replicas have too few long sequences to fill the stages, the run must have cut its
  // sequences.
  if (run.pp > 1 && run.micro_batches < run.pp && run.cp == 1 && run.dp > 1 &&
      run.seq >= assumed_whole("long_sequence")) {
    run.cp = run.dp;
    run.dp = 1;
    run.micro_batches = run.global_batch / run.microbatch;
    run.reasons.push_back(fmt::format("cp = {} in place of dp: sequences of {}", run.cp, run.seq));
  }
  const int64_t batch = run.dp * run.microbatch * run.micro_batches;
  if (batch == run.global_batch) return;
  run.reasons.push_back(
      fmt::format("batch {} in place of {}: whole micro-batches", batch, run.global_batch));
  // The run keeps the stated global_batch, and the predicted step time is later scaled from `batch`
  // to it (Expressed::step_scale). But if there are more replicas than sequences, global_batch
  // becomes `batch`, so that nothing is scaled: idle replicas do not make a step shorter.
  if (run.global_batch < run.dp) run.global_batch = batch;
}

// Checks that a network of images is split only over its batch and its blocks, because the recipes
// support nothing else.
Status check_images(const Run& run) {
  if (!takes_images(run.model) || run.tp * run.cp == 1) return {};
  return invalid_input(fmt::format(
      "'{}' is split over its batch and its blocks only: expected tp = cp = 1, found {} and {}",
      run.model.name, run.tp, run.cp));
}

}  // namespace

bool shards_sequence(const Run& run) {
  return run.framework.sequence_shard ||
         (run.framework.sequence_shard_selective && run.recompute == Recompute::kSelective);
}

bool narrow_gradients(const Run& run) {
  return run.arithmetic == Arithmetic::kFp16 ? run.framework.narrow_gradients
                                             : run.framework.narrow_bf16_gradients;
}

std::optional<Lighter> lighter(const Row& row, const Run& run) {
  Lighter out{row, ""};
  if (!row.microbatch && run.microbatch > 1) {
    out.row.microbatch = run.microbatch / 2;
    out.change = fmt::format("micro-batch {}", run.microbatch / 2);
  } else if (row.recompute.empty() && run.framework.recompute_as_stated &&
             run.recompute < most_recompute(run)) {
    out.row.recompute = recompute_name(more(run));
    out.change = fmt::format("recompute {}", out.row.recompute.text);
  } else {
    return std::nullopt;
  }
  return out;
}

Result<Run> infer(const Row& row, const std::vector<FrameworkOption>& options) {
  if (!row.problem.empty()) return invalid_input(row.problem);
  Run run;
  TESSERA_TRY(run.model, infer_model(row, run.reasons));
  const auto add = [&run](std::string& reason) {
    if (!reason.empty()) run.reasons.push_back(std::move(reason));
    reason.clear();
  };
  std::string reason;
  TESSERA_TRY(run.machine, machine_of(row, reason));
  add(reason);
  // A model with gated blocks counts as recent, because such blocks came into use in 2023, at the
  // same time as frameworks with fused attention.
  run.framework = framework_of(row, reason, run.model.form == Form::kLlama);
  add(reason);
  for (const FrameworkOption& option : options) {
    if (!option.framework.empty() && option.framework != run.framework.name) continue;
    TESSERA_TRY_VOID(set_option(run.framework, option.key, option.value));
  }
  // If the kernels of the framework's fused attention do not support this GPU, attention is not
  // fused.
  if (const auto style = parse_style(run.framework.style); run.framework.flash_attention &&
                                                           !run.machine.flash_attention && style &&
                                                           style->fused_attention) {
    run.framework.style += ",fused_attention=false";
    run.reasons.push_back(
        fmt::format("attention is not fused: its kernels in {} need a newer GPU than {}",
                    run.framework.name, row.gpu));
  }
  TESSERA_TRY_VOID(find_low_rank(run, row));
  if (takes_images(run.model)) {
    run.seq = 1;
    if (!row.seq) run.reasons.push_back(fmt::format("images of {0} x {0}", run.model.seq));
  } else {
    run.seq = row.seq.value_or(run.model.seq > 0 ? run.model.seq : assumed_whole("usual_sequence"));
    if (!row.seq) run.reasons.push_back(fmt::format("seq {}", run.seq));
  }
  TESSERA_TRY_VOID(set_arithmetic(run, row));
  const std::optional<Recompute> recompute = stated_recompute(run, row);
  run.recompute = recompute.value_or(Recompute::kNone);
  TESSERA_TRY_VOID(set_degrees(run, row));
  check_states(run, row);
  // The micro-batch is chosen as if nothing was computed again, because published runs with
  // recomputation do not use the memory that it saves for larger micro-batches.
  run.recompute = Recompute::kNone;
  set_batch(run, row);
  TESSERA_TRY_VOID(check_images(run));
  set_chunks(run, row);
  if (recompute) {
    run.recompute = *recompute;
  } else {
    choose_recompute(run);
  }
  return run;
}

}  // namespace tessera
