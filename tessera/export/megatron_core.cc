#include "tessera/export/megatron_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/export/settings.h"
#include "tessera/export/sizes.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

// For each argument, the flag of Megatron-LM and the field of Megatron Bridge.
constexpr std::pair<const char*, const char*> kFields[] = {
    {"tensor-model-parallel-size", "model.tensor_model_parallel_size"},
    {"sequence-parallel", "model.sequence_parallel"},
    {"pipeline-model-parallel-size", "model.pipeline_model_parallel_size"},
    {"num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size"},
    {"pipeline-model-parallel-layout", "model.pipeline_model_parallel_layout"},
    {"context-parallel-size", "model.context_parallel_size"},
    {"cp-comm-type", "model.cp_comm_type"},
    {"expert-model-parallel-size", "model.expert_model_parallel_size"},
    {"expert-tensor-parallel-size", "model.expert_tensor_parallel_size"},
    {"decoder-first-pipeline-num-layers", "model.num_layers_in_first_pipeline_stage"},
    {"decoder-last-pipeline-num-layers", "model.num_layers_in_last_pipeline_stage"},
    {"account-for-embedding-in-pipeline-split", "model.account_for_embedding_in_pipeline_split"},
    {"account-for-loss-in-pipeline-split", "model.account_for_loss_in_pipeline_split"},
    {"cpu-offloading-num-layers", "model.cpu_offloading_num_layers"},
    {"distribute-saved-activations", "model.distribute_saved_activations"},
    {"fp8-format", "model.fp8"},
    {"fp4-format", "model.fp4"},
    {"optimizer-cpu-offload", "optimizer.optimizer_cpu_offload"},
    {"use-torch-fsdp2", "dist.use_torch_fsdp2"},
    {"rampup-batch-size", "train.rampup_batch_size"},
    {"overlap-grad-reduce", "ddp.overlap_grad_reduce"},
    {"ckpt-format", "checkpoint.ckpt_format"},
    {"no-gradient-accumulation-fusion", "model.gradient_accumulation_fusion"},
    {"use-tp-pp-dp-mapping", "dist.use_tp_pp_dp_mapping"},
    {"micro-batch-size", "train.micro_batch_size"},
    {"global-batch-size", "train.global_batch_size"},
    {"recompute-granularity", "model.recompute_granularity"},
    {"recompute-method", "model.recompute_method"},
    {"recompute-num-layers", "model.recompute_num_layers"},
    {"recompute-modules", "model.recompute_modules"},
    {"use-distributed-optimizer", "ddp.use_distributed_optimizer"},
    {"use-megatron-fsdp", "dist.use_megatron_fsdp"},
    {"data-parallel-sharding-strategy", "ddp.data_parallel_sharding_strategy"},
    {"num-distributed-optimizer-instances", "ddp.num_distributed_optimizer_instances"},
    {"overlap-param-gather", "ddp.overlap_param_gather"},
    {"ddp-bucket-size", "ddp.bucket_size"},
};

// A choice of the recipes' argument `recompute`, and Megatron's name for that module in
// --recompute-modules.
constexpr std::pair<const char*, const char*> kModules[] = {
    {"norm", "layernorm"},     {"act", "moe_act"}, {"core", "core_attn"},
    {"mla_up", "mla_up_proj"}, {"mlp", "mlp"},     {"moe", "moe"}};

class CoreWriter {
 public:
  CoreWriter(const ExportJob& job, std::string_view target)
      : job_(job), s_(job.settings), target_(target) {}

  Result<std::vector<CoreArgument>> run() {
    TESSERA_TRY_VOID(check_sizes());
    TESSERA_TRY_VOID(degrees());
    TESSERA_TRY_VOID(pipeline());
    TESSERA_TRY_VOID(context());
    TESSERA_TRY_VOID(experts());
    add("micro-batch-size", std::to_string(s_.micro_batch_size()),
        "sequences of a replica at a time", "micro_batches");
    add("global-batch-size", std::to_string(s_.batch),
        fmt::format("sequences of a step: {} micro-batches of {} replicas", s_.micro_batches,
                    s_.replicas_of_batch()));
    TESSERA_TRY_VOID(shards());
    TESSERA_TRY_VOID(recompute());
    precision();
    return std::move(out_);
  }

 private:
  void add(const std::string& flag, const std::string& value, std::string comment,
           std::string_view setting = "") {
    comment += line_of_setting(job_, setting);
    // A switch that turns something off is a field that is false.
    const char* on = flag.starts_with("no-") ? "false" : "true";
    out_.push_back({flag, value, field_of_flag(flag), value.empty() ? on : "", std::move(comment)});
  }
  tl::unexpected<Error> refuse(std::string_view setting, const std::string& why) const {
    return cannot_express(job_, target_, setting, why);
  }

  // Checks conditions that Megatron-Core asserts when it starts (transformer_config.py,
  // tensor_parallel/layers.py of 0.15; validate_args of Megatron-LM; attention of Transformer
  // Engine for all-to-alls). From 0.19 on, tp may also be a multiple of the number of key heads,
  // but several ranks then compute the same keys.
  Status check_sizes() const {
    const int64_t tp = s_.tp, cp = s_.cp;
    std::vector<Division> all = {{"heads", "query heads", tp, "tp"},
                                 {"kv_heads", "key heads", tp, "tp"},
                                 {"ffn", "an MLP", tp, "tp"},
                                 {"shared_ffn", "the shared expert", tp, "tp"},
                                 {"dense_ffn", "an MLP", tp, "tp"},
                                 {"ssm_heads", "heads of a state space", tp, "tp"},
                                 {"ssm_groups", "groups of a state space", tp, "tp"},
                                 {"delta_heads", "key heads of a DeltaNet", tp, "tp"},
                                 {"experts", "experts", s_.ep, "ep"}};
    if (cp > 1) all.push_back({"seq", "the tokens of a ring (zigzag)", 2 * cp, "cp"});
    if (cp > 1 && s_.context == ContextForm::kHeads) {
      all.push_back({"heads", "query heads", tp * cp, "context"});
      all.push_back({"kv_heads", "key heads", tp * cp, "context"});
    }
    if (tp > 1 && s_.sequence_shard) all.push_back({"seq", "tokens", tp * cp, "sequence_shard"});
    return check_divisions(job_, target_, all);
  }

  Status degrees() {
    if (!s_.whole.empty()) {
      return refuse("tp", fmt::format("its tensor ranks also cut {}, which the plan leaves whole",
                                      s_.whole_text()));
    }
    add("tensor-model-parallel-size", std::to_string(s_.tp),
        "ranks that share a layer: heads, ffn and vocab", "tp");
    if (s_.tp > 1 && s_.sequence_shard) {
      add("sequence-parallel", "", "between those ops tokens over the same ranks",
          "sequence_shard");
    }
    if (s_.stages_inside)
      add("use-tp-pp-dp-mapping", "", "the stages of a replica are on consecutive ranks", "mesh");
    return {};
  }

  Status pipeline() {
    if (s_.schedule != "1f1b" && s_.schedule != "interleaved")
      return refuse("schedule", "its pipelines run 1f1b, with chunks interleaved 1f1b");
    add("pipeline-model-parallel-size", std::to_string(s_.pp), "stages, in the order 1F1B", "pp");
    if (s_.pp == 1) return {};
    const int64_t stages = s_.pp * s_.chunks, layers = recipes::block_count(job_.model.graph);
    if (!s_.blocks.empty() || layers % stages != 0) {
      const auto blocks = s_.blocks.empty() ? even_blocks(layers, stages) : s_.blocks;
      add("pipeline-model-parallel-layout", pipeline_layout(blocks),
          "layers of each stage: E embedding, t a block, L head and loss", "blocks");
    } else if (s_.chunks > 1) {
      add("num-virtual-stages-per-pipeline-rank", std::to_string(s_.chunks),
          "chunks of each rank, interleaved", "schedule");
    }
    return {};
  }

  Status context() {
    if (s_.cp == 1) return {};
    add("context-parallel-size", std::to_string(s_.cp), "ranks that share a sequence", "cp");
    if (s_.context == ContextForm::kHeads) {
      add("cp-comm-type", "a2a", "all-to-alls give attention whole sequences of some heads",
          "context");
      return {};
    }
    if (s_.token_order != "zigzag") {
      return refuse(
          "token_order",
          fmt::format(
              "its context parallelism gives each rank two pieces of the tokens, one from either "
              "end (zigzag); the plan has the order '{}'",
              s_.token_order));
    }
    if (s_.context == ContextForm::kGather) {
      add("cp-comm-type", "all_gather", "each rank gathers all keys and values", "context");
    } else {
      add("cp-comm-type", "p2p", "keys and values travel around a ring", "context");
    }
    return {};
  }

  Status experts() {
    if (!has_experts(job_.model.graph)) return {};
    if (s_.ep > 1 && s_.tp > 1 && !s_.sequence_shard) {
      return refuse("ep",
                    "beside tensor ranks its expert ranks need tokens cut over the tensor ranks "
                    "between (sequence_shard), which the plan leaves whole");
    }
    add("expert-model-parallel-size", std::to_string(s_.ep),
        "ranks that share the experts of a block; replicas elsewhere", "ep");
    add("expert-tensor-parallel-size", std::to_string(s_.tp), "ranks that share an expert", "tp");
    return {};
  }

  Status shards() {
    if (s_.zero == 0) return {};
    add("use-distributed-optimizer", "", "optimizer state and masters in shards over the replicas",
        "zero");
    if (s_.replicas > 1) {
      add("num-distributed-optimizer-instances", std::to_string(s_.replicas),
          "groups of replicas, each of which holds all shards", "replicas");
    }
    if (s_.zero >= 2) {
      if (s_.stages_inside)
        return refuse("mesh", "Megatron-FSDP numbers ranks by tp, dp, pp, not by tp, pp, dp");
      add("use-megatron-fsdp", "", "sharding beyond the optimizer state");
      add("data-parallel-sharding-strategy", s_.zero == 2 ? "optim_grads" : "optim_grads_params",
          s_.zero == 2 ? "gradients rest in shards too" : "gradients and parameters too", "zero");
      add("ckpt-format", "fsdp_dtensor", "the only format of checkpoints that Megatron-FSDP takes");
      add("no-gradient-accumulation-fusion", "", "gradients of shards are no buffers to add to");
    }
    if (s_.gathered_ahead > 1) {
      return refuse("gathered_ahead",
                    fmt::format("it gathers one block ahead, the plan {}", s_.gathered_ahead));
    }
    if (s_.gathered_ahead == 1) {
      add("overlap-param-gather", "", "a block is gathered while the one before computes",
          "gathered_ahead");
      add("overlap-grad-reduce", "", "which goes with it");
    }
    return {};
  }

  Status recompute() {
    if (s_.recompute == "none") return {};
    if (s_.recompute == "full") {
      add("recompute-granularity", "full", "every block is computed again in the backward pass",
          "recompute");
      add("recompute-method", "uniform", "all blocks");
      add("recompute-num-layers", "1", "each by itself");
      return {};
    }
    const bool experts = has_experts(job_.model.graph);
    std::vector<std::string> modules;
    if (s_.recompute == "selective") {
      modules = {"layernorm", "core_attn"};
      if (experts) modules.emplace_back("moe_act");
    } else {
      for (const std::string& word : split_text(s_.recompute, '+')) {
        const auto* const found = std::find_if(std::begin(kModules), std::end(kModules),
                                               [&](const auto& m) { return word == m.first; });
        if (found == std::end(kModules) || (word == "act" && !experts)) {
          return refuse(
              "recompute",
              fmt::format("its modules are core_attn, layernorm, mla_up_proj, mlp, moe and "
                          "moe_act (of experts); the plan makes '{}' again",
                          word));
        }
        modules.emplace_back(found->second);
      }
    }
    add("recompute-granularity", "selective", "modules are computed again in the backward pass",
        "recompute");
    add("recompute-modules", join(modules, " "),
        s_.recompute == "selective"
            ? "norms and attention; the plan also makes the other cheap ops again, which stay"
            : "these");
    return {};
  }

  void precision() {
    if (s_.bucket_bytes) {
      add("ddp-bucket-size", std::to_string(*s_.bucket_bytes / dtype_bytes(s_.gradient)),
          "parameters of a bucket of gradients");
    }
    if (s_.compute == DType::kFloat32) return;
    const bool brain = s_.compute == DType::kBFloat16;
    out_.push_back({brain ? "bf16" : "fp16", "", "mixed_precision",
                    brain ? "bf16_mixed" : "fp16_mixed",
                    "products and activations; masters and optimizer state are in float32"});
    if (s_.gradient == DType::kFloat32) {
      out_.push_back({"accumulate-allreduce-grads-in-fp32", "", "ddp.grad_reduce_in_fp32", "true",
                      "gradients are summed in float32"});
    } else {
      out_.push_back({"grad-reduce-in-bf16", "", "ddp.grad_reduce_in_fp32", "false",
                      "gradients are summed in 16 bits"});
    }
  }

  const ExportJob& job_;
  const ExportSettings& s_;
  std::string_view target_;
  std::vector<CoreArgument> out_;
};

class CoreReader {
 public:
  CoreReader(const CoreValues& values, int64_t ranks, const Graph& forward, std::string_view target)
      : values_(values), ranks_(ranks), forward_(forward), target_(target) {}

  Result<ExportSettings> run() {
    TESSERA_TRY_VOID(check_unsaid());
    TESSERA_TRY(s_.tp, number("tensor-model-parallel-size", 1));
    TESSERA_TRY(s_.pp, number("pipeline-model-parallel-size", 1));
    TESSERA_TRY(s_.cp, number("context-parallel-size", 1));
    TESSERA_TRY(s_.ep, number("expert-model-parallel-size", 1));
    TESSERA_TRY(s_.replicas, number("num-distributed-optimizer-instances", 1));
    TESSERA_TRY(s_.dp, replicas_left(ranks_, s_.tp * s_.pp * s_.cp * s_.ep * s_.replicas, target_));
    s_.sequence_shard = s_.tp > 1 && has("sequence-parallel");
    s_.stages_inside = s_.pp > 1 && has("use-tp-pp-dp-mapping");
    TESSERA_TRY_VOID(pipeline());
    TESSERA_TRY_VOID(context());
    TESSERA_TRY_VOID(experts());
    TESSERA_TRY(const int64_t size, number("micro-batch-size", 1));
    TESSERA_TRY(s_.batch, number("global-batch-size", size * s_.replicas_of_batch()));
    TESSERA_TRY(s_.micro_batches,
                micro_batches_of(s_.batch, size, s_.replicas_of_batch(), target_));
    TESSERA_TRY_VOID(shards());
    TESSERA_TRY_VOID(recompute());
    return precision();
  }

 private:
  bool has(std::string_view flag) const { return text(flag, "false") != "false"; }
  std::string text(std::string_view flag, const char* otherwise) const {
    const auto found = values_.find(flag);
    const bool said = found != values_.end() && found->second != "null" && found->second != "None";
    return said ? found->second : std::string(otherwise);
  }
  Result<int64_t> number(std::string_view flag, int64_t otherwise) const {
    const std::string said = text(flag, "");
    if (said.empty()) return otherwise;
    const auto value = parse_int(said);
    if (value && *value > 0) return *value;
    return invalid_input(
        fmt::format("{}: {}: expected a number of at least 1, found '{}'", target_, flag, said));
  }
  tl::unexpected<Error> unknown(std::string_view flag, std::string_view expected) const {
    return invalid_input(
        fmt::format("{}: {}: expected {}, found '{}'", target_, flag, expected, text(flag, "")));
  }

  tl::unexpected<Error> refuse(std::string_view flag, std::string_view why) const {
    return invalid_input(fmt::format("{}: {}: expected a text without it, found '{}': {}", target_,
                                     flag, text(flag, ""), why));
  }

  Status check_unsaid() const {
    if (text("hybrid-layer-pattern", "").find('|') != std::string::npos)
      return refuse("hybrid-layer-pattern", "stages are read of --pipeline-model-parallel-layout");
    return {};
  }

  Status context() {
    const std::string form = text("cp-comm-type", "p2p");
    if (form == "a2a") {
      s_.context = ContextForm::kHeads;
    } else if (form == "all_gather") {
      s_.context = ContextForm::kGather;
    } else if (s_.cp > 1 && form != "p2p") {
      return unknown("cp-comm-type",
                     "p2p (a ring), all_gather or a2a (heads), the same in all layers");
    }
    return {};
  }

  // Checks that experts are cut over tp as the other layers are, because a plan cannot say
  // otherwise.
  Status experts() const {
    if (!has_experts(forward_)) return {};
    TESSERA_TRY(const int64_t tp, number("expert-tensor-parallel-size", s_.tp));
    if (tp == s_.tp) return {};
    return unknown("expert-tensor-parallel-size",
                   fmt::format("tensor-model-parallel-size, {}", s_.tp));
  }

  // Returns the number of blocks of each place of the pipeline if the places have different
  // numbers; an empty list if all have the same.
  Result<std::vector<int64_t>> blocks_of_places() const {
    const bool embedding = has("account-for-embedding-in-pipeline-split"),
               loss = has("account-for-loss-in-pipeline-split");
    constexpr const char* kFirst = "decoder-first-pipeline-num-layers";
    constexpr const char* kLast = "decoder-last-pipeline-num-layers";
    const bool first = has(kFirst), last = has(kLast) && s_.pp > 1;
    if (!first && !last && !embedding && !loss) return std::vector<int64_t>();
    if ((first || last) && (embedding || loss)) {
      return unknown(first ? kFirst : kLast, "no --account-for-...-in-pipeline-split beside it");
    }
    const int64_t layers = recipes::block_count(forward_);
    int64_t left = layers + (embedding ? 1 : 0) + (loss ? 1 : 0), places = s_.pp;
    int64_t of_first = 0, of_last = 0;
    if (first) {
      TESSERA_TRY(of_first, number(kFirst, 1));
      left -= of_first;
      --places;
    }
    if (last) {
      TESSERA_TRY(of_last, number(kLast, 1));
      left -= of_last;
      --places;
    }
    if (left < 0 || (places == 0 ? left != 0 : left % places != 0)) {
      return invalid_input(
          fmt::format("{}: expected {} layers that the stages share evenly beside the first and "
                      "the last one's own, found {} for {} stages",
                      target_, layers, left, places));
    }
    std::vector<int64_t> out(static_cast<size_t>(s_.pp), places == 0 ? 0 : left / places);
    if (first) out.front() = of_first;
    if (last) out.back() = of_last;
    return out;
  }

  // Finds the blocks of each stage; each place has `chunks` stages. Flags may let the embedding and
  // the loss count as one layer each.
  Status uneven() {
    TESSERA_TRY(const std::vector<int64_t> places, blocks_of_places());
    constexpr const char* kLayers = "num-layers-per-virtual-pipeline-stage";
    if (has(kLayers)) {
      TESSERA_TRY(const int64_t of_stage, number(kLayers, 1));
      const int64_t of_place =
          places.empty() ? recipes::block_count(forward_) / s_.pp : places.front();
      if (has("decoder-first-pipeline-num-layers") || has("decoder-last-pipeline-num-layers"))
        return unknown(kLayers, "num-virtual-stages-per-pipeline-rank beside uneven stages");
      if ((places.empty() && recipes::block_count(forward_) % s_.pp != 0) ||
          of_place % of_stage != 0) {
        return unknown(kLayers,
                       fmt::format("a number that divides the {} layers of a place", of_place));
      }
      s_.chunks = of_place / of_stage;
    }
    if (places.empty()) return {};
    for (int64_t chunk = 0; chunk < s_.chunks; ++chunk) {
      for (const int64_t count : places) {
        if (count % s_.chunks != 0) {
          return invalid_input(
              fmt::format("{}: expected {} layers of a place that its {} virtual stages share "
                          "evenly",
                          target_, count, s_.chunks));
        }
        s_.blocks.push_back(count / s_.chunks);
      }
    }
    if (has("account-for-embedding-in-pipeline-split")) --s_.blocks.front();
    if (has("account-for-loss-in-pipeline-split")) --s_.blocks.back();
    const auto stages = static_cast<int64_t>(s_.blocks.size());
    if (s_.blocks == even_blocks(recipes::block_count(forward_), stages)) s_.blocks.clear();
    return {};
  }

  Status pipeline() {
    TESSERA_TRY(s_.chunks, number("num-virtual-stages-per-pipeline-rank", 1));
    if (s_.pp > 1) TESSERA_TRY_VOID(uneven());
    if (const std::string layout = text("pipeline-model-parallel-layout", ""); !layout.empty()) {
      TESSERA_TRY(s_.blocks, parse_pipeline_layout(layout));
      const auto stages = static_cast<int64_t>(s_.blocks.size());
      if (stages % s_.pp != 0)
        return unknown("pipeline-model-parallel-layout", "stages of all ranks");
      s_.chunks = stages / s_.pp;
      if (s_.blocks == even_blocks(recipes::block_count(forward_), stages)) s_.blocks.clear();
    }
    if (s_.chunks > 1) s_.schedule = "interleaved";
    return {};
  }

  Status shards() {
    s_.zero = has("use-distributed-optimizer") ? 1 : 0;
    if (has("use-torch-fsdp2")) {
      // FSDP2 gathers the parameters of the next block while the current one is computed, without
      // any flag.
      const bool whole = has("torch-fsdp2-no-reshard-after-forward");
      s_.zero = whole ? 2 : 3;
      s_.gathered_ahead = whole ? 0 : 1;
      return {};
    }
    if (has("use-megatron-fsdp") || has("use-custom-fsdp")) {
      const std::string strategy = text("data-parallel-sharding-strategy", "no_shard");
      const std::vector<std::string> known = {"no_shard", "optim", "optim_grads",
                                              "optim_grads_params"};
      const auto found = std::find(known.begin(), known.end(), strategy);
      if (found == known.end())
        return unknown("data-parallel-sharding-strategy", "one of " + join(known, ", "));
      s_.zero = found - known.begin();
    }
    if (s_.zero == 3) s_.gathered_ahead = has("overlap-param-gather") ? 1 : 0;
    return {};
  }

  Status recompute() {
    const std::string granularity =
        text("recompute-granularity", has("recompute-activations") ? "selective" : "");
    if (granularity.empty()) return {};
    if (granularity == "full") return recompute_blocks();
    if (granularity != "selective") return unknown("recompute-granularity", "full or selective");
    const auto modules = split_text(text("recompute-modules", "core_attn"), ' ');
    for (const std::string& module : modules) {
      const bool known = std::any_of(std::begin(kModules), std::end(kModules),
                                     [&](const auto& row) { return module == row.second; });
      if (!known) return unknown("recompute-modules", "modules that are known");
    }
    std::vector<std::string> words;
    for (const auto& [word, module] : kModules) {
      if (std::find(modules.begin(), modules.end(), module) != modules.end())
        words.emplace_back(word);
    }
    s_.recompute = join(words, "+");
    return {};
  }

  // Reads the flags that recompute whole blocks: all blocks, or some blocks of each stage.
  Status recompute_blocks() {
    const std::string method = text("recompute-method", "uniform");
    TESSERA_TRY(const int64_t count, number("recompute-num-layers", 1));
    const int64_t stages = s_.pp * s_.chunks;
    const auto blocks =
        s_.blocks.empty() ? even_blocks(recipes::block_count(forward_), stages) : s_.blocks;
    const int64_t most = *std::max_element(blocks.begin(), blocks.end());
    if (method == "block" && count < most) {
      return unknown("recompute-num-layers",
                     fmt::format("all {} layers of a stage: a plan makes all blocks again, or "
                                 "modules of all (--recompute-modules)",
                                 most));
    }
    if (method == "uniform" && count > 1)
      return unknown("recompute-num-layers", "1: a plan keeps what each block reads");
    if (method != "block" && method != "uniform")
      return unknown("recompute-method", "uniform or block");
    s_.recompute = "full";
    return {};
  }

  Result<ExportSettings> precision() {
    if (has("bf16")) s_.compute = DType::kBFloat16;
    if (has("fp16")) s_.compute = DType::kFloat16;
    if (has("grad-reduce-in-bf16")) s_.gradient = s_.compute;
    if (has("ddp-bucket-size")) {
      TESSERA_TRY(const int64_t elements, number("ddp-bucket-size", 1));
      s_.bucket_bytes = elements * dtype_bytes(s_.gradient);
    }
    return s_;
  }

  const CoreValues& values_;
  int64_t ranks_;
  const Graph& forward_;
  std::string_view target_;
  ExportSettings s_;
};

// Returns the layout with repetitions written out: for "Et*2|(tt|)*2L", "Ett|tt|tt|L". Moves `at`
// to the end of the text that was read.
Result<std::string> written_out(std::string_view layout, size_t& at, bool inside) {
  std::string out;
  while (at < layout.size() && layout[at] != ')') {
    std::string piece;
    if (layout[at] == '(') {
      ++at;
      TESSERA_TRY(piece, written_out(layout, at, true));
    } else {
      piece = layout[at];
      if (std::string_view("EtmL|,").find(layout[at]) == std::string_view::npos) {
        return invalid_input(fmt::format(
            "pipeline layout '{}': expected E, t, m, L, |, a group or a count, found '{}'", layout,
            layout[at]));
      }
    }
    ++at;
    int64_t times = 1;
    if (at < layout.size() && layout[at] == '*') {
      size_t end = ++at;
      while (end < layout.size() && layout[end] >= '0' && layout[end] <= '9') ++end;
      TESSERA_TRY(times, parse_int(layout.substr(at, end - at)));
      at = end;
      constexpr int64_t kMost = 10'000;
      if (times > kMost)
        return invalid_input(fmt::format("pipeline layout '{}': {} times", layout, times));
    }
    for (int64_t i = 0; i < times; ++i) out += piece;
  }
  if (inside != (at < layout.size()))
    return invalid_input(fmt::format("pipeline layout '{}': brackets do not match", layout));
  return out;
}

}  // namespace

std::string field_of_flag(std::string_view flag) {
  for (const auto& [known, field] : kFields) {
    if (flag == known) return field;
  }
  return "";
}

std::string flag_of_field(std::string_view field) {
  for (const auto& [flag, known] : kFields) {
    if (field == known) return flag;
  }
  return "";
}

std::string pipeline_layout(const std::vector<int64_t>& blocks) {
  std::vector<std::string> stages;
  for (const int64_t count : blocks) {
    stages.push_back(count == 0 ? "" : count == 1 ? "t" : fmt::format("t*{}", count));
  }
  return fmt::format("E{}L", join(stages, "|"));
}

Result<std::vector<int64_t>> parse_pipeline_layout(std::string_view layout) {
  size_t at = 0;
  TESSERA_TRY(const std::string all, written_out(layout, at, false));
  std::vector<int64_t> out;
  for (const std::string& stage : split_text(all, '|'))
    out.push_back(std::count(stage.begin(), stage.end(), 't'));
  return out;
}

std::vector<std::map<std::string, std::string>> core_fixes() {
  std::vector<std::map<std::string, std::string>> out = {{}};
  for (const char* recompute : {"none", "selective", "full"})
    out.push_back({{"replicas_apart", "0"}, {"recompute", recompute}});
  return out;
}

DegreeGrid core_grid() {
  DegreeGrid out;
  out.tensor = {{"heads", "ffn", "vocab", "seq"}};
  out.context = {{"seq~kv", "seq"}};
  out.experts = out.pipelines = true;
  out.recompute = {"none", "norm+core", "full"};
  out.schedules = {{"1f1b", {1}}, {"interleaved", {2, 3, 4, 6, 8}}};
  out.sharded = {0, 1};
  return out;
}

Result<std::vector<CoreArgument>> core_arguments(const ExportJob& job, std::string_view target) {
  TESSERA_TRY(std::vector<CoreArgument> out, CoreWriter(job, target).run());
  TESSERA_TRY(const ModelSizes sizes, model_sizes(job.model));
  for (const SizeArgument& size : sizes.arguments) {
    out.push_back({size.flag, size.value, size.field.empty() ? "" : "model." + size.field,
                   size.field_value, size.meaning});
  }
  return out;
}

Result<ExportSettings> read_core(const CoreValues& values, int64_t ranks, const Graph& forward,
                                 std::string_view target) {
  return CoreReader(values, ranks, forward, target).run();
}

}  // namespace tessera
