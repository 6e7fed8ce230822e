// TorchTitan: writes and reads the TOML file of a job. TorchTitan defines the sizes of models in
// Python files ("flavors"), so of the sizes only the sequence length is written.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"
#include "tessera/export/target.h"
#include "tessera/plan/recipes/writer.h"

namespace tessera {
namespace {

constexpr std::string_view kTorchTitan = "torchtitan";

struct ScheduleName {
  const char* ours;
  const char* theirs;
};
constexpr std::array kSchedules = {ScheduleName{"1f1b", "1F1B"}, ScheduleName{"gpipe", "GPipe"},
                                   ScheduleName{"interleaved", "Interleaved1F1B"},
                                   ScheduleName{"zb_v", "ZBVZeroBubble"}};

// Returns the number of stages of a rank. For zb_v it is always 2, because the schedule demands
// that.
int64_t stages_of_a_rank(const ExportSettings& s) { return s.schedule == "zb_v" ? 2 : s.chunks; }

class TitanWriter {
 public:
  explicit TitanWriter(const ExportJob& job) : job_(job), s_(job.settings) {}

  Result<std::string> run() {
    for (const std::string& line : heading(job_, torchtitan_target()))
      out_ += fmt::format("# {}\n", line);
    out_ +=
        "# The model's sizes are a flavor: [model] name and flavor are yours, as are optimizer and "
        "data.\n"
        "# TorchTitan 0.3 reads no TOML. It takes [training] and [parallelism] as options, "
        "--parallelism.tensor_parallel_degree 2,\n"
        "# but for context_parallel_rotate_method, which is gone; its head is lm_head, and "
        "recomputation is chosen in Python.\n";
    TESSERA_TRY_VOID(training());
    out_ += "\n[parallelism]\n";
    TESSERA_TRY_VOID(data_parallel());
    TESSERA_TRY_VOID(inside_a_layer());
    TESSERA_TRY_VOID(pipeline());
    return recompute();
  }

 private:
  tl::unexpected<Error> refuse(std::string_view setting, const std::string& why) const {
    return cannot_express(job_, kTorchTitan, setting, why);
  }
  void add(const std::string& key, const std::string& value, std::string comment,
           std::string_view setting = "") {
    comment += line_of_setting(job_, setting);
    out_ += fmt::format("{} = {}  # {}\n", key, value, comment);
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

  Status training() {
    if (s_.compute == DType::kFloat16)
      return refuse("precision", "it trains in bfloat16 or float32, not in float16");
    if (s_.gradient != DType::kFloat32)
      return refuse("precision", "it sums gradients in float32 alone");
    TESSERA_TRY_VOID(check_sizes());
    out_ += "\n[training]\n";
    // With a pipeline, the local batch is cut into the micro-batches. Without one, each micro-batch
    // is a local batch.
    const int64_t local = s_.micro_batch_size() * (s_.pp > 1 ? s_.micro_batches : 1);
    add("local_batch_size", local,
        s_.pp > 1 ? "sequences of a replica, all micro-batches" : "sequences of a micro-batch");
    add("global_batch_size", s_.batch, "sequences of a step", "micro_batches");
    add("seq_len", job_.model.seq, "tokens of a sequence");
    add("dtype", "\"float32\"", "parameters and optimizer state");
    add("mixed_precision_param", s_.compute == DType::kBFloat16 ? "\"bfloat16\"" : "\"float32\"",
        "products and activations");
    add("mixed_precision_reduce", "\"float32\"", "gradients are summed in it");
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
    add("data_parallel_replicate_degree", sharded ? s_.replicas : s_.dp * s_.ep,
        sharded ? "groups that hold all shards" : "replicas", "replicas");
    add("data_parallel_shard_degree", sharded ? s_.dp * s_.ep : 1,
        "ranks that share parameters, gradients and optimizer state", sharded ? "zero" : "dp");
    if (sharded) {
      add("fsdp_reshard_after_forward", s_.zero == 3 ? "\"always\"" : "\"never\"",
          s_.zero == 3 ? "parameters are gathered for either pass"
                       : "gathered parameters stay for the backward pass",
          "zero");
    }
    return {};
  }

  Status inside_a_layer() {
    if (s_.tp > 1 && !s_.vocabulary)
      return refuse("tp", "its tensor ranks also cut embedding, head and loss by vocab");
    if (s_.tp > 1 && !s_.sequence_shard) {
      return refuse("tp",
                    "between the ops that tensor ranks share it cuts tokens over them "
                    "(sequence parallelism), which the plan leaves whole");
    }
    if (s_.stages_inside)
      return refuse("mesh", "it numbers ranks by pp, dp, cp, tp: replicas are nearer than stages");
    add("tensor_parallel_degree", s_.tp, "ranks that share a layer", "tp");
    if (s_.cp > 1 && s_.context == ContextForm::kHeads) {
      return refuse("context",
                    "its context parallelism passes keys and values around, it does not "
                    "cut heads");
    }
    if (s_.cp > 1 && s_.token_order != "zigzag") {
      return refuse("token_order",
                    "its context parallelism gives each rank two pieces of the "
                    "tokens, one from either end (zigzag)");
    }
    add("context_parallel_degree", s_.cp, "ranks that share a sequence", "cp");
    if (s_.cp > 1) {
      add("context_parallel_rotate_method", "\"alltoall\"", "keys and values travel around a ring",
          "cp");
    }
    add("expert_parallel_degree", s_.ep, "ranks that share the experts of a block", "ep");
    if (s_.ep > 1) add("expert_tensor_parallel_degree", s_.tp, "ranks that share an expert", "tp");
    return {};
  }

  Status pipeline() {
    add("pipeline_parallel_degree", s_.pp, "ranks, each with one stage or more", "pp");
    const auto* const schedule =
        std::find_if(kSchedules.begin(), kSchedules.end(),
                     [&](const ScheduleName& name) { return s_.schedule == name.ours; });
    if (schedule == kSchedules.end() || (s_.pp == 1 && s_.schedule != "1f1b")) {
      return refuse("schedule",
                    s_.pp == 1
                        ? "without a pipeline each micro-batch runs forward and backward"
                        : "its schedules are 1F1B, GPipe, Interleaved1F1B and ZBVZeroBubble");
    }
    if (s_.pp == 1) return {};
    add("pipeline_parallel_schedule", fmt::format("\"{}\"", schedule->theirs), "order of blocks",
        "schedule");
    add("pipeline_parallel_microbatch_size", s_.micro_batch_size(), "sequences of a micro-batch");
    const int64_t layers = recipes::block_count(job_.model.graph);
    const auto blocks =
        s_.blocks.empty() ? even_blocks(layers, s_.pp * stages_of_a_rank(s_)) : s_.blocks;
    out_ += fmt::format("# The modules of {} stages{}\n", blocks.size(),
                        line_of_setting(job_, "blocks"));
    out_ += "module_fqns_per_model_part = [\n";
    int64_t layer = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::vector<std::string> modules;
      if (i == 0) modules.emplace_back("\"tok_embeddings\"");
      for (const int64_t end = layer + blocks[i]; layer < end; ++layer)
        modules.push_back(fmt::format("\"layers.{}\"", layer));
      if (i + 1 == blocks.size()) {
        modules.emplace_back("\"norm\"");
        modules.emplace_back("\"output\"");
      }
      out_ += fmt::format("  [{}],\n", join(modules, ", "));
    }
    out_ += "]\n";
    return {};
  }

  Result<std::string> recompute() {
    out_ += "\n[activation_checkpoint]\n";
    if (s_.recompute != "none" && s_.recompute != "full" && s_.recompute != "selective") {
      return refuse("recompute",
                    fmt::format("it makes whole blocks again (full) or, op by op, what is cheap "
                                "(selective); the plan makes '{}' again",
                                s_.recompute));
    }
    add("mode", fmt::format("\"{}\"", s_.recompute), "what is made again in the backward pass",
        "recompute");
    if (s_.recompute == "selective") {
      out_ +=
          "# Op by op: unlike the plan it keeps attention's result and makes every second product "
          "again.\n";
      add("selective_ac_option", "\"op\"", "cheap ops of every block");
    }
    return std::move(out_);
  }

  const ExportJob& job_;
  const ExportSettings& s_;
  std::string out_;
};

class TitanReader {
 public:
  TitanReader(const toml::table& job, int64_t ranks, const Graph& forward)
      : job_(job), ranks_(ranks), forward_(forward) {}

  Result<ExportSettings> run() {
    TESSERA_TRY(s_.tp, number("parallelism", "tensor_parallel_degree", 1));
    TESSERA_TRY(s_.cp, number("parallelism", "context_parallel_degree", 1));
    TESSERA_TRY(s_.pp, number("parallelism", "pipeline_parallel_degree", 1));
    TESSERA_TRY(s_.ep, number("parallelism", "expert_parallel_degree", 1));
    s_.sequence_shard = s_.tp > 1;
    TESSERA_TRY_VOID(data_parallel());
    TESSERA_TRY_VOID(pipeline());
    TESSERA_TRY_VOID(batch());
    const std::string mode = text("activation_checkpoint", "mode", "selective");
    if (mode != "none" && mode != "full" && mode != "selective") {
      return invalid_input(fmt::format(
          "torchtitan: activation_checkpoint.mode: expected none, full or selective, found '{}'",
          mode));
    }
    s_.recompute = mode;
    if (text("training", "mixed_precision_param", "bfloat16") == "bfloat16")
      s_.compute = DType::kBFloat16;
    if (text("training", "mixed_precision_reduce", "float32") == "bfloat16")
      s_.gradient = DType::kBFloat16;
    return s_;
  }

 private:
  std::string text(std::string_view table, std::string_view key, const char* otherwise) const {
    return job_[table][key].value_or(std::string(otherwise));
  }
  Result<int64_t> number(std::string_view table, std::string_view key, int64_t otherwise) const {
    const auto node = job_[table][key];
    if (!node) return otherwise;
    const auto value = node.value<int64_t>();
    if (value && (*value > 0 || *value == -1)) return *value;
    return invalid_input(
        fmt::format("torchtitan: {}.{}: expected a number of at least 1", table, key));
  }

  Status data_parallel() {
    TESSERA_TRY(const int64_t replicate,
                number("parallelism", "data_parallel_replicate_degree", 1));
    TESSERA_TRY(int64_t shard, number("parallelism", "data_parallel_shard_degree", -1));
    if (shard == -1) {  // all ranks that the other degrees leave
      TESSERA_TRY(shard, replicas_left(ranks_, replicate * s_.tp * s_.cp * s_.pp, kTorchTitan));
    }
    if (shard == 1 && s_.cp == 1) {
      s_.dp = replicate;
      return {};
    }
    if (shard % s_.ep != 0) {
      return invalid_input(fmt::format(
          "torchtitan: expected expert_parallel_degree to divide the {} sharding ranks, found {}",
          shard, s_.ep));
    }
    s_.replicas = replicate;
    s_.dp = shard / s_.ep;
    const std::string reshard = text("parallelism", "fsdp_reshard_after_forward", "default");
    const bool always = reshard == "always" || (reshard == "default" && s_.pp == 1);
    s_.zero = always ? 3 : 2;
    s_.gathered_ahead = always ? 1 : 0;  // FSDP2 gathers ahead without any key
    return {};
  }

  Status pipeline() {
    if (s_.pp == 1) return {};
    const std::string name = text("parallelism", "pipeline_parallel_schedule", "1F1B");
    const auto* const schedule =
        std::find_if(kSchedules.begin(), kSchedules.end(),
                     [&](const ScheduleName& known) { return name == known.theirs; });
    if (schedule == kSchedules.end())
      return invalid_input(fmt::format("torchtitan: unknown schedule '{}'", name));
    s_.schedule = schedule->ours;
    const toml::array* parts = job_["parallelism"]["module_fqns_per_model_part"].as_array();
    if (parts == nullptr) return {};
    for (const toml::node& part : *parts) {
      int64_t layers = 0;
      if (const toml::array* modules = part.as_array()) {
        for (const toml::node& module : *modules)
          layers += static_cast<int64_t>(module.value_or(std::string()).starts_with("layers."));
      }
      s_.blocks.push_back(layers);
    }
    const auto stages = static_cast<int64_t>(s_.blocks.size());
    if (s_.schedule == "interleaved") s_.chunks = stages / s_.pp;
    if (s_.blocks == even_blocks(recipes::block_count(forward_), stages)) s_.blocks.clear();
    return {};
  }

  Status batch() {
    TESSERA_TRY(s_.batch, number("training", "global_batch_size", -1));
    TESSERA_TRY(int64_t size, number("training", "local_batch_size", 1));
    if (s_.pp > 1) {
      TESSERA_TRY(const int64_t piece,
                  number("parallelism", "pipeline_parallel_microbatch_size", 1));
      if (s_.batch == -1) s_.batch = size * s_.replicas_of_batch();
      size = piece;
    }
    if (s_.batch == -1) s_.batch = size * s_.replicas_of_batch();
    TESSERA_TRY(s_.micro_batches,
                micro_batches_of(s_.batch, size, s_.replicas_of_batch(), kTorchTitan));
    return {};
  }

  const toml::table& job_;
  int64_t ranks_;
  const Graph& forward_;
  ExportSettings s_;
};

Result<ExportSettings> read_torchtitan(const std::string& text, int64_t ranks,
                                       const Graph& forward) {
  TESSERA_TRY(const toml::table job, parse_toml(text, "torchtitan"));
  return TitanReader(job, ranks, forward).run();
}

}  // namespace

ExportTarget torchtitan_target() {
  return {std::string(kTorchTitan),
          "the TOML of a job",
          "TorchTitan 0.2",
          {{{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "none"}},
           {{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "selective"}},
           {{"tp", "1"}, {"pp", "1"}, {"zero", "3"}, {"recompute", "full"}}},
          true,
          [](const ExportJob& job) { return TitanWriter(job).run(); },
          read_torchtitan,
          {"gpt", "llama", "mixtral"},
          "torchtitan"};
}

}  // namespace tessera
