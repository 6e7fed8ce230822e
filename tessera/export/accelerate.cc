// Accelerate: writes and reads the YAML of `accelerate launch --config_file` with FSDP2. The sizes of
// batches are arguments of the script; they are a comment "# script: ..." that the reader reads.
#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/export/fsdp.h"
#include "tessera/export/structured.h"

namespace tessera {
namespace {

constexpr std::string_view kAccelerate = "accelerate";

Result<std::string> write_accelerate(const ExportJob& job) {
  const ExportSettings& s = job.settings;
  TESSERA_TRY_VOID(check_fsdp(job, kAccelerate));
  if (s.cp > 1 && (s.context != ContextForm::kGather || s.token_order != "zigzag")) {
    return cannot_express(job, kAccelerate, "context",
                          "its context ranks gather keys and values, and have two pieces of the "
                          "tokens each, one from either end");
  }
  std::string out;
  for (const std::string& line : heading(job, accelerate_target()))
    out += fmt::format("# {}\n", line);
  const int64_t ranks = s.ranks(), a_node = std::min(ranks, job.node_size);
  out += "# Start: accelerate launch --config_file THIS_FILE train.py\n";
  out += "# Sizes of batches are arguments of the script:\n";
  out += fmt::format("# script: micro_batch_size={} gradient_accumulation_steps={}\n",
                     s.micro_batch_size(), s.micro_batches);
  const auto add = [&](const char* key, const std::string& value, const std::string& comment,
                       std::string_view setting = "") {
    out += fmt::format("{}: {}  # {}{}\n", key, value, comment, line_of_setting(job, setting));
  };
  out += "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n";
  add("mixed_precision", s.compute == DType::kBFloat16 ? "bf16" : "'no'",
      "products and activations; gradients are summed in it too");
  add("num_machines", std::to_string((ranks + a_node - 1) / a_node), "nodes");
  add("num_processes", std::to_string(ranks), "ranks on all nodes");
  out += "machine_rank: 0  # of each node its own\nfsdp_config:\n";
  add("  fsdp_version", "2", "fully_shard");
  add("  fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "blocks are gathered one by one");
  add("  fsdp_reshard_after_forward", s.zero == 3 ? "true" : "false",
      s.zero == 3 ? "parameters are gathered for either pass"
                  : "gathered parameters stay for the backward pass",
      "zero");
  add("  fsdp_activation_checkpointing", s.recompute == "full" ? "true" : "false",
      "whether blocks are made again in the backward pass", "recompute");
  add("  fsdp_offload_params", "false", "all stays on the devices");
  out += "  fsdp_state_dict_type: SHARDED_STATE_DICT\n";
  if (s.replicas == 1 && s.cp == 1) return out;
  out += "parallelism_config:\n";
  add("  parallelism_config_dp_replicate_size", std::to_string(s.replicas),
      "groups that hold all shards", "replicas");
  add("  parallelism_config_dp_shard_size", std::to_string(s.dp),
      "ranks that share parameters, beside context ranks", "zero");
  add("  parallelism_config_cp_size", std::to_string(s.cp), "ranks that share a sequence", "cp");
  if (s.cp > 1) {
    add("  parallelism_config_cp_comm_strategy", "allgather", "each rank gathers all keys",
        "context");
  }
  return out;
}

// Reads the precision, in which Accelerate sums gradients too (its set_mixed_precision of 1.15).
Status read_accelerate_precision(const SaidValues& values, ExportSettings& s) {
  const std::string precision = values.text("mixed_precision", "no");
  if (precision != "no" && precision != "bf16")
    return values.refuse("mixed_precision", "no or bf16");
  if (precision == "bf16") s.compute = s.gradient = DType::kBFloat16;
  return {};
}

Status read_accelerate_context(const SaidValues& values, ExportSettings& s) {
  constexpr const char* kStrategy = "parallelism_config.parallelism_config_cp_comm_strategy";
  const std::string strategy = values.text(kStrategy, "allgather");
  if (strategy != "allgather" && strategy != "alltoall")
    return values.refuse(kStrategy, "allgather or alltoall");
  if (s.cp > 1) s.context = strategy == "allgather" ? ContextForm::kGather : ContextForm::kRing;
  return {};
}

Result<ExportSettings> settings_of_accelerate(const SettingsRequest& request) {
  const SaidValues values(request.said, kAccelerate);
  ExportSettings s;
  const std::string kind = values.text("distributed_type", "NO");
  if (kind != "FSDP" && kind != "MULTI_GPU")
    return values.refuse("distributed_type", "FSDP or MULTI_GPU");
  TESSERA_TRY(const int64_t ranks, ranks_of(request, "", "num_processes", kAccelerate));
  const auto degree = [&](const char* name) {
    return values.number(fmt::format("parallelism_config.parallelism_config_{}", name), 1);
  };
  TESSERA_TRY(s.replicas, degree("dp_replicate_size"));
  TESSERA_TRY(s.cp, degree("cp_size"));
  TESSERA_TRY(const int64_t tp, degree("tp_size"));
  if (tp > 1) {
    return values.refuse("parallelism_config.parallelism_config_tp_size",
                         "1: which layers its tensor ranks share is in the model's code");
  }
  TESSERA_TRY(s.dp, replicas_left(ranks, s.replicas * s.cp, kAccelerate));
  TESSERA_TRY_VOID(read_accelerate_context(values, s));
  TESSERA_TRY_VOID(read_accelerate_precision(values, s));
  if (kind == "FSDP") {
    constexpr const char* kVersion = "fsdp_config.fsdp_version";
    TESSERA_TRY(const int64_t version, values.number(kVersion, 1));
    constexpr const char* kReshard = "fsdp_config.fsdp_reshard_after_forward";
    const std::string word =
        values.text(kReshard, values.text("fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"));
    const bool full = word == "true" || word == "FULL_SHARD" || word == "1";
    const bool half = word == "false" || word == "SHARD_GRAD_OP" || word == "2";
    if (version > 2) return values.refuse(kVersion, "1 or 2");
    if (!full && !half)
      return values.refuse(kReshard, "true or false, or FULL_SHARD or SHARD_GRAD_OP of FSDP1");
    TESSERA_TRY(const bool again, values.flag("fsdp_config.fsdp_activation_checkpointing", false));
    set_fsdp(s, full, again);
  }
  TESSERA_TRY(const int64_t size, values.number("script.micro_batch_size", 1));
  TESSERA_TRY(s.micro_batches, values.number("script.gradient_accumulation_steps", 1));
  s.batch = size * s.micro_batches * s.replicas_of_batch();
  return s;
}

}  // namespace

ExportTarget accelerate_target() {
  ExportTarget out;
  out.name = kAccelerate;
  out.summary = "the YAML of accelerate launch, with FSDP2";
  out.version = "Accelerate 1.10 to 1.15";
  out.fixes = fsdp_fixes();
  out.write = write_accelerate;
  out.scan = [](const std::string& text) { return keys_of_yaml(text, kAccelerate); };
  out.settings = settings_of_accelerate;
  out.style = "fsdp";
  out.endings = {".yaml", ".yml"};
  out.grid.context = {{"seq"}};
  out.grid.sharded = {2, 3};
  return out;
}

}  // namespace tessera
