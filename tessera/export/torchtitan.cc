// TorchTitan: writes a module of Python with a function that takes a recipe of TorchTitan and sets the
// plan's fields. Since 0.3 TorchTitan starts with --module and --config, and reads no TOML. Its
// fields are described in torchtitan/config/configs.py of 0.3.0.
#include "tessera/export/torchtitan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/export/sizes.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

// Returns the number of stages of a rank. For zb_v it is always 2, because the schedule demands
// that.
int64_t stages_of_a_rank(const ExportSettings& s) { return s.schedule == "zb_v" ? 2 : s.chunks; }

// Functions of TorchTitan 0.3 that return a configuration, by the sizes of their models.
struct TitanRecipe {
  const char* family;
  int64_t layers, hidden;
  const char* module;  // of torchtitan.models
  const char* name;
};
constexpr TitanRecipe kTitanRecipes[] = {
    {"llama", 32, 4096, "llama3", "llama3_8b"},
    {"llama", 80, 8192, "llama3", "llama3_70b"},
    {"llama", 126, 16384, "llama3", "llama3_405b"},
    {"llama", 28, 1024, "qwen3", "qwen3_0_6b"},
    {"llama", 28, 2048, "qwen3", "qwen3_1_7b"},
    {"llama", 40, 5120, "qwen3", "qwen3_14b"},
    {"llama", 64, 5120, "qwen3", "qwen3_32b"},
    {"mixtral", 48, 2048, "qwen3", "qwen3_30b_a3b"},
    {"mixtral", 27, 2048, "deepseek_v3", "deepseek_v3_16b"},
    {"mixtral", 61, 7168, "deepseek_v3", "deepseek_v3_671b"},
    {"mixtral", 24, 2880, "gpt_oss", "gpt_oss_20b"},
    {"mixtral", 36, 2880, "gpt_oss", "gpt_oss_120b"},
};

const TitanRecipe* titan_recipe_of(const Model& model) {
  for (const TitanRecipe& recipe : kTitanRecipes) {
    if (model.family == recipe.family && spec_number(model, "layers") == recipe.layers &&
        spec_number(model, "hidden") == recipe.hidden)
      return &recipe;
  }
  return nullptr;
}

class TitanWriter {
 public:
  explicit TitanWriter(const ExportJob& job) : job_(job), s_(job.settings) {}

  Result<std::string> run() {
    TESSERA_TRY_VOID(check_sizes());
    begin();
    TESSERA_TRY_VOID(training());
    TESSERA_TRY_VOID(data_parallel());
    TESSERA_TRY_VOID(inside_a_layer());
    TESSERA_TRY_VOID(pipeline());
    TESSERA_TRY_VOID(recompute());
    return out_ + "    return config\n";
  }

 private:
  tl::unexpected<Error> refuse(std::string_view setting, const std::string& why) const {
    return cannot_express(job_, kTorchTitan, setting, why);
  }
  void add(const std::string& key, const std::string& value, std::string comment,
           std::string_view setting = "") {
    comment += line_of_setting(job_, setting);
    out_ += fmt::format("    config.{} = {}  # {}\n", key, value, comment);
  }
  void add(const std::string& key, int64_t value, const std::string& comment,
           std::string_view setting = "") {
    add(key, std::to_string(value), comment, setting);
  }

  // Checks the sizes that TorchTitan asserts, or that make one of its calls of view() fail
  // (parallel_dims.py and the models of 0.2.2 and 0.3.0).
  Status check_sizes() const {
    return check_divisions(
        job_, kTorchTitan,
        {{"heads", "query heads", s_.tp, "tp"},
         {"kv_heads", "key heads", s_.tp, "tp"},
         {"experts", "experts", s_.ep, "ep"},
         {"seq", "tokens (2 x tp x cp)", 2 * s_.tp * s_.cp, s_.cp > 1 ? "cp" : "tp"}});
  }

  void begin() {
    for (const std::string& line : heading(job_, torchtitan_target()))
      out_ += fmt::format("# {}\n", line);
    const TitanRecipe* recipe = titan_recipe_of(job_.model);
    out_ += fmt::format(
        "# Start, with this file as planned.py in the working folder: PYTHONPATH=. torchrun {} -m "
        "torchtitan.train --module planned --config planned\n",
        launcher_flags(job_));
    out_ += "# Optimizer, data and tokenizer are those of the recipe.\n";
    if (recipe == nullptr) {
      out_ +=
          "# No recipe of TorchTitan has the model's sizes: take one whose model is alike, and set "
          "config.model_spec to your own.\n";
    }
    const bool again = s_.recompute != "none";
    const char* const end = s_.whole.empty() ? "\n\n\n" : "\n";
    const char* kind = s_.recompute == "full" ? "FullAC" : "SelectiveAC";
    if (again)
      out_ += fmt::format("from torchtitan.distributed.activation_checkpoint import {}\n", kind);
    out_ += fmt::format("from torchtitan.models.{}.config_registry import {} as recipe{}",
                        recipe == nullptr ? "llama3" : recipe->module,
                        recipe == nullptr ? "llama3_8b" : recipe->name, end);
    shardings();
    out_ += "def planned():\n    config = recipe()\n";
  }

  Status training() {
    if (s_.compute == DType::kFloat16)
      return refuse("precision", "it trains in bfloat16 or float32, not in float16");
    if (s_.gradient != DType::kFloat32)
      return refuse("precision", "it sums gradients in float32 alone");
    // With a pipeline, the local batch is cut into the micro-batches. Without one, each micro-batch
    // is a local batch.
    const int64_t local = s_.micro_batch_size() * (s_.pp > 1 ? s_.micro_batches : 1);
    add("training.local_batch_size", local,
        s_.pp > 1 ? "sequences of a replica, all micro-batches" : "sequences of a micro-batch");
    add("training.global_batch_size", s_.batch, "sequences of a step", "micro_batches");
    add("training.seq_len", job_.model.seq, "tokens of a sequence");
    add("training.dtype", "\"float32\"", "parameters and optimizer state");
    add("training.mixed_precision_param",
        s_.compute == DType::kBFloat16 ? "\"bfloat16\"" : "\"float32\"",
        "products and activations");
    add("training.mixed_precision_reduce", "\"float32\"", "gradients are summed in it");
    if (s_.pp > 1 || s_.ep > 1)
      add("training.disable_cuda_graphs", "True", "graphs go with no pipeline and no expert ranks");
    return {};
  }

  Status data_parallel() {
    if (s_.zero == 1)
      return refuse("zero", "it shards optimizer state with gradients (FSDP2), not alone (ZeRO-1)");
    if (s_.zero == 0 && s_.cp > 1)
      return refuse("cp", "ranks that share a sequence also share parameters there (ZeRO-2 or 3)");
    if (s_.zero == 0 && s_.ep > 1) {
      return refuse("ep",
                    "ranks that share experts are among those that share parameters "
                    "(ZeRO-2 or 3)");
    }
    if (s_.zero == 0 && s_.dp * s_.replicas > 1 && (s_.tp > 1 || s_.cp > 1 || s_.pp > 1)) {
      return refuse("dp",
                    "its plain data parallelism stands alone; beside tensor, context or "
                    "pipeline parallelism replicas share shards (ZeRO-2 or 3)");
    }
    if (s_.zero == 2 && s_.pp == 1 && s_.micro_batches > 1) {
      return refuse("zero",
                    "with several micro-batches FSDP2 gathers parameters for each; ZeRO-2 "
                    "has them whole (ZeRO-3 or one micro-batch can be said)");
    }
    if (s_.zero == 3 && s_.gathered_ahead != 1) {
      return refuse(origin_of(job_, "gathered_ahead").empty() ? "zero" : "gathered_ahead",
                    fmt::format("FSDP2 always gathers one block ahead (prefetch = {{ units = "
                                "\"blocks.*\", ahead = 1 }}), the plan {}",
                                s_.gathered_ahead));
    }
    const bool sharded = s_.zero > 0;
    add("parallelism.data_parallel_replicate_degree", sharded ? s_.replicas : s_.dp * s_.ep,
        sharded ? "groups that hold all shards" : "replicas", "replicas");
    add("parallelism.data_parallel_shard_degree", sharded ? s_.dp * s_.ep : 1,
        "ranks that share parameters, gradients and optimizer state", sharded ? "zero" : "dp");
    if (sharded) {
      add("parallelism.fsdp_reshard_after_forward", s_.zero == 3 ? "\"always\"" : "\"never\"",
          s_.zero == 3 ? "parameters are gathered for either pass"
                       : "gathered parameters stay for the backward pass",
          "zero");
    }
    return {};
  }

  // Checks that the modules which the tensor ranks leave whole are of those that TorchTitan can have
  // whole. Its Embedding takes its table for the rows of this rank wherever there are tensor ranks,
  // whatever its sharding says (models/common/embedding.py).
  Status check_whole() const {
    if (s_.whole.contains("vocab"))
      return refuse("tp", "its tensor ranks also cut embedding, head and loss by vocab");
    if (s_.whole.empty()) return {};
    if (job_.model.family != "llama" || spec_number(job_.model, "qk_norm").value_or(0) != 0) {
      return refuse(
          "tp", fmt::format("its tensor ranks also cut {}; of Llama alone this export can write "
                            "modules that they leave whole",
                            s_.whole_text()));
    }
    if (s_.sequence_shard)
      return refuse("sequence_shard", "modules that its tensor ranks leave whole read all tokens");
    if (s_.cp > 1) {
      return refuse("cp",
                    "modules that its tensor ranks leave whole stand beside no context ranks");
    }
    return {};
  }

  // Writes the sharding of each module that the tensor ranks leave whole, by named axes. TorchTitan
  // sets those of all modules when the run begins, and then calls the overrides.
  void shardings() {
    if (s_.whole.empty()) return;
    out_ +=
        "import spmd_types as spmd\n"
        "from torchtitan.config import override\n"
        "from torchtitan.distributed.parallel_dims import MeshAxisName as Axis, SpmdLayout\n";
    if (s_.whole.contains("heads"))
      out_ += "from torchtitan.models.common.attention import GQAttention\n";
    if (s_.whole.contains("ffn"))
      out_ += "from torchtitan.models.common.feed_forward import FeedForward\n";
    out_ += fmt::format("from torchtitan.protocols.sharding import {}ShardingConfig\n\n",
                        s_.whole.contains("heads") ? "LocalMapConfig, " : "");
    out_ +=
        "# Equal on all tensor ranks: parameters, and activations [batch, tokens, features].\n"
        "WEIGHTS = SpmdLayout({Axis.DP: spmd.R, Axis.CP: spmd.R, Axis.TP: spmd.I})\n"
        "TOKENS = SpmdLayout({Axis.DP: spmd.S(0), Axis.CP: spmd.S(1), Axis.TP: spmd.I})\n"
        "\n\n"
        "def shard(module, **layouts):\n"
        "    setattr(module, \"sharding_config\", ShardingConfig(**layouts))\n"
        "\n\n"
        "def shard_product(linear):\n"
        "    shard(linear, state_shardings={\"weight\": WEIGHTS, \"bias\": WEIGHTS}, "
        "out_src_shardings=TOKENS)\n";
    if (s_.whole.contains("heads")) {
      out_ +=
          "\n\n@override(target=GQAttention.Config)\n"
          "def whole_attention(module):\n"
          "    shard(module, in_src_shardings={\"x_BLD\": TOKENS})\n"
          "    for name in (\"wqkv\", \"wq\", \"wkv\"):  # in one product or in two\n"
          "        if hasattr(module.qkv_linear, name):\n"
          "            shard_product(getattr(module.qkv_linear, name))\n"
          "    shard_product(module.wo)\n"
          "    if module.rope is not None:\n"
          "        shard(module.rope, state_shardings={\"cache\": WEIGHTS})\n"
          "    heads = {name: TOKENS for name in (\"q_BLNH\", \"k_BLNH\", \"v_BLNH\")}\n"
          "    shard(module.inner_attention, in_src_shardings=heads, in_dst_shardings=heads,\n"
          "          out_src_shardings=TOKENS, "
          "local_map=LocalMapConfig(in_grad_placements=(TOKENS,) * 3))\n"
          "    return module\n";
    }
    if (s_.whole.contains("ffn")) {
      out_ +=
          "\n\n@override(target=FeedForward.Config)\n"
          "def whole_mlp(module):\n"
          "    shard(module, in_src_shardings={\"x\": TOKENS})\n"
          "    for product in (module.w1, module.w2, module.w3):\n"
          "        shard_product(product)\n"
          "    return module\n";
    }
    out_ += "\n\n";
  }

  Status inside_a_layer() {
    TESSERA_TRY_VOID(check_whole());
    if (s_.stages_inside)
      return refuse("mesh", "it numbers ranks by pp, dp, cp, tp: replicas are nearer than stages");
    add("parallelism.tensor_parallel_degree", s_.tp, "ranks that share a layer", "tp");
    if (s_.tp > 1) {
      add("parallelism.enable_sequence_parallel", s_.sequence_shard ? "True" : "False",
          "whether tokens are cut over the same ranks between those ops", "sequence_shard");
    }
    if (!s_.whole.empty()) {
      std::vector<std::string> names;
      for (const TitanWhole& known : kTitanWhole)
        if (s_.whole.contains(known.dim)) names.push_back(fmt::format("\"{}\"", known.function));
      add("override.imports", fmt::format("[{}]", join(names, ", ")),
          "modules that those ranks leave whole", "tp");
      add("parallelism.spmd_backend", "\"partial_dtensor\"",
          "the one that has been tried with these modules");
    }
    TESSERA_TRY_VOID(context());
    if (s_.ep > 1 && s_.tp > 1) {
      return refuse("ep",
                    "its expert ranks include the tensor ranks, so that experts stay whole, which "
                    "the plan cuts over them");
    }
    add("parallelism.expert_parallel_degree", s_.ep, "ranks that share the experts of a block",
        "ep");
    return {};
  }

  Status context() {
    add("parallelism.context_parallel_degree", s_.cp, "ranks that share a sequence", "cp");
    if (s_.cp == 1) return {};
    if (s_.context != ContextForm::kGather) {
      return refuse("context",
                    s_.context == ContextForm::kHeads
                        ? "its context parallelism gathers keys and values, it does not cut heads"
                        : "its context parallelism gathers keys and values (0.3); rings went with "
                          "0.2");
    }
    if (s_.token_order != "zigzag" && s_.token_order != "none") {
      return refuse("token_order",
                    "its context parallelism gives each rank two pieces of the tokens, one from "
                    "either end (headtail), or one piece");
    }
    add("parallelism.context_parallel_load_balancer",
        s_.token_order == "zigzag" ? "\"headtail\"" : "None", "which tokens a rank has",
        "token_order");
    return {};
  }

  Status pipeline() {
    add("parallelism.pipeline_parallel_degree", s_.pp, "ranks, each with one stage or more", "pp");
    const auto* const schedule =
        std::find_if(kTitanSchedules.begin(), kTitanSchedules.end(),
                     [&](const TitanSchedule& name) { return s_.schedule == name.ours; });
    if (schedule == kTitanSchedules.end() || (s_.pp == 1 && s_.schedule != "1f1b")) {
      return refuse("schedule",
                    s_.pp == 1
                        ? "without a pipeline each micro-batch runs forward and backward"
                        : "its schedules are 1F1B, GPipe, Interleaved1F1B and ZBVZeroBubble");
    }
    if (s_.pp == 1) return {};
    add("parallelism.pipeline_parallel_schedule", fmt::format("\"{}\"", schedule->theirs),
        "order of blocks", "schedule");
    add("parallelism.pipeline_parallel_microbatch_size", s_.micro_batch_size(),
        "sequences of a micro-batch");
    const int64_t layers = recipes::block_count(job_.model.graph);
    const auto blocks =
        s_.blocks.empty() ? even_blocks(layers, s_.pp * stages_of_a_rank(s_)) : s_.blocks;
    out_ += fmt::format("    # The modules of {} stages{}\n", blocks.size(),
                        line_of_setting(job_, "blocks"));
    out_ += "    config.parallelism.module_fqns_per_model_part = [\n";
    int64_t layer = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::vector<std::string> modules;
      if (i == 0) modules.emplace_back("\"tok_embeddings\"");
      for (const int64_t end = layer + blocks[i]; layer < end; ++layer)
        modules.push_back(fmt::format("\"layers.{}\"", layer));
      if (i + 1 == blocks.size()) {
        modules.emplace_back("\"norm\"");
        modules.emplace_back("\"lm_head\"");
      }
      out_ += fmt::format("        [{}],\n", join(modules, ", "));
    }
    out_ += "    ]\n";
    return {};
  }

  Status recompute() {
    if (s_.recompute == "none") {
      add("activation_checkpoint", "None", "nothing is made again in the backward pass");
      return {};
    }
    if (s_.recompute == "full") {
      add("activation_checkpoint", "FullAC.Config()", "every block is made again", "recompute");
      return {};
    }
    if (s_.recompute != "selective") {
      return refuse("recompute",
                    fmt::format("it makes whole blocks again (full) or, op by op, what is cheap "
                                "(selective); the plan makes '{}' again",
                                s_.recompute));
    }
    out_ +=
        "    # Op by op: unlike the plan it keeps attention's result and makes every second "
        "product "
        "again.\n";
    add("activation_checkpoint", "SelectiveAC.Config()", "cheap ops of every block", "recompute");
    return {};
  }

  const ExportJob& job_;
  const ExportSettings& s_;
  std::string out_;
};

}  // namespace

ExportTarget torchtitan_target() {
  ExportTarget out;
  out.name = kTorchTitan;
  out.summary = "a module of Python that sets the fields of a recipe";
  out.version = "TorchTitan 0.3";
  out.fixes = {{{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "none"}},
               {{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "selective"}},
               {{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "full"}}};
  out.write = [](const ExportJob& job) { return TitanWriter(job).run(); };
  out.scan = scan_torchtitan;
  out.settings = settings_of_torchtitan;
  out.families = {"gpt", "llama", "mixtral"};
  out.style = "torchtitan";
  out.endings = {".py", ".toml", ".sh"};
  out.starts = {"torchtitan.train"};
  out.grid.tensor = {{"heads", "ffn", "vocab", "seq"}};
  out.grid.context = {{"seq"}};
  out.grid.experts = out.grid.pipelines = true;
  out.grid.recompute = {"none", "selective", "full"};
  out.grid.schedules = {{"1f1b", {1}}, {"interleaved", {2, 3, 4}}};
  out.grid.sharded = {0, 2, 3};
  return out;
}

}  // namespace tessera
