// FSDP2: writes a module of Python that shards a model by fully_shard of PyTorch, for people who write
// their own training loop. The plan's numbers are assignments to `plan.`, which the reader reads.
#include <fmt/format.h>

#include <vector>

#include "tessera/base/text.h"
#include "tessera/export/fsdp.h"

namespace tessera {
namespace {

constexpr std::string_view kFsdp2 = "fsdp2";

// The part of the text that is the same for all plans.
constexpr const char* kShard = R"(

def shard(model, blocks):
    """Shards the model, whose repeated blocks are `blocks`. Call it before the optimizer is made."""
    sizes, names = (plan.shard_degree,), ("shard",)
    if plan.replicate_degree > 1:
        sizes, names = (plan.replicate_degree, *sizes), ("replicate", *names)
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=names)
    policy = MixedPrecisionPolicy(param_dtype=plan.param_dtype, reduce_dtype=plan.reduce_dtype)
    keep = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": plan.reshard_after_forward}
    for block in blocks:
        if plan.recompute_blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        fully_shard(block, **keep)
    return fully_shard(model, **keep)
)";

Result<std::string> write_fsdp2(const ExportJob& job) {
  const ExportSettings& s = job.settings;
  TESSERA_TRY_VOID(check_fsdp(job, kFsdp2));
  if (s.cp > 1)
    return cannot_express(job, kFsdp2, "cp", "fully_shard alone does not cut sequences");
  std::string out;
  for (const std::string& line : heading(job, fsdp2_target())) out += fmt::format("# {}\n", line);
  out += fmt::format(
      "# Start, with this file as planned.py beside a training script that calls "
      "planned.shard(model, model.layers): torchrun {} train.py\n",
      launcher_flags(job));
  out += "# Model, data and optimizer are the script's. Parameters are made in float32.\n";
  out +=
      "import functools\nimport types\n\nimport torch\nfrom torch.distributed.device_mesh import "
      "init_device_mesh\nfrom torch.distributed.fsdp import MixedPrecisionPolicy, "
      "fully_shard\nfrom torch.utils.checkpoint import checkpoint\n\nplan = "
      "types.SimpleNamespace()\n";
  const auto add = [&](const char* key, const std::string& value, const char* comment,
                       std::string_view setting = "") {
    out +=
        fmt::format("plan.{} = {}  # {}{}\n", key, value, comment, line_of_setting(job, setting));
  };
  const auto dtype = [](DType type) { return fmt::format("torch.{}", dtype_name(type)); };
  add("replicate_degree", std::to_string(s.replicas), "groups that hold all shards", "replicas");
  add("shard_degree", std::to_string(s.dp), "ranks that share parameters", "zero");
  add("reshard_after_forward", s.zero == 3 ? "True" : "False",
      s.zero == 3 ? "parameters are gathered for either pass"
                  : "gathered parameters stay for the backward pass",
      "zero");
  add("recompute_blocks", s.recompute == "full" ? "True" : "False",
      "whether blocks are made again in the backward pass", "recompute");
  add("param_dtype", dtype(s.compute), "products and activations");
  add("reduce_dtype", dtype(s.gradient), "gradients are summed in it");
  add("local_batch_size", std::to_string(s.micro_batch_size()), "sequences of a micro-batch");
  add("accumulation_steps", std::to_string(s.micro_batches), "micro-batches of a step",
      "micro_batches");
  return out + kShard;
}

// Returns the assignments to fields of `plan`.
Result<SaidKeys> scan_fsdp2(const std::string& text) {
  SaidKeys out;
  int number = 0;
  for (const std::string& line : split_text(text, '\n')) {
    ++number;
    constexpr std::string_view kFront = "plan.";
    const size_t equals = line.find('=');
    if (!line.starts_with(kFront) || equals == std::string::npos) continue;
    const std::string name(trim(line.substr(kFront.size(), equals - kFront.size())));
    const std::string rest = line.substr(equals + 1);
    std::string value(trim(rest.substr(0, rest.find('#'))));
    if (value.starts_with("torch.")) value = value.substr(6);
    out.push_back({name, value, number});
  }
  return out;
}

Result<ExportSettings> settings_of_fsdp2(const SettingsRequest& request) {
  const SaidValues values(request.said, kFsdp2);
  ExportSettings s;
  TESSERA_TRY(s.replicas, values.number("replicate_degree", 1));
  TESSERA_TRY(s.dp, values.number("shard_degree", 0));
  if (s.dp == 0) {
    TESSERA_TRY(const int64_t ranks, ranks_of(request, "", "", kFsdp2));
    TESSERA_TRY(s.dp, replicas_left(ranks, s.replicas, kFsdp2));
  }
  TESSERA_TRY(const bool reshard, values.flag("reshard_after_forward", true));
  TESSERA_TRY(const bool again, values.flag("recompute_blocks", false));
  set_fsdp(s, reshard, again);
  TESSERA_TRY(s.compute, parse_dtype(values.text("param_dtype", "float32")));
  TESSERA_TRY(s.gradient, parse_dtype(values.text("reduce_dtype", "float32")));
  TESSERA_TRY(const int64_t size, values.number("local_batch_size", 1));
  TESSERA_TRY(s.micro_batches, values.number("accumulation_steps", 1));
  s.batch = size * s.micro_batches * s.replicas_of_batch();
  return s;
}

}  // namespace

ExportTarget fsdp2_target() {
  ExportTarget out;
  out.name = kFsdp2;
  out.summary = "a module of Python that shards a model by fully_shard";
  out.version = "PyTorch 2.6 to 2.15";
  out.fixes = fsdp_fixes();
  out.write = write_fsdp2;
  out.scan = scan_fsdp2;
  out.settings = settings_of_fsdp2;
  out.style = "fsdp";
  out.endings = {".py"};
  out.grid.sharded = {2, 3};
  return out;
}

}  // namespace tessera
