// transformers: writes and reads TrainingArguments of the Trainer as JSON, with FSDP2.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/text.h"
#include "tessera/export/fsdp.h"
#include "tessera/export/structured.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kTransformers = "transformers";

Result<std::string> write_transformers(const ExportJob& job) {
  const ExportSettings& s = job.settings;
  TESSERA_TRY_VOID(check_fsdp(job, kTransformers));
  if (s.cp > 1) {
    return cannot_express(job, kTransformers, "cp",
                          "these arguments cut no sequences; Accelerate's YAML does");
  }
  if (s.replicas > 1) {
    return cannot_express(job, kTransformers, "replicas",
                          "these arguments shard over all ranks; Accelerate's YAML has groups");
  }
  Json out{{"output_dir", "output"},
           {"per_device_train_batch_size", s.micro_batch_size()},
           {"gradient_accumulation_steps", s.micro_batches},
           {"bf16", s.compute == DType::kBFloat16},
           {"fsdp", true},
           {"fsdp_config",
            {{"version", 2},
             {"reshard_after_forward", s.zero == 3},
             {"activation_checkpointing", s.recompute == "full"},
             {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}}}};
  return out.dump(2) + "\n";
}

// Reads whether the Trainer shards: `fsdp` was a list of words until 4, and is true or false since 5.
Status read_trainer_fsdp(const SaidValues& values, ExportSettings& s) {
  TESSERA_TRY(const bool blocks, values.flag("gradient_checkpointing", false));
  TESSERA_TRY(const bool newer, values.flag("activation_checkpointing", false));
  TESSERA_TRY(const bool inside, values.flag("fsdp_config.activation_checkpointing", false));
  if (blocks || newer || inside) s.recompute = "full";
  const std::string words = values.text("fsdp", "false");
  if (words == "false" || words == "False" || words.empty() || words == "[]") return {};
  const bool full = words == "true" || words == "True" || words.find("full_shard") == 0;
  const bool half = words.find("shard_grad_op") == 0;
  if (!full && !half)
    return values.refuse("fsdp", "true, false, full_shard or shard_grad_op (with auto_wrap)");
  TESSERA_TRY(const bool reshard, values.flag("fsdp_config.reshard_after_forward", full));
  set_fsdp(s, reshard, s.recompute == "full");
  return {};
}

Result<ExportSettings> settings_of_transformers(const SettingsRequest& request) {
  const SaidValues values(request.said, kTransformers);
  ExportSettings s;
  if (const std::string other = values.text("deepspeed", ""); !other.empty()) {
    return values.refuse("deepspeed",
                         "arguments without it: give that file itself, with numbers in "
                         "place of \"auto\"");
  }
  TESSERA_TRY(s.dp, ranks_of(request, "", "", kTransformers));
  TESSERA_TRY_VOID(read_trainer_fsdp(values, s));
  TESSERA_TRY(const bool brain, values.flag("bf16", false));
  TESSERA_TRY(const bool half, values.flag("fp16", false));
  if (brain) s.compute = DType::kBFloat16;
  if (half) s.compute = DType::kFloat16;
  // FSDP2 sums gradients in the type of the products there (Accelerate 1.15); DDP in float32.
  if (s.zero > 0) s.gradient = s.compute;
  constexpr int64_t kUsual = 8;  // the Trainer's default
  TESSERA_TRY(const int64_t size, values.number("per_device_train_batch_size", kUsual));
  TESSERA_TRY(s.micro_batches, values.number("gradient_accumulation_steps", 1));
  s.batch = size * s.micro_batches * s.replicas_of_batch();
  if (values.find("ddp_bucket_cap_mb") != nullptr) {
    TESSERA_TRY(const int64_t bucket, values.number("ddp_bucket_cap_mb", 1));
    s.bucket_bytes = bucket << 20;
  }
  return s;
}

}  // namespace

ExportTarget transformers_target() {
  ExportTarget out;
  out.name = kTransformers;
  out.summary = "TrainingArguments as JSON, with FSDP2";
  out.version = "transformers 5";
  out.fixes = fsdp_fixes();
  out.has_comments = false;
  out.write = write_transformers;
  out.scan = [](const std::string& text) { return keys_of_json(text, kTransformers); };
  out.settings = settings_of_transformers;
  out.start = [](const ExportJob& job) {
    return fmt::format(
        "torchrun {} train.py THIS_FILE, which reads it by "
        "HfArgumentParser(TrainingArguments).parse_json_file",
        launcher_flags(job));
  };
  out.style = "fsdp";
  out.endings = {".json"};
  out.grid.sharded = {2, 3};
  return out;
}

}  // namespace tessera
