// DeepSpeed: writes and reads its JSON configuration. JSON has no comments, so notes are printed
// instead. For some settings DeepSpeed's JSON has no key; for example, stages are an argument of
// PipelineModule. These settings are written under keys that DeepSpeed's configuration class reads,
// but that no other part of DeepSpeed uses. docs/reference/export.md says which code reads them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/text.h"
#include "tessera/export/structured.h"
#include "tessera/export/target.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kDeepSpeed = "deepspeed";

class SpeedWriter {
 public:
  explicit SpeedWriter(const ExportJob& job) : job_(job), s_(job.settings) {}

  Result<std::string> run() {
    // DeepSpeed counts tensor ranks among the replicas from which it checks train_batch_size
    // (config.py of 0.19.8). So with tensor ranks the key is left out, and DeepSpeed computes the
    // number itself.
    if (s_.tp == 1) out_["train_batch_size"] = s_.batch;
    out_["train_micro_batch_size_per_gpu"] = s_.micro_batch_size();
    out_["gradient_accumulation_steps"] = s_.micro_batches;
    TESSERA_TRY_VOID(zero());
    TESSERA_TRY_VOID(inside_a_layer());
    TESSERA_TRY_VOID(pipeline());
    TESSERA_TRY_VOID(recompute());
    if (s_.compute == DType::kBFloat16) out_["bf16"] = {{"enabled", true}};
    if (s_.compute == DType::kFloat16) out_["fp16"] = {{"enabled", true}};
    if (s_.compute != DType::kFloat32) {
      const char* gradient = s_.gradient == DType::kFloat32    ? "fp32"
                             : s_.gradient == DType::kBFloat16 ? "bf16"
                                                               : "fp16";
      out_["data_types"] = {{"grad_accum_dtype", gradient}};
    }
    return out_.dump(2) + "\n";
  }

 private:
  tl::unexpected<Error> refuse(std::string_view setting, const std::string& why) const {
    return cannot_express(job_, kDeepSpeed, setting, why);
  }

  Status zero() {
    Json zero{{"stage", s_.zero}};
    if (s_.replicas > 1) {
      return refuse("replicas",
                    "it shards over all replicas; groups of them (MiCS) are gone since 0.19");
    }
    if (s_.bucket_bytes) zero["reduce_bucket_size"] = *s_.bucket_bytes / dtype_bytes(s_.gradient);
    if (s_.zero == 3) {
      if (s_.gathered_ahead > 1) {
        return refuse("gathered_ahead", fmt::format("it gathers ahead by a number of elements, of "
                                                    "which one block is written; the plan asks {}",
                                                    s_.gathered_ahead));
      }
      zero["stage3_prefetch_bucket_size"] = s_.gathered_ahead == 0 ? 0 : block_elements();
    }
    out_["zero_optimization"] = std::move(zero);
    return {};
  }

  // Returns the number of parameters of the model block that has the most.
  int64_t block_elements() const {
    std::map<int, int64_t> elements;
    for (const Op& op : job_.model.graph.ops()) {
      if (op.block < 0) continue;
      for (const TensorId input : op.inputs) {
        const Tensor& tensor = job_.model.graph.tensor(input);
        if (tensor.role == Role::kParameter) elements[op.block] += tensor.elements();
      }
    }
    int64_t most = 1;
    for (const auto& [block, count] : elements) most = std::max(most, count);
    return most;
  }

  Status inside_a_layer() {
    if (s_.ep > 1) {
      return refuse("ep",
                    "ranks that share experts are an argument of deepspeed.moe.layer.MoE in "
                    "the model's code, not of the JSON");
    }
    if (s_.stages_inside) {
      return refuse("mesh",
                    "its topology numbers ranks by pipe, data, model: replicas are nearer "
                    "than stages");
    }
    if (s_.tp > 1) {
      if (!s_.whole.contains("vocab") && !recipes::scopes_with_vocab(job_.model.graph).empty()) {
        return refuse("tp",
                      "its tensor ranks (AutoTP) share the products of attention and MLP; "
                      "embedding and head stay whole, which the plan cuts by vocab");
      }
      if (s_.whole.contains("heads") || s_.whole.contains("ffn")) {
        return refuse("tp",
                      "its tensor ranks (AutoTP) share the products of attention and MLP, "
                      "of which the plan leaves one whole");
      }
      if (s_.sequence_shard) {
        return refuse("sequence_shard",
                      "its tensor ranks do not cut tokens between the ops that "
                      "they share");
      }
      if (s_.zero == 3) return refuse("zero", "its tensor ranks take ZeRO up to stage 2");
      if (s_.pp > 1) return refuse("pp", "its tensor ranks (AutoTP) stand beside no pipeline");
      out_["tensor_parallel"] = {{"autotp_size", s_.tp}};
    }
    if (s_.cp == 1) return {};
    if (s_.context != ContextForm::kHeads) {
      return refuse("cp",
                    "its sequence parallelism cuts heads in attention (Ulysses); it neither passes "
                    "keys around nor gathers them");
    }
    out_["sequence_parallel_size"] = s_.cp;
    out_["data_parallel_size"] = s_.dp;
    return check_divisions(job_, kDeepSpeed, {{"seq", "tokens", s_.cp, "cp"}});
  }

  Status pipeline() {
    if (s_.schedule != "1f1b")
      return refuse("schedule", "its pipeline runs 1f1b, one stage a rank");
    if (s_.pp == 1) return {};
    if (s_.zero >= 2) return refuse("zero", "its pipeline takes ZeRO up to stage 1");
    const int64_t layers = recipes::block_count(job_.model.graph);
    if (!s_.blocks.empty() || layers % s_.pp != 0) {
      return refuse("blocks", fmt::format("its pipeline shares the {} blocks evenly over {} stages",
                                          layers, s_.pp));
    }
    out_["pipeline"] = {{"stages", s_.pp}, {"partition", "type:block"}};
    return {};
  }

  Status recompute() {
    if (s_.recompute == "none") return {};
    if (s_.recompute != "full") {
      return refuse("recompute",
                    fmt::format("it makes whole blocks again; the plan makes '{}'", s_.recompute));
    }
    if (s_.pp > 1) {
      out_["pipeline"]["activation_checkpoint_interval"] = 1;
    } else {
      out_["activation_checkpointing"] = {
          {"number_checkpoints", recipes::block_count(job_.model.graph)}};
    }
    return {};
  }

  const ExportJob& job_;
  const ExportSettings& s_;
  Json out_ = Json::object();
};

// Returns the number of a key, which may be written as 5e8. Returns `otherwise` if the text does not
// have it or has "auto", which transformers fills in.
Result<int64_t> number_of(const SaidValues& values, std::string_view key, int64_t otherwise,
                          int64_t least = 1) {
  const std::string text = values.text(key, "auto");
  if (text == "auto") return otherwise;
  const auto whole = parse_int(text);
  if (whole && *whole >= least) return *whole;
  const auto real = parse_double(text);
  constexpr double kMost = 1e15;
  if (!whole && real && *real >= static_cast<double>(least) && *real < kMost)
    return static_cast<int64_t>(*real);
  return values.refuse(key, fmt::format("a number of at least {}", least));
}

// Reads the three keys about the batch. If one is missing, it is computed from the others, as
// DeepSpeed does (config.py of 0.19.8). DeepSpeed's number of replicas includes tensor ranks.
Status read_batch(const SaidValues& values, ExportSettings& s) {
  constexpr int64_t kNone = 0;
  const int64_t replicas = s.dp * s.tp;
  TESSERA_TRY(int64_t batch, number_of(values, "train_batch_size", kNone));
  TESSERA_TRY(int64_t size, number_of(values, "train_micro_batch_size_per_gpu", kNone));
  TESSERA_TRY(int64_t steps, number_of(values, "gradient_accumulation_steps", kNone));
  if (batch == kNone && size == kNone &&
      values.text("train_micro_batch_size_per_gpu", "") == "auto") {
    return values.refuse("train_micro_batch_size_per_gpu",
                         "a number: transformers fills it in from TrainingArguments, whose "
                         "per_device_train_batch_size is to be written here");
  }
  if (batch == kNone) {
    size = std::max<int64_t>(size, 1);
    steps = std::max<int64_t>(steps, 1);
    batch = size * steps * replicas;
  } else if (size == kNone) {
    steps = std::max<int64_t>(steps, 1);
    size = batch / replicas / steps;
  } else if (steps == kNone) {
    steps = batch / size / replicas;
  }
  if (size < 1 || steps < 1 || batch != size * steps * replicas) {
    return invalid_input(
        fmt::format("deepspeed: expected train_batch_size {} (micro-batch {} x {} steps x {} "
                    "replicas), found {}",
                    size * steps * replicas, size, steps, replicas, batch));
  }
  s.micro_batches = steps;
  s.batch = size * steps * s.dp;
  return {};
}

Result<bool> enabled(const SaidValues& values, std::string_view key) {
  if (values.text(key, "false") == "auto") {
    return values.refuse(key,
                         "true or false: transformers fills it in from bf16 and fp16 of "
                         "TrainingArguments, of which one is to be written here");
  }
  return values.flag(key, false);
}

Status read_speed_precision(const SaidValues& values, ExportSettings& s) {
  TESSERA_TRY(const bool brain, enabled(values, "bf16.enabled"));
  TESSERA_TRY(const bool older, enabled(values, "bfloat16.enabled"));
  TESSERA_TRY(const bool half, enabled(values, "fp16.enabled"));
  if (brain || older) s.compute = DType::kBFloat16;
  if (half) s.compute = DType::kFloat16;
  constexpr const char* kGradient = "data_types.grad_accum_dtype";
  const std::string gradient = values.text(kGradient, "fp32");
  if (gradient != "fp32" && gradient != "bf16" && gradient != "fp16")
    return values.refuse(kGradient, "fp32, bf16 or fp16");
  if (gradient == "bf16") s.gradient = DType::kBFloat16;
  if (gradient == "fp16") s.gradient = DType::kFloat16;
  return {};
}

Status read_speed_zero(const SaidValues& values, ExportSettings& s) {
  TESSERA_TRY(s.zero, number_of(values, "zero_optimization.stage", 0, 0));
  if (s.zero > 3) return values.refuse("zero_optimization.stage", "a ZeRO stage of 0 to 3");
  TESSERA_TRY(const int64_t shard, number_of(values, "zero_optimization.mics_shard_size", 0, -1));
  if (shard > 0) {
    TESSERA_TRY(s.replicas, replicas_left(s.dp * s.cp, shard, kDeepSpeed));
    s.dp /= s.replicas;
  }
  if (s.zero == 3) {
    constexpr int64_t kUsual = 50'000'000;  // DeepSpeed's default
    TESSERA_TRY(const int64_t ahead,
                number_of(values, "zero_optimization.stage3_prefetch_bucket_size", kUsual, 0));
    s.gathered_ahead = ahead > 0 ? 1 : 0;
  }
  TESSERA_TRY(const int64_t bucket,
              number_of(values, "zero_optimization.reduce_bucket_size", 0, 0));
  if (bucket > 0) s.bucket_bytes = bucket * dtype_bytes(s.gradient);
  return {};
}

Result<ExportSettings> settings_of_deepspeed(const SettingsRequest& request) {
  const SaidValues values(request.said, kDeepSpeed);
  ExportSettings s;
  TESSERA_TRY(s.tp, number_of(values, "tensor_parallel.autotp_size", 1, 0));
  s.tp = std::max<int64_t>(s.tp, 1);
  if (s.tp > 1) s.whole.insert("vocab");
  TESSERA_TRY(s.pp, number_of(values, "pipeline.stages", 1));
  TESSERA_TRY(s.cp, number_of(values, "sequence_parallel_size", 1));
  s.context = s.cp > 1 ? ContextForm::kHeads : ContextForm::kRing;
  TESSERA_TRY(const int64_t ranks, ranks_of(request, "", "", kDeepSpeed));
  TESSERA_TRY(s.dp, replicas_left(ranks, s.tp * s.pp * s.cp, kDeepSpeed));
  TESSERA_TRY_VOID(read_batch(values, s));
  TESSERA_TRY_VOID(read_speed_precision(values, s));
  TESSERA_TRY_VOID(read_speed_zero(values, s));
  TESSERA_TRY(const int64_t kept,
              number_of(values, "activation_checkpointing.number_checkpoints", 0, 0));
  TESSERA_TRY(const int64_t every,
              number_of(values, "pipeline.activation_checkpoint_interval", 0, 0));
  const int64_t blocks = recipes::block_count(request.forward);
  if (every > 1) {
    return values.refuse("pipeline.activation_checkpoint_interval",
                         "1: a plan keeps what each block reads");
  }
  if (every > 0 || (kept > 0 && kept == blocks)) s.recompute = "full";
  if (kept > 0 && kept != blocks) {
    return values.refuse(
        "activation_checkpointing.number_checkpoints",
        fmt::format("the {} blocks of the model, of which a plan makes each again", blocks));
  }
  return s;
}

}  // namespace

ExportTarget deepspeed_target() {
  ExportTarget out;
  out.name = kDeepSpeed;
  out.summary = "the JSON configuration";
  out.version = "DeepSpeed 0.19";
  out.fixes = {{{"tp", "1"}, {"pp", "1"}, {"recompute", "none"}},
               {{"tp", "1"}, {"pp", "1"}, {"recompute", "full"}}};
  out.has_comments = false;
  out.write = [](const ExportJob& job) { return SpeedWriter(job).run(); };
  out.scan = [](const std::string& text) { return keys_of_json(text, kDeepSpeed); };
  out.settings = settings_of_deepspeed;
  out.start = [](const ExportJob& job) {
    const int64_t ranks = job.settings.ranks(), a_node = std::min(ranks, job.node_size);
    return fmt::format(
        "deepspeed --num_nodes {} --num_gpus {} train.py --deepspeed_config THIS_FILE",
        (ranks + a_node - 1) / a_node, a_node);
  };
  out.style = "deepspeed";
  out.endings = {".json"};
  out.grid.context = {{"attention/heads", "seq"}};
  out.grid.pipelines = true;
  return out;
}

}  // namespace tessera
