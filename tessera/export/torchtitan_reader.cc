// Reads configurations of TorchTitan: Python of 0.3, TOML of 0.2, and command lines with options.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/export/python.h"
#include "tessera/export/shell.h"
#include "tessera/export/torchtitan.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

std::string text_of_node(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

void add_keys(const toml::table& table, const std::string& path, SaidKeys& out) {
  for (const auto& [key, node] : table) {
    const std::string name =
        path.empty() ? std::string(key.str()) : fmt::format("{}.{}", path, key.str());
    if (const toml::table* inner = node.as_table()) {
      add_keys(*inner, name, out);
    } else {
      out.push_back({name, text_of_node(node), static_cast<int>(key.source().begin.line)});
    }
  }
}

class TitanReader {
 public:
  explicit TitanReader(const SettingsRequest& request)
      : request_(request), values_(request.said, kTorchTitan) {}

  Result<ExportSettings> run() {
    TESSERA_TRY(s_.tp, values_.number("parallelism.tensor_parallel_degree", 1));
    TESSERA_TRY(s_.cp, values_.number("parallelism.context_parallel_degree", 1));
    TESSERA_TRY(s_.pp, values_.number("parallelism.pipeline_parallel_degree", 1));
    TESSERA_TRY(s_.ep, values_.number("parallelism.expert_parallel_degree", 1));
    TESSERA_TRY(const bool sequence, values_.flag("parallelism.enable_sequence_parallel", true));
    s_.sequence_shard = s_.tp > 1 && sequence;
    TESSERA_TRY_VOID(whole());
    TESSERA_TRY_VOID(experts());
    TESSERA_TRY_VOID(context());
    TESSERA_TRY_VOID(data_parallel());
    TESSERA_TRY_VOID(pipeline());
    TESSERA_TRY_VOID(batch());
    TESSERA_TRY_VOID(recompute());
    TESSERA_TRY_VOID(precision());
    return s_;
  }

 private:
  // Reads which modules the tensor ranks leave whole, as the writer says it. Overrides of TorchTitan
  // itself replace kernels.
  Status whole() {
    constexpr const char* kKey = "override.imports";
    for (const std::vector<std::string>& names : lists_of(values_.text(kKey, ""))) {
      for (const std::string& name : names) {
        const auto* const known =
            std::find_if(kTitanWhole.begin(), kTitanWhole.end(),
                         [&](const TitanWhole& one) { return name == one.function; });
        if (known != kTitanWhole.end()) {
          if (s_.tp > 1) s_.whole.insert(known->dim);
        } else if (!name.starts_with("torchtitan.overrides.")) {
          return values_.refuse(kKey,
                                "overrides of torchtitan.overrides, or planned.whole_attention "
                                "and planned.whole_mlp: others may change how modules are cut");
        }
      }
    }
    return {};
  }

  Status experts() const {
    const std::string sizes = values_.text("model_spec", "");
    if (sizes.find("converters") != std::string::npos) {
      return values_.refuse("model_spec",
                            "a model without converters: a plan computes in 16 bits or more");
    }
    if (s_.ep == 1 || s_.tp == 1) return {};
    constexpr const char* kKey = "parallelism.expert_tensor_parallel_degree";
    TESSERA_TRY(const int64_t tp, values_.number(kKey, 1));
    if (tp == s_.tp) return {};
    return values_.refuse(
        "parallelism.expert_parallel_degree",
        "1 beside tensor ranks, which share each expert in a plan and hold whole ones there");
  }

  Status context() {
    if (s_.cp == 1) return {};
    constexpr const char* kRotate = "parallelism.context_parallel_rotate_method";
    const std::string rotate = values_.text(kRotate, "allgather");
    if (rotate != "allgather" && rotate != "alltoall")
      return values_.refuse(kRotate, "allgather or alltoall");
    s_.context = rotate == "allgather" ? ContextForm::kGather : ContextForm::kRing;
    constexpr const char* kBalancer = "parallelism.context_parallel_load_balancer";
    std::string balancer = values_.text(kBalancer, "headtail");
    for (const SaidKey& key : request_.said) {
      if (key.name == kBalancer) balancer = key.value;
    }
    if (balancer != "headtail" && balancer != "None")
      return values_.refuse(kBalancer, "headtail or None, as a plan orders tokens");
    if (balancer == "None") s_.token_order = "none";
    return {};
  }

  Status data_parallel() {
    TESSERA_TRY(const int64_t replicate,
                values_.number("parallelism.data_parallel_replicate_degree", 1));
    constexpr const char* kShard = "parallelism.data_parallel_shard_degree";
    TESSERA_TRY(int64_t shard, values_.number(kShard, -1, -1));
    if (shard == 0) return values_.refuse(kShard, "-1 or a number of at least 1");
    const int64_t others = replicate * s_.tp * s_.cp * s_.pp;
    if (shard == -1) {  // all ranks that the other degrees leave
      TESSERA_TRY(const int64_t ranks, ranks_of(request_, "nnodes", "nproc_per_node", kTorchTitan));
      TESSERA_TRY(shard, replicas_left(ranks, others, kTorchTitan));
    } else if (request_.ranks > 0 && request_.ranks != others * shard) {
      return values_.refuse(kShard, fmt::format("degrees whose product is the {} ranks; it is {}",
                                                request_.ranks, others * shard));
    }
    if (shard == 1 && s_.cp == 1) {
      s_.dp = replicate;
      return {};
    }
    if (shard % s_.ep != 0) {
      return values_.refuse("parallelism.expert_parallel_degree",
                            fmt::format("a number that divides the {} sharding ranks", shard));
    }
    s_.replicas = replicate;
    s_.dp = shard / s_.ep;
    constexpr const char* kReshard = "parallelism.fsdp_reshard_after_forward";
    const std::string reshard = values_.text(kReshard, "default");
    if (reshard != "default" && reshard != "always" && reshard != "never")
      return values_.refuse(kReshard, "default, always or never");
    const bool always = reshard == "always" || (reshard == "default" && s_.pp == 1);
    s_.zero = always ? 3 : 2;
    s_.gathered_ahead = always ? 1 : 0;  // FSDP2 gathers ahead without any key
    return {};
  }

  Status pipeline() {
    if (s_.pp == 1) return {};
    constexpr const char* kKey = "parallelism.pipeline_parallel_schedule";
    const std::string name = values_.text(kKey, "1F1B");
    const auto* const schedule =
        std::find_if(kTitanSchedules.begin(), kTitanSchedules.end(),
                     [&](const TitanSchedule& known) { return name == known.theirs; });
    if (schedule == kTitanSchedules.end())
      return values_.refuse(kKey, "1F1B, GPipe, Interleaved1F1B or ZBVZeroBubble");
    s_.schedule = schedule->ours;
    const std::string modules = values_.text("parallelism.module_fqns_per_model_part", "");
    if (modules.empty()) {
      TESSERA_TRY(s_.blocks, usual_blocks(schedule->loops));
    } else {
      for (const std::vector<std::string>& part : lists_of(modules)) {
        s_.blocks.push_back(std::count_if(part.begin(), part.end(), [](const std::string& module) {
          return module.starts_with("layers.");
        }));
      }
    }
    const auto stages = static_cast<int64_t>(s_.blocks.size());
    if (stages == 0 || stages % s_.pp != 0) {
      return values_.refuse(kKey,
                            fmt::format("stages of all {} ranks; there are {}", s_.pp, stages));
    }
    if (s_.schedule == "interleaved") s_.chunks = stages / s_.pp;
    if (s_.blocks == even_blocks(recipes::block_count(request_.forward), stages)) s_.blocks.clear();
    return {};
  }

  // Returns the blocks of each stage as TorchTitan cuts them where the text has no list: embedding
  // and head count as so many layers (distributed/pipeline_parallel.py of 0.3.0).
  Result<std::vector<int64_t>> usual_blocks(bool loops) const {
    TESSERA_TRY(const int64_t first,
                values_.number("parallelism.pipeline_parallel_first_stage_less_layers", 1, 0));
    TESSERA_TRY(const int64_t last,
                values_.number("parallelism.pipeline_parallel_last_stage_less_layers", 1, 0));
    constexpr const char* kEach = "parallelism.pipeline_parallel_layers_per_stage";
    TESSERA_TRY(const int64_t each, values_.number(kEach, 0));
    const int64_t layers = recipes::block_count(request_.forward), all = layers + first + last;
    const int64_t stages = each > 0 ? (all + each - 1) / each : s_.pp * (loops ? 2 : 1);
    if (stages % s_.pp != 0 || (!loops && stages != s_.pp) || (loops && stages < 2 * s_.pp)) {
      return values_.refuse(
          kEach, fmt::format("a number that gives each of {} ranks {}; it gives {} stages", s_.pp,
                             loops ? "two stages or more" : "one stage", stages));
    }
    const int64_t least = all / stages;
    if (least < 1 || first > least || last > least) {
      return values_.refuse("parallelism.pipeline_parallel_degree",
                            fmt::format("at most {} stages for {} layers", all, layers));
    }
    std::vector<int64_t> out;
    for (int64_t stage = 0; stage < stages; ++stage) {
      out.push_back(least + (stage < all % stages ? 1 : 0) - (stage == 0 ? first : 0) -
                    (stage + 1 == stages ? last : 0));
    }
    return out;
  }

  Status batch() {
    constexpr const char* kBatch = "training.global_batch_size";
    TESSERA_TRY(s_.batch, values_.number(kBatch, -1, -1));
    if (s_.batch == 0) return values_.refuse(kBatch, "-1 or a number of at least 1");
    TESSERA_TRY(const int64_t local, values_.number("training.local_batch_size", 8));
    int64_t size = local;
    if (s_.pp > 1) {
      TESSERA_TRY(size, values_.number("parallelism.pipeline_parallel_microbatch_size", 1));
    }
    if (s_.batch == -1) s_.batch = local * s_.replicas_of_batch();
    if (s_.pp > 1 && s_.batch != local * s_.replicas_of_batch()) {
      return values_.refuse(
          kBatch, fmt::format("{}, one local batch of each of {} replicas: a plan sums gradients "
                              "once a step, after one pass of its pipeline",
                              local * s_.replicas_of_batch(), s_.replicas_of_batch()));
    }
    TESSERA_TRY(s_.micro_batches,
                micro_batches_of(s_.batch, size, s_.replicas_of_batch(), kTorchTitan));
    return {};
  }

  Status recompute() {
    const SaidKey* python = values_.find("activation_checkpoint");
    if (python != nullptr) {
      const std::string name = python->value.substr(0, python->value.find_first_of(".("));
      if (name != "FullAC" && name != "SelectiveAC")
        return values_.refuse("activation_checkpoint", "FullAC, SelectiveAC or None");
      s_.recompute = name == "FullAC" ? "full" : "selective";
      return {};
    }
    const bool none =
        std::any_of(request_.said.begin(), request_.said.end(), [](const SaidKey& key) {
          return key.name == "activation_checkpoint" && key.value == "None";
        });
    constexpr const char* kMode = "activation_checkpoint.mode";
    s_.recompute = none ? "none" : values_.text(kMode, "selective");
    if (s_.recompute != "none" && s_.recompute != "full" && s_.recompute != "selective")
      return values_.refuse(kMode, "none, full or selective");
    constexpr const char* kOption = "activation_checkpoint.selective_ac_option";
    if (s_.recompute == "selective" && values_.text(kOption, "op") != "op")
      return values_.refuse(kOption, "op: a plan makes the same again in all blocks");
    return {};
  }

  Status precision() {
    if (values_.text("training.dtype", "float32") != "float32")
      return values_.refuse("training.dtype", "float32, in which plans keep parameters");
    constexpr const char* kCompute = "training.mixed_precision_param";
    const std::string compute = values_.text(kCompute, "bfloat16");
    if (compute != "bfloat16" && compute != "float32")
      return values_.refuse(kCompute, "bfloat16 or float32");
    if (compute == "bfloat16") s_.compute = DType::kBFloat16;
    if (values_.text("training.mixed_precision_reduce", "float32") == "bfloat16")
      s_.gradient = DType::kBFloat16;
    return {};
  }

  const SettingsRequest& request_;
  SaidValues values_;
  ExportSettings s_;
};

}  // namespace

Result<SaidKeys> scan_torchtitan(const std::string& text) {
  const bool is_python =
      text.find("import ") != std::string::npos || text.find("Config(") != std::string::npos;
  if (is_python) return settings_of_python(text, {"Trainer.Config"});
  SaidKeys out;
  const auto table = parse_toml(text, kTorchTitan);
  if (table) {
    add_keys(*table, "", out);
    return out;
  }
  out = flags_of_script(text);
  if (out.empty()) return tl::unexpected(table.error());
  for (SaidKey& key : out) std::replace(key.name.begin(), key.name.end(), '-', '_');
  return out;
}

Result<ExportSettings> settings_of_torchtitan(const SettingsRequest& request) {
  return TitanReader(request).run();
}

}  // namespace tessera
