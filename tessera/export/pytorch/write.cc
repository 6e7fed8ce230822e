// The text of the file, from the facts.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/text.h"
#include "tessera/export/pytorch.h"
#include "tessera/export/pytorch/facts.h"
#include "tessera/export/pytorch/python_parts.h"
#include "tessera/plan/load.h"

namespace tessera {
namespace pytorch {
namespace {

constexpr const char* kWhole = "whole";  // an axis of one rank, over which replicas "shard"

std::string quoted(const std::string& text) { return fmt::format("\"{}\"", text); }

std::string tuple_of(const std::vector<std::string>& items) {
  return fmt::format("({}{})", join(items, ", "), items.size() == 1 ? "," : "");
}

// Returns the text in lines of at most 100 characters.
std::string wrapped(const std::string& text) {
  std::string out, line;
  for (const std::string& word : split_text(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > 100) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line + "\n";
}

std::string placement(std::optional<int64_t> dim) {
  return dim ? fmt::format("Shard({})", *dim) : "Replicate()";
}

// An entry of a table of module or parameter paths.
struct Row {
  std::string path, value;
};

// Writes a table as a dict. Rows of blocks are one comprehension if all blocks have them.
std::string table(const std::string& name, const std::string& comment, const std::vector<Row>& rows,
                  const ModulePaths& modules) {
  if (rows.empty()) return fmt::format("{} = {{}}  # {}\n", name, comment);
  std::map<std::string, std::map<std::string, int64_t>> of_blocks;  // rest of a path: value: count
  const auto split = [&](const Row& row) -> std::optional<std::string> {
    for (int64_t block = 0; block < modules.blocks(); ++block) {
      const std::string module = modules.block(static_cast<int>(block));
      if (!module.empty() && row.path != module && inside(row.path, module))
        return row.path.substr(module.size() + 1);
    }
    return std::nullopt;
  };
  for (const Row& row : rows) {
    if (const auto rest = split(row)) ++of_blocks[*rest][row.value];
  }
  const auto common = [&](const std::string& rest) {
    const auto& values = of_blocks.at(rest);
    return modules.blocks() > 1 && values.size() == 1 && values.begin()->second == modules.blocks();
  };
  std::string own, inner;
  std::set<std::string> written;
  for (const Row& row : rows) {
    const auto rest = split(row);
    if (!rest || !common(*rest)) {
      own += fmt::format("    {}: {},\n", quoted(row.path), row.value);
    } else if (written.insert(*rest).second) {
      inner += fmt::format("            {}: {},\n", quoted(*rest), row.value);
    }
  }
  std::string out = fmt::format("# {}\n{} = {{\n{}", comment, name, own);
  if (!inner.empty()) {
    out += fmt::format(
        "    **{{\n        f\"{}.{{block}}.{{path}}\": value\n        for block in range({})\n"
        "        for path, value in {{\n{}        }}.items()\n    }},\n",
        modules.list(), modules.blocks(), inner);
  }
  return out + "}\n";
}

class Writer {
 public:
  Writer(const Facts& facts, const ModulePaths& modules, std::string label)
      : facts_(facts), modules_(modules), label_(std::move(label)) {}

  std::string text() {
    read_axes();
    std::string out = head();
    out += settings();
    out += mesh();
    if (tensor()) out += kCutParameters;
    if (stages()) {
      out += tensor() ? kCopyLaidOutNode : kCopyNode;
      out += facts_.remade.empty() ? kCopyNodes : kCopyRemadeNodes;
      out += cut_into_stages();
      out += fully_shards() ? kShardStage : "";
      if (tensor()) out += running();
      out += parallelize_stages();
    } else {
      if (tensor()) out += kLayOut;
      if (!facts_.remade.empty()) out += kRemake;
      if (fully_shards()) out += kShardModel;
      out += parallelize();
      out += step();
    }
    return out;
  }

 private:
  bool stages() const { return !facts_.stage_starts.empty(); }
  const UsedAxis* tensor() const { return facts_.tensor_axis(); }
  bool fully_shards() const { return !data_.empty(); }

  // The mesh of the file: the plan's axes; several of one use are one; replicas alone have an axis
  // of one rank beside them, because fully_shard wants one to shard over.
  void read_axes() {
    std::map<AxisUse, std::pair<std::vector<std::string>, int64_t>> uses;
    for (const UsedAxis& axis : facts_.axes) {
      auto& use = uses.try_emplace(axis.use, std::vector<std::string>{}, 1).first->second;
      use.first.push_back(axis.name);
      use.second *= axis.size;
    }
    const bool wraps = uses.contains(AxisUse::kReplicas) || narrow() || facts_.offload;
    for (const AxisUse use :
         {AxisUse::kStages, AxisUse::kReplicas, AxisUse::kShards, AxisUse::kTensor}) {
      const auto found = uses.find(use);
      const bool data = use == AxisUse::kReplicas || use == AxisUse::kShards;
      if (found != uses.end()) {
        names_.push_back(join(found->second.first, "_"));
        sizes_.push_back(std::to_string(found->second.second));
        if (data) data_.push_back(names_.back());
      } else if (use == AxisUse::kShards && wraps) {
        names_.emplace_back(kWhole);
        sizes_.emplace_back("1");
        data_.emplace_back(kWhole);
      }
    }
    if (names_.empty()) {
      names_.emplace_back(kWhole);
      sizes_.emplace_back("1");
    }
  }
  bool narrow() const {
    return facts_.plan.precision.compute.value_or(DType::kFloat32) == DType::kBFloat16;
  }

  std::string head() const {
    int64_t ranks = 1;
    for (const std::string& size : sizes_) ranks *= *parse_int(size);
    std::string out = fmt::format(
        "\"\"\"The plan {} as plain PyTorch (2.9 and later), for {} ranks.\n\n"
        "Written by tessera export --to pytorch. In a script that torchrun starts with\n"
        "--nproc-per-node {} (this file is parallel.py; the module returns its loss):\n\n"
        "    mesh = parallel.make_mesh()\n"
        "    model = parallel.parallelize(module, mesh{})\n"
        "    optimizer = torch.optim.AdamW(model.parameters())\n"
        "    for batch in batches:  # the tensors of a whole step: {} sequences\n"
        "        loss = parallel.train_step(model, mesh, *parallel.local_batch(mesh, *batch))\n"
        "        optimizer.step()\n"
        "        optimizer.zero_grad()\n",
        label_, ranks, ranks, stages() ? ", *parallel.local_batch(mesh, *batch)" : "",
        facts_.model->batch);
    for (const std::string& note : facts_.notes) out += "\n" + wrapped("Note: " + note + ".");
    out += "\"\"\"\n\n";
    std::set<std::string> plain, from;
    plain.insert("import contextlib");
    if (!facts_.remade.empty()) plain.insert(stages() ? "import operator" : "import functools");
    for (const std::string& line : plain) out += line + "\n";
    out += "\nimport torch\nimport torch.distributed as dist\n";
    from.insert("from torch.distributed.device_mesh import init_device_mesh");
    if (fully_shards()) {
      from.insert(
          fmt::format("from torch.distributed.fsdp import {}MixedPrecisionPolicy, fully_shard",
                      facts_.offload ? "CPUOffloadPolicy, " : ""));
    }
    if (tensor()) {
      from.insert(
          "from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor");
      from.insert("from torch.distributed.tensor.experimental import implicit_replication");
      if (facts_.parallel_loss)
        from.insert("from torch.distributed.tensor.parallel import loss_parallel");
      from.insert("from torch.nn.attention import SDPBackend, sdpa_kernel");
    }
    if (stages()) {
      if (!tensor()) from.insert("from torch.distributed.tensor import DTensor");
      from.insert(
          fmt::format("from torch.distributed.pipelining import PipelineStage, {}", schedule()));
    }
    if (!facts_.remade.empty()) from.insert("from torch.utils.checkpoint import checkpoint");
    for (const std::string& line : from) out += line + "\n";
    return out + "\n";
  }

  std::string line_of(int line) const { return line > 0 ? fmt::format(" (line {})", line) : ""; }

  std::string settings() const {
    const Plan& plan = facts_.plan;
    std::string out = fmt::format("MICRO_BATCHES = {}  # of a step{}\n", plan.micro_batches,
                                  line_of(plan.micro_batches_line));
    std::vector<std::string> data;
    for (const std::string& axis : data_) data.push_back(quoted(axis));
    out += fmt::format("DATA_AXES = {}  # over which the batch is cut\n", tuple_of(data));
    if (fully_shards()) out += shard_settings();
    if (tensor()) out += tensor_settings();
    if (!facts_.remade.empty()) {
      std::string paths;
      for (const std::string& path : facts_.remade) paths += "    " + quoted(path) + ",\n";
      out += fmt::format("# Modules that the backward pass computes again{}.\nREMADE = (\n{})\n",
                         line_of(facts_.remade_entry < 0
                                     ? 0
                                     : plan.stores[static_cast<size_t>(facts_.remade_entry)].line),
                         paths);
    }
    if (stages()) {
      std::vector<std::string> starts;
      for (const std::string& path : facts_.stage_starts) starts.push_back(quoted(path));
      out +=
          fmt::format("STAGE_STARTS = {}  # with which stages 1, 2, ... begin\n", tuple_of(starts));
    }
    return out;
  }

  std::string shard_settings() const {
    const Plan& plan = facts_.plan;
    const std::string line = line_of(
        facts_.zero_entry < 0 ? 0 : plan.stores[static_cast<size_t>(facts_.zero_entry)].line);
    std::string out, after;
    if (facts_.zero < 3) {
      after = "False";
    } else if (facts_.kept_pieces > 0) {
      after = std::to_string(facts_.kept_pieces);
    } else {
      after = facts_.kept ? "False" : "True";
    }
    out += fmt::format("RESHARD_AFTER_FORWARD = {}  # {}{}\n", after,
                       facts_.zero < 3 ? "parameters stay whole until the backward pass is done"
                                       : "parameters are gathered for each pass",
                       line);
    if (!stages()) {
      out += fmt::format(
          "SYNC_EVERY = {}  # whether gradients are summed over ranks after each "
          "micro-batch, or after the last{}\n",
          facts_.sums_each ? "True" : "False", line);
    }
    const auto dtype = [](DType type) { return fmt::format("torch.{}", dtype_name(type)); };
    const DType gradient = plan.precision.gradient.value_or(DType::kFloat32);
    out += fmt::format(
        "PRECISION = MixedPrecisionPolicy({})\n",
        narrow() ? fmt::format("param_dtype=torch.bfloat16, reduce_dtype={}", dtype(gradient))
                 : "");
    if (!stages()) {
      if (facts_.units.empty()) {
        out += "UNITS = ()  # modules that are gathered each at once: the whole model alone\n";
      } else {
        out += fmt::format(
            "UNITS = tuple(f\"{}.{{block}}\" for block in range({}))  # gathered each at once\n",
            modules_.list(), modules_.blocks());
      }
    }
    return out;
  }

  std::string tensor_settings() const {
    std::vector<Row> cut, enter, leave;
    for (const CutParameter& one : facts_.cut) cut.push_back({one.name, placement(one.dim)});
    for (const Border& border : facts_.enter)
      enter.push_back({border.module, placement(border.dim)});
    for (const Border& border : facts_.leave)
      leave.push_back({border.module, placement(border.dim)});
    const std::string axis = tensor()->name;
    return table("CUT",
                 fmt::format(
                     "Parameters in pieces over '{}'{}. All others are whole.", axis,
                     tensor()->entry < 0
                         ? ""
                         : line_of(facts_.plan.splits[static_cast<size_t>(tensor()->entry)].line)),
                 cut, modules_) +
           table("ENTERS", "How activations lie that enter these modules.", enter, modules_) +
           table("LEAVES", "How activations lie that leave these modules.", leave, modules_);
  }

  std::string mesh() const {
    std::vector<std::string> names;
    for (const std::string& name : names_) names.push_back(quoted(name));
    const bool one = std::find(names_.begin(), names_.end(), kWhole) != names_.end();
    return fmt::format(
               "\n\ndef make_mesh(device_type=\"cuda\"):\n    \"\"\"Returns the plan's "
               "mesh.{}\"\"\"\n"
               "    return init_device_mesh(device_type, {}, mesh_dim_names={})\n",
               one ? " `whole` is one rank: replicas are shards in one piece." : "",
               tuple_of(sizes_), tuple_of(names)) +
           kLocalBatch;
  }

  std::string data_mesh() const {
    if (data_.size() == 1) return fmt::format("mesh[\"{}\"]", data_[0]);
    return fmt::format("mesh[\"{}\", \"{}\"]", data_[0], data_[1]);
  }
  std::string shard_call(const std::string& what) const {
    return fmt::format("shard({}, {}{})", what, data_mesh(),
                       facts_.offload ? ", offload_policy=CPUOffloadPolicy()" : "");
  }

  std::string parallelize() const {
    std::string out =
        "\n\ndef parallelize(model, mesh):\n    \"\"\"Makes this rank's part of the model, in "
        "place, "
        "and returns it. Call it before the optimizer is made.\"\"\"\n";
    if (tensor()) out += fmt::format("    lay_out(model, mesh[\"{}\"])\n", tensor()->name);
    if (!facts_.remade.empty()) out += "    remake(model)\n";
    if (fully_shards()) out += "    " + shard_call("model") + "\n";
    return out + "    return model\n";
  }

  // Returns the context in which passes of a tensor parallel model run.
  std::string running() const {
    return fmt::format(
        "\n\n@contextlib.contextmanager\ndef running(mesh):\n"
        "    \"\"\"Plain tensors beside DTensors are the same on all ranks{}.\"\"\"\n"
        "    with contextlib.ExitStack() as stack:\n"
        "        stack.enter_context(implicit_replication())\n{}"
        "        if mesh.device_type == \"cpu\":  # DTensor has no rule for the CPU's fused "
        "attention\n"
        "            stack.enter_context(sdpa_kernel(SDPBackend.MATH))\n"
        "        yield\n",
        facts_.parallel_loss ? "; the loss reads classes in pieces" : "",
        facts_.parallel_loss ? "        stack.enter_context(loss_parallel())\n" : "");
  }
  const char* context() const { return tensor() ? "running(mesh)" : "contextlib.nullcontext()"; }

  std::string step() const {
    return (tensor() ? running() : "") +
           fmt::format(kStep, context(), fully_shards() ? kSync : "",
                       tensor() ? "loss.detach().full_tensor()" : "loss.detach()");
  }

  std::string schedule() const {
    const std::string& name = facts_.plan.schedule;
    if (name == "gpipe") return "ScheduleGPipe";
    return name == "1f1b" ? "Schedule1F1B" : "ScheduleInterleaved1F1B";
  }

  std::string cut_into_stages() const {
    const bool cuts = tensor() != nullptr;
    return fmt::format(
        kCutIntoStages, cuts ? ", mesh" : "", cuts ? "without_checks(" : "",
        cuts ? "\n            copies[node] = graph.call_module(\"as_dtensor\", (copies[node],))"
             : "",
        cuts ? "graph.call_function(as_plain, (" : "", cuts ? ",))" : "",
        cuts ? ")\n    traced.add_module(\"as_dtensor\", AsDTensor(mesh))" : "");
  }

  std::string parallelize_stages() const {
    const bool several = schedule() == "ScheduleInterleaved1F1B";
    const std::string axis = tensor() ? fmt::format("mesh[\"{}\"]", tensor()->name) : "";
    const std::string piece =
        tensor() ? fmt::format(
                       "            if names[0] in CUT:\n"
                       "                parts = parameter.chunk({}.size(), CUT[names[0]].dim)\n"
                       "                parameter = parts[mesh.get_local_rank(\"{}\")]\n",
                       axis, tensor()->name)
                 : "";
    return fmt::format(
        kParallelizeStages, facts_.plan.stage_axis, fully_shards() ? shard_call("stage") : "stage",
        schedule(), several ? "parts" : "parts[0]", tensor() ? ", " + axis : "", context(),
        tensor() ? fmt::format("\n        cut_parameters(stage, {})", axis) : "", piece,
        tensor() ? "    for alike, _ in tied:\n"
                   "        cut = [CUT[name] for name in alike if name in CUT]\n"
                   "        CUT.update({name: cut[0] for name in alike if cut})\n"
                 : "",
        tensor() ? "\n        local = [gradient.redistribute(placements=value.placements) for "
                   "value, gradient in zip(here, "
                   "local)]\n        for value, gradient in zip(here, local):\n            "
                   "value.grad = gradient"
                 : "");
  }

  const Facts& facts_;
  const ModulePaths& modules_;
  std::string label_;
  std::vector<std::string> names_, sizes_, data_;
};

}  // namespace
}  // namespace pytorch

Result<PyTorchFile> export_pytorch(const ExportRequest& request) {
  TESSERA_TRY(const DType compute, parse_dtype(request.precision));
  Compiler own(1);
  Compiler& compiler = request.compiler == nullptr ? own : *request.compiler;
  const DType dtype = storage_dtype(compute);
  TESSERA_TRY(const int64_t batch, compiler.batch_of(request.model, request.batch, 0, dtype));
  TESSERA_TRY(const auto model, compiler.model(request.model, std::max<int64_t>(batch, 1), dtype));
  TESSERA_TRY(PlanText plan, load_plan_text(request.plan, model->graph, "", compute));
  TESSERA_TRY(const pytorch::Facts facts, pytorch::find_facts({model, plan, compute, &compiler}));
  const pytorch::ModulePaths modules(*facts.graph);
  PyTorchFile out;
  out.text = pytorch::Writer(facts, modules, plan_label(request.plan)).text();
  out.notes = facts.notes;
  out.ranks = facts.resolved.ranks;
  out.batch = model->batch;
  out.model = model->spec;
  return out;
}

}  // namespace tessera
