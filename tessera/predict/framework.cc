#include "tessera/predict/framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/predict/architecture.h"
#include "tessera/predict/machine.h"

namespace tessera {
namespace {

// What runs do where their rows are silent: the options of another framework further up, a style of
// its own, and what differs, as the settings plan.KEY=VALUE of `tessera predict`.
struct FrameworkRow {
  std::string_view name, like, style, options;
};
constexpr std::array<FrameworkRow, 26> kFrameworks = {{
    // Megatron-LM until 2021 and Megatron-DeepSpeed: everything is computed again, softmax over
    // written scores, dropout as published, gradients reduced in one piece behind the backward
    // pass (buckets of 1 TiB).
    {"megatron-lm", "", "megatron",
     "vocab_multiple=128 recompute=full dropout=0.1 bucket_bytes=1099511627776 "
     "narrow_gradients=true"},
    {"megatron-deepspeed", "megatron-lm", "deepspeed", "dropout=0"},
    // The validation runs of vTrain: a vocabulary that is padded for tensor parallelism only. The
    // step times on one node are those of runs that computed nothing again (three forward passes'
    // worth in every stage), whatever the rows state.
    {"vtrain", "megatron-deepspeed", "deepspeed", "vocab_from_tp=2"},
    {"vtrain-node", "vtrain", "deepspeed", "recompute=none recompute_as_stated=false"},
    // Buckets of 40 M gradients.
    {"megatron-core", "", "megatron-core",
     "vocab_multiple=128 sequence_shard=true sharded_state=true interleaved=true fused_gating=true "
     "weigh_inside=true memory=allocated bucket_bytes=167772160"},
    // Published scaling studies overlap tensor parallelism.
    {"megatron-core-tuned", "megatron-core", "megatron-core,activation_overlap=0.5", ""},
    // Half of it is gone: attention and MLP side by side share a gathering.
    {"megascale", "megatron-core", "megatron-core,activation_overlap=0.75", ""},
    // NeMo of 2024: each product casts its own operand.
    {"nemo", "megatron-core", "nemo,cast_bytes=3",
     "narrow_gradients=true narrow_bf16_gradients=true"},
    // Tuned recipes: products and what tensor parallelism moves for them in rings of pieces.
    {"nemo-recipes", "nemo", "nemo,activation_overlap=0.75", ""},
    // NeMo-Megatron of 2022: before fused attention.
    {"nemo-megatron", "megatron-core", "megatron-core,fused_attention=false", ""},
    {"megatron-bridge", "nemo-recipes", "nemo,activation_overlap=0.75", ""},
    {"mlperf", "nemo", "nemo", ""},
    // Megatron-Core's sharded parameters: blocks in one piece.
    {"megatron-fsdp", "nemo", "nemo", "whole_blocks=true"},
    // Sequence parallelism and selective recompute as first published: unfused attention.
    {"megatron-sp", "megatron-core", "megatron",
     "sequence_shard=false sequence_shard_selective=true sharded_state=false dropout=0.1 "
     "bucket_bytes=1099511627776"},
    {"fsdp", "", "fsdp",
     "sharded_parameters=true whole_blocks=true sequence_shard=true narrow_gradients=true "
     "narrow_bf16_gradients=true"},
    // Its loss is one kernel that writes the gradient over the logits.
    {"llm-foundry", "fsdp", "fsdp,loss_saved=0,loss_workspace=0", ""},
    {"torchtitan", "", "torchtitan",
     "sharded_parameters=true whole_blocks=true sequence_shard=true interleaved=true "
     "keeps_gathered=true fused_gating=true memory=reserved"},
    {"internevo", "", "megatron-core", "whole_blocks=true sequence_shard=true fused_gating=true"},
    // Its 16-bit gradients are reduced as they are (communication_data_type), norms and biases stay
    // whole (stage3_param_persistence_threshold).
    {"deepspeed", "", "deepspeed", "prefetch=0 narrow_gradients=true persistent_elements=100000"},
    // Both since 2023: PyTorch with fused attention.
    {"deepspeed-fused", "deepspeed", "eager", ""},
    {"megatron-deepspeed-fused", "megatron-deepspeed", "megatron,fused_attention=true",
     "recompute=none"},
    // XLA of 2022: attention is written out; gradients are reduced into shards where replicas
    // share.
    {"alpa", "", "maxtext,fused_attention=false,attention_passes=4",
     "recompute=full sharded_state=true"},
    {"maxtext", "", "maxtext",
     "sharded_parameters=true whole_blocks=true sequence_shard=true narrow_gradients=true "
     "narrow_bf16_gradients=true fused_gating=true"},
    {"oneflow", "", "oneflow", "dropout=0.1"},
    {"mxnet", "", "compiled", "dropout=0.1"},
    {"pytorch-ddp", "", "eager", "dropout=0.1"},
}};

std::vector<Framework> make_frameworks() {
  std::vector<Framework> all;
  for (const FrameworkRow& row : kFrameworks) {
    const auto like = std::find_if(all.begin(), all.end(),
                                   [&](const Framework& known) { return known.name == row.like; });
    TESSERA_CHECK(row.like.empty() || like != all.end(), "framework '{}': '{}' is not above it",
                  row.name, row.like);
    Framework framework = like == all.end() ? Framework() : *like;
    framework.name = row.name;
    framework.style = row.style;
    for (const std::string& option : split_text(row.options, ' ')) {
      const size_t equals = option.find('=');
      if (option.empty()) continue;
      const Status set = set_option(framework, option.substr(0, equals), option.substr(equals + 1));
      TESSERA_CHECK(set.has_value(), "framework '{}': {}", row.name, set.error().message);
    }
    all.push_back(std::move(framework));
  }
  return all;
}

Framework named(std::string_view name) {
  const auto& all = all_frameworks();
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const Framework& known) { return known.name == name; });
  TESSERA_CHECK(it != all.end(), "no framework '{}'", name);
  return *it;
}

// Words in the name of a source and the framework they mean, and which one of its rows with sharded
// parameters ("": by their features); the first that is found counts.
struct Source {
  std::string_view word, framework, sharded = "";
};
constexpr std::array<Source, 50> kSources = {{
    {"vtrain measured single", "vtrain-node"},
    {"vtrain", "vtrain"},
    {"bigscience", "megatron-deepspeed"},
    {"bloom", "megatron-deepspeed"},
    {"megatron-deepspeed", "megatron-deepspeed"},
    {"mt-nlg", "megatron-deepspeed"},
    {"megatron-bridge", "megatron-bridge", "megatron-fsdp"},
    {"mlperf", "mlperf"},
    {"launcher", "nemo-megatron"},
    {"nemo", "nemo"},
    {"dgx cloud", "nemo-recipes", "maxtext"},
    {"transformer engine", "nemo"},
    {"(megatron-lm)", "megatron-core"},
    {"megascale", "megascale"},
    {"korthikanti", "megatron-sp"},
    {"sequence parallelism", "megatron-sp"},
    {"megatron-core", "megatron-core-tuned"},
    {"megatron core", "megatron-core-tuned"},
    {"simumax", "megatron-core"},
    {"megatron-llama", "megatron-core"},
    {"llm-foundry", "llm-foundry"},
    {"mosaic", "llm-foundry"},
    {"composer", "llm-foundry"},
    {"torchtitan", "torchtitan"},
    {"llama 3 paper", "torchtitan"},
    {"internevo", "internevo"},
    {"maxtext", "maxtext"},
    {"jax", "maxtext"},
    {"t5x", "maxtext"},
    {"oneflow", "oneflow"},
    {"mxnet", "mxnet"},
    {"megatron", "megatron-lm"},
    {"deepspeed", "deepspeed"},
    {"zero", "deepspeed"},
    {"colossal", "internevo"},
    {"llama paper", "fsdp"},
    {"fsdp", "fsdp"},
    {"ddp", "pytorch-ddp"},
    {"pytorch", "pytorch-ddp"},
    {"hugging", "fsdp"},
    {"lit-gpt", "fsdp"},
    {"lightning", "fsdp"},
    {"fairscale", "fsdp"},
    {"olmo", "fsdp"},
    {"neox", "megatron-deepspeed"},
    {"eleuther", "megatron-deepspeed"},
    {"nanotron", "megatron-core"},
    {"paxml", "maxtext"},
    {"levanter", "maxtext"},
    {"alpa", "alpa"},
}};

// Sites of sources whose machines had another network than the preset's; the first counts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kSites = {{
    {"vtrain", "link:nic*0.5"},  // eight NICs of 100 Gb/s a node
    // Jean Zay: four Omni-Path links of 100 Gb/s a node; A100s joined by four NVLinks each.
    {"bigscience bloom", "link:nic*0.25,link:inner*0.5"},
    {"bigscience", "link:nic*0.25"},
    {"dlperf", "link:nic*0.25"},      // one NIC of 100 Gb/s a node
    {"maxtext a3", "link:nic*0.25"},  // A3 VMs: four of 200 Gb/s
}};

// What is known of a row's machine; all as of a new one if its name is not known.
Machine machine_named(const std::string& gpu) { return find_machine(gpu).value_or(Machine()); }

// Of "megatron": a name that says no version; sharded states or late GPUs mean Megatron-Core.
bool is_late_megatron(const Row& row) {
  return !machine_named(row.gpu).early || row.zero.value_or(0) > 0 || row.cp.value_or(1) > 1 ||
         row.ep.value_or(1) > 1 || row.recompute.starts_with("selective");
}

// What frameworks have become, which trains models of today, and whatever runs on GPUs of today.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kSuccessors = {{
    {"deepspeed", "deepspeed-fused"},
    {"megatron-deepspeed", "megatron-deepspeed-fused"},
}};

std::string_view successor(std::string_view name, const Row& row, bool recent) {
  if (!recent && machine_named(row.gpu).early) return name;
  for (const auto& [before, now] : kSuccessors) {
    if (name == before) return now;
  }
  return name;
}

std::string_view by_features(const Row& row, bool recent) {
  const std::string dtype = lower_case(row.dtype);
  const bool narrow =
      dtype.find("fp8") != std::string::npos || dtype.find("fp4") != std::string::npos;
  if (row.zero.value_or(0) == 3)
    return dtype == "fp16" ? "deepspeed" : narrow ? "torchtitan" : "fsdp";
  // The frameworks of language models train no networks of images.
  if (const auto known = find_architecture(row.model); known && takes_images(*known))
    return row.zero.value_or(0) > 0 ? "deepspeed" : "pytorch-ddp";
  const Machine machine = machine_named(row.gpu);
  const bool late = !machine.early, tuned = machine.tuned;
  const bool bfloat = dtype.empty() ? machine.bfloat16 : dtype.find("bf") != std::string::npos;
  if (narrow) return tuned || machine.fp4 ? "nemo-recipes" : "nemo";
  if (row.tp.value_or(1) > 1 || row.pp.value_or(1) > 1 || row.ep.value_or(1) > 1) {
    // ZeRO beside tensor parallelism in fp16: before Megatron had a distributed optimizer.
    const bool old = !late && dtype == "fp16" && row.zero.value_or(0) > 0;
    if (old && !recent) return "megatron-deepspeed";
    if (tuned) return "megatron-core-tuned";
    return recent || is_late_megatron(row) ? "megatron-core" : "megatron-lm";
  }
  if (late) return tuned ? "megatron-core-tuned" : "megatron-core";
  if (row.zero.value_or(0) > 0) return bfloat ? "megatron-core" : "deepspeed";
  // A model of today, of which nothing else is said.
  const bool silent = !row.tp && !row.pp && !row.zero && row.gpus.value_or(1) > 1;
  return recent && silent && bfloat ? "fsdp" : "pytorch-ddp";
}

using Option =
    std::variant<bool Framework::*, double Framework::*, int64_t Framework::*,
                 std::string Framework::*, Recompute Framework::*, CountedMemory Framework::*>;
const std::vector<std::pair<std::string, Option>>& options() {
  static const std::vector<std::pair<std::string, Option>> all = {
      {"recompute", &Framework::recompute},
      {"recompute_last_stage", &Framework::recompute_last_stage},
      {"sequence_shard", &Framework::sequence_shard},
      {"sequence_shard_selective", &Framework::sequence_shard_selective},
      {"interleaved", &Framework::interleaved},
      {"sharded_state", &Framework::sharded_state},
      {"sharded_parameters", &Framework::sharded_parameters},
      {"gathers_once", &Framework::gathers_once},
      {"keeps_gathered", &Framework::keeps_gathered},
      {"narrow_gradients", &Framework::narrow_gradients},
      {"narrow_bf16_gradients", &Framework::narrow_bf16_gradients},
      {"fused_gating", &Framework::fused_gating},
      {"weigh_inside", &Framework::weigh_inside},
      {"memory", &Framework::memory},
      {"dropout", &Framework::dropout},
      {"bucket_bytes", &Framework::bucket_bytes},
      {"prefetch", &Framework::prefetch},
      {"persistent_elements", &Framework::persistent_elements},
      {"whole_blocks", &Framework::whole_blocks},
      {"vocab_multiple", &Framework::vocab_multiple},
      {"vocab_from_tp", &Framework::vocab_from_tp},
      {"recompute_as_stated", &Framework::recompute_as_stated},
      {"machine", &Framework::machine},
      {"style", &Framework::style}};
  return all;
}

Status set_value(Framework& framework, const Option& option, std::string_view value) {
  const auto number = parse_double(value);
  const auto wrong = [&](std::string_view expected) {
    return invalid_input(fmt::format("expected {}, found '{}'", expected, value));
  };
  if (const auto* flag = std::get_if<bool Framework::*>(&option)) {
    if (value != "true" && value != "false") return wrong("true or false");
    framework.** flag = value == "true";
  } else if (const auto* real = std::get_if<double Framework::*>(&option)) {
    if (!number || *number < 0 || *number >= 1) return wrong("a number from 0 to 1");
    framework.** real = *number;
  } else if (const auto* whole = std::get_if<int64_t Framework::*>(&option)) {
    if (!number || *number < 0 || *number > 1e15) return wrong("a whole number");
    framework.** whole = static_cast<int64_t>(*number);
  } else if (const auto* text = std::get_if<std::string Framework::*>(&option)) {
    framework.** text = std::string(value);
  } else if (const auto* counted = std::get_if<CountedMemory Framework::*>(&option)) {
    for (const CountedMemory what :
         {CountedMemory::kDevice, CountedMemory::kReserved, CountedMemory::kAllocated}) {
      if (memory_name(what) != value) continue;
      framework.** counted = what;
      return {};
    }
    return wrong("device, reserved or allocated");
  } else {
    for (const Recompute what :
         {Recompute::kNone, Recompute::kSelective, Recompute::kExperts, Recompute::kFull}) {
      if (recompute_name(what) != value) continue;
      framework.*std::get<Recompute Framework::*>(option) = what;
      return {};
    }
    return wrong("none, selective, experts or full");
  }
  return {};
}

}  // namespace

std::string_view recompute_name(Recompute what) {
  switch (what) {
    case Recompute::kNone: return "none";
    case Recompute::kSelective: return "selective";
    case Recompute::kExperts: return "experts";
    case Recompute::kFull: return "full";
  }
  return "";
}

std::string_view memory_name(CountedMemory what) {
  switch (what) {
    case CountedMemory::kDevice: return "device";
    case CountedMemory::kReserved: return "reserved";
    case CountedMemory::kAllocated: return "allocated";
  }
  return "";
}

const std::vector<Framework>& all_frameworks() {
  static const std::vector<Framework> frameworks = make_frameworks();
  return frameworks;
}

namespace {

Framework by_source(const Row& row, bool recent, std::string& reason) {
  const std::string source = lower_case(row.source);
  for (const auto& [word, name, sharded] : kSources) {
    if (source.find(word) == std::string::npos) continue;
    // Megatron's family shards no parameters: FSDP or a compiler does.
    if (named(name).vocab_multiple > 1 && named(name).style != "deepspeed" && row.zero == 3) {
      if (sharded.empty()) break;
      return named(sharded);
    }
    if (name == "megatron-lm" && (recent || is_late_megatron(row))) {
      reason = "megatron-core by model, GPU, ZeRO or recompute";
      return named("megatron-core");
    }
    // On Blackwell NeMo's recipes were tuned ones.
    if (name == "nemo" && machine_named(row.gpu).fp4) return named("nemo-recipes");
    return named(successor(name, row, recent));
  }
  const std::string_view name =
      machine_named(row.gpu).xla ? "maxtext" : successor(by_features(row, recent), row, recent);
  reason = fmt::format("framework {} by model, degrees, dtype and GPU", name);
  return named(name);
}

}  // namespace

Framework framework_of(const Row& row, std::string& reason, bool recent) {
  Framework framework = by_source(row, recent, reason);
  const std::string source = lower_case(row.source);
  for (const auto& [word, machine] : kSites) {
    if (source.find(word) == std::string::npos) continue;
    framework.machine = machine;
    break;
  }
  return framework;
}

std::vector<std::string> framework_options() {
  std::vector<std::string> names;
  for (const auto& [name, option] : options()) names.push_back(name);
  return names;
}

Status set_option(Framework& framework, std::string_view key, std::string_view value) {
  for (const auto& [name, option] : options()) {
    if (name != key) continue;
    if (auto status = set_value(framework, option, value); !status) {
      return invalid_input(fmt::format("plan option '{}': {}", key, status.error().message));
    }
    return {};
  }
  return invalid_input(fmt::format("unknown plan option '{}', did you mean '{}'?", key,
                                   nearest(key, framework_options())));
}

}  // namespace tessera
