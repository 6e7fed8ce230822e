// DeepSpeed: writes and reads its JSON configuration. JSON has no comments, so notes are printed
// instead. For some settings DeepSpeed's JSON has no key; for example, stages are an argument of
// PipelineModule. These settings are written under keys that DeepSpeed's configuration class reads,
// but that no other part of DeepSpeed uses. docs/reference/export.md says which code reads them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
      if (s_.vocabulary && !recipes::scopes_with_vocab(job_.model.graph).empty()) {
        return refuse("tp",
                      "its tensor ranks (AutoTP) share the products of attention and MLP; "
                      "embedding and head stay whole, which the plan cuts by vocab");
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
                    "its sequence parallelism cuts heads in attention (Ulysses); it has no "
                    "rings of keys");
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

// Returns the number at a path of keys. Returns `otherwise` if there is none or if it is "auto", a
// value that transformers replaces; returns -1 if the value is not a number.
int64_t number_at(const Json& json, const std::vector<const char*>& path, int64_t otherwise) {
  const Json* node = &json;
  for (const char* key : path) {
    if (!node->is_object() || !node->contains(key)) return otherwise;
    node = &(*node)[key];
  }
  if (node->is_string() && node->get<std::string>() == "auto") return otherwise;
  if (node->is_number_integer()) return node->get<int64_t>();
  return node->is_number() ? static_cast<int64_t>(node->get<double>()) : -1;
}

// Reads the three keys about the batch. If one is missing, it is computed from the others, as
// DeepSpeed does (config.py of 0.19.8). DeepSpeed's number of replicas includes tensor ranks.
Status read_batch(const Json& json, ExportSettings& s) {
  constexpr int64_t kNone = 0;
  const int64_t replicas = s.dp * s.tp;
  int64_t batch = number_at(json, {"train_batch_size"}, kNone),
          size = number_at(json, {"train_micro_batch_size_per_gpu"}, kNone),
          steps = number_at(json, {"gradient_accumulation_steps"}, kNone);
  if (batch < 0 || size < 0 || steps < 0)
    return invalid_input("deepspeed: expected a batch, a micro-batch and steps of at least 1");
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

bool enabled(const Json& json, const char* key) {
  if (!json.contains(key) || !json[key].is_object()) return false;
  const Json& table = json[key];
  return table.contains("enabled") && table["enabled"].is_boolean() && table["enabled"].get<bool>();
}

Result<ExportSettings> read_deepspeed(const std::string& text, int64_t ranks,
                                      const Graph& forward) {
  const Json json =
      Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (json.is_discarded() || !json.is_object())
    return invalid_input("deepspeed: expected a JSON object");
  ExportSettings s;
  s.tp = number_at(json, {"tensor_parallel", "autotp_size"}, 1);
  s.vocabulary = s.tp == 1;
  s.pp = number_at(json, {"pipeline", "stages"}, 1);
  s.cp = number_at(json, {"sequence_parallel_size"}, 1);
  s.context = s.cp > 1 ? ContextForm::kHeads : ContextForm::kRing;
  s.zero = number_at(json, {"zero_optimization", "stage"}, 0);
  if (s.tp < 1 || s.pp < 1 || s.cp < 1 || s.zero < 0 || s.zero > 3)
    return invalid_input("deepspeed: expected numbers of at least 1 and a ZeRO stage of 0 to 3");
  TESSERA_TRY(s.dp, replicas_left(ranks, s.tp * s.pp * s.cp, kDeepSpeed));
  TESSERA_TRY_VOID(read_batch(json, s));
  if (const int64_t shard = number_at(json, {"zero_optimization", "mics_shard_size"}, 0);
      shard > 0) {
    TESSERA_TRY(s.replicas, replicas_left(s.dp * s.cp, shard, kDeepSpeed));
    s.dp /= s.replicas;
  }
  if (s.zero == 3) {
    s.gathered_ahead = number_at(json, {"zero_optimization", "stage3_prefetch_bucket_size"},
                                 50'000'000) > 0;  // DeepSpeed's default
  }
  const int64_t kept = number_at(json, {"activation_checkpointing", "number_checkpoints"}, 0);
  const bool again = number_at(json, {"pipeline", "activation_checkpoint_interval"}, 0) > 0 ||
                     (kept > 0 && kept == recipes::block_count(forward));
  if (again) s.recompute = "full";
  if (enabled(json, "bf16")) s.compute = DType::kBFloat16;
  if (enabled(json, "fp16")) s.compute = DType::kFloat16;
  if (json.contains("data_types") && json["data_types"].is_object()) {
    const std::string gradient = json["data_types"].value("grad_accum_dtype", "fp32");
    if (gradient == "bf16") s.gradient = DType::kBFloat16;
    if (gradient == "fp16") s.gradient = DType::kFloat16;
  }
  if (const int64_t bucket = number_at(json, {"zero_optimization", "reduce_bucket_size"}, 0);
      bucket > 0)
    s.bucket_bytes = bucket * dtype_bytes(s.gradient);
  return s;
}

}  // namespace

ExportTarget deepspeed_target() {
  return {std::string(kDeepSpeed),
          "the JSON configuration",
          "DeepSpeed 0.19",
          {{{"tp", "1"}, {"pp", "1"}, {"recompute", "none"}},
           {{"tp", "1"}, {"pp", "1"}, {"recompute", "full"}}},
          false,
          [](const ExportJob& job) { return SpeedWriter(job).run(); },
          read_deepspeed,
          {},
          "deepspeed"};
}

}  // namespace tessera
