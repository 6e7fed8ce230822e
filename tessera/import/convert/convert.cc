#include "tessera/import/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/compile/compile.h"
#include "tessera/import/convert/state.h"
#include "tessera/import/dcp/writer.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/new_folder.h"
#include "tessera/import/tiles.h"
#include "tessera/plan/load.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/move.h"
#include "tessera/state/shares.h"

namespace tessera {
namespace {

// The plan of a request: its text, and what each rank holds of each tensor, by name.
struct Held {
  std::string text;
  int64_t ranks = 1;
  std::map<std::string, std::vector<Box>> regions;  // by rank; absent: the first rank has all
};

Result<Held> held_by(const std::string& plan, const std::string& model) {
  Held held;
  if (plan.empty()) return held;
  Compiler compiler;
  CompileTexts texts;
  texts.model = model;
  texts.plan = plan;
  TESSERA_TRY(const Compiled compiled, compiler.compile(texts));
  TESSERA_TRY(const PlanText loaded,
              load_plan_text(plan, compiled.model->graph, "", DType::kFloat32));
  held.text = loaded.text;
  held.ranks = compiled.ranks();
  std::vector<Program> programs;
  for (int rank = 0; rank < compiled.ranks(); ++rank) {
    TESSERA_TRY(Program program, compiled.lowering->lower(rank, /*offsets=*/false));
    programs.push_back(std::move(program));
  }
  TESSERA_TRY(const std::vector<RestingTensor> resting, resting_state(compiled.graph(), programs));
  for (const RestingTensor& one : resting) held.regions[one.name] = one.regions;
  return held;
}

// ---- a checkpoint of Tessera

std::string role_of(const std::string& name) {
  return name.starts_with("optimizer.") ? "optimizer_state" : "parameter";
}

// Fills parts of a shard from a source. The shard is written from front to back, so that the part
// that was read last is kept.
class PartReader {
 public:
  PartReader(const TensorSource& source, const std::vector<ManifestTensor>& tensors,
             const std::vector<ShardPart>& parts)
      : source_(source), tensors_(tensors), parts_(parts) {}

  Status fill(size_t part, int64_t begin, std::span<std::byte> out) {
    if (part != read_) {
      const ManifestTensor& tensor = tensors_[parts_[part].tensor];
      const Box& box = parts_[part].box;
      bytes_.resize(static_cast<size_t>(box.volume() * dtype_bytes(tensor.dtype)));
      TESSERA_TRY_VOID(source_.read(*source_.find(tensor.name), box, tensor.dtype, bytes_.data()));
      read_ = part;
    }
    std::copy_n(bytes_.begin() + begin, out.size(), out.begin());
    return {};
  }

 private:
  const TensorSource& source_;
  const std::vector<ManifestTensor>& tensors_;
  const std::vector<ShardPart>& parts_;
  size_t read_ = SIZE_MAX;
  std::vector<std::byte> bytes_;
};

Result<ConvertReport> write_checkpoint(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const Held held, held_by(request.plan, state.model_text));
  Manifest manifest;
  manifest.step = state.step.value_or(0);
  manifest.seed = request.seed.value_or(state.seed.value_or(1));
  manifest.ranks = held.ranks;
  manifest.model = state.model.spec;
  manifest.plan = held.text;
  manifest.run = run_of(state);
  std::vector<int64_t> element_bytes;
  std::vector<std::vector<HeldBox>> boxes(static_cast<size_t>(held.ranks));
  for (const SourceArray& array : state.tensors->arrays()) {
    const size_t tensor = manifest.tensors.size();
    const auto regions = held.regions.find(array.name);
    for (size_t rank = 0; rank < boxes.size(); ++rank) {
      const Box box = regions == held.regions.end() ? (rank == 0 ? Box::whole(array.shape) : Box())
                                                    : regions->second[rank];
      if (rank == 0 || regions != held.regions.end()) {
        if (!box.empty()) boxes[rank].push_back({tensor, box});
      }
    }
    manifest.tensors.push_back({array.name, role_of(array.name), array.dtype, array.shape, {}});
    element_bytes.push_back(dtype_bytes(array.dtype));
  }
  FileSystem disk;
  const std::string path = checkpoint_path(request.to, manifest.step);
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    return invalid_input(
        fmt::format("{}: expected a folder that does not exist yet, found one", path));
  const bool made = !std::filesystem::exists(std::filesystem::symlink_status(request.to, error));
  TESSERA_TRY_VOID(begin_checkpoint(disk, request.to, manifest.step));
  std::vector<std::vector<ShardPart>> parts;
  std::vector<ShardReport> reports;
  for (const std::vector<HeldBox>& share : share_out(element_bytes, boxes)) {
    std::vector<ShardPart>& list = parts.emplace_back();
    for (const HeldBox& one : share) list.push_back({one.tensor, one.box});
  }
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Shard shard = plan_shard(static_cast<int>(rank), manifest.tensors, parts[rank]);
    PartReader reader(*state.tensors, manifest.tensors, parts[rank]);
    auto report = write_shard(disk, request.to, manifest.step, shard,
                              [&](size_t part, int64_t begin, std::span<std::byte> out) {
                                return reader.fill(part, begin, out);
                              });
    if (!report) {
      std::filesystem::remove_all(made ? request.to : writing_path(request.to, manifest.step),
                                  error);
      return tl::unexpected(report.error());
    }
    reports.push_back(std::move(*report));
  }
  add_shards(manifest, parts, reports);
  TESSERA_TRY_VOID(commit_checkpoint(disk, request.to, manifest));
  ConvertReport done;
  done.path = path;
  if (!manifest.run.empty()) {
    std::string keys = manifest.run;
    std::replace(keys.begin(), keys.end(), '\n', ',');
    done.notes.push_back("its optimizer had " + keys.substr(0, keys.size() - 1));
  }
  done.tensors = std::ssize(manifest.tensors);
  done.bytes = manifest.bytes();
  if (!state.has_optimizer) {
    done.notes.emplace_back(
        "it has no state of an optimizer: a run begins from it by weights = \"" + path + "\"");
  }
  return done;
}

// ---- a folder of torch.distributed.checkpoint

// The tensors of a source whose names begin so, without that beginning.
class Without : public TensorSource {
 public:
  Without(const TensorSource& from, std::string prefix) : from_(from), prefix_(std::move(prefix)) {}
  std::string where() const override { return from_.where(); }
  const std::vector<SourceArray>& arrays() const override { return from_.arrays(); }
  const SourceArray* find(std::string_view name) const override {
    return from_.find(prefix_ + std::string(name));
  }
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    return from_.read(array, region, dtype, out);
  }
  int64_t bytes_read() const override { return from_.bytes_read(); }

 private:
  const TensorSource& from_;
  std::string prefix_;
};

// Adds what a state_dict has besides tensors: the settings of AdamW's one group of parameters, as
// PyTorch's get_state_dict() writes them.
void add_group(const TrainingState& state, const std::vector<std::string>& parameters,
               std::map<std::string, dcp::PickleWriter>& objects,
               decltype(dcp::Metadata::paths)& paths) {
  const auto add = [&](const char* key, auto&& write) {
    const std::string name = fmt::format("optim.param_groups.0.{}", key);
    write(objects[name]);
    paths[name] = {"optim", "param_groups", int64_t{0}, key};
  };
  const OptimizerSpec defaults;
  std::map<std::string, std::vector<double>> numbers{{"lr", {1e-3}},
                                                     {"betas", {defaults.beta1, defaults.beta2}},
                                                     {"eps", {defaults.eps}},
                                                     {"weight_decay", {defaults.weight_decay}}};
  for (const auto& [name, values] : state.settings) {
    if (values.size() == numbers[name].size()) numbers[name] = values;
  }
  for (const char* key : {"lr", "eps", "weight_decay"})
    add(key, [&](dcp::PickleWriter& out) { out.number(numbers[key][0]); });
  add("betas", [&](dcp::PickleWriter& out) {
    out.mark();
    for (const double one : numbers["betas"]) out.number(one);
    out.tuple();
  });
  for (const char* key : {"amsgrad", "maximize", "capturable", "differentiable"})
    add(key, [](dcp::PickleWriter& out) { out.boolean(false); });
  for (const char* key : {"foreach", "fused"}) add(key, [](dcp::PickleWriter& out) { out.none(); });
  add("decoupled_weight_decay", [](dcp::PickleWriter& out) { out.boolean(true); });
  add("params", [&](dcp::PickleWriter& out) {
    out.empty_list();
    out.mark();
    for (const std::string& one : parameters) out.text(one);
    out.append_all();
  });
}

Result<ConvertReport> write_dcp(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const Held held, held_by(request.plan, state.model_text));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(state.model));
  TESSERA_TRY(const HuggingFaceArrays arrays, huggingface_arrays(views, *state.tensors));
  std::vector<ArrayEntry> entries;
  decltype(dcp::Metadata::paths) paths;
  std::vector<std::string> parameters;
  for (const ArrayEntry& entry : arrays.entries) {
    parameters.push_back(entry.name);
    entries.push_back(entry);
    entries.back().name = "model." + entry.name;
    paths[entries.back().name] = {"model", entry.name};
  }
  struct Part {
    std::unique_ptr<Without> source;
    HuggingFaceArrays arrays;
    size_t first;
  };
  std::vector<Part> states;
  if (state.has_optimizer) {
    for (const AdamState& adam : kAdamStates) {
      auto source = std::make_unique<Without>(*state.tensors, adam.ours);
      TESSERA_TRY(HuggingFaceArrays of, huggingface_arrays(views, *source));
      const size_t first = entries.size();
      for (const ArrayEntry& entry : of.entries) {
        entries.push_back(entry);
        entries.back().name = fmt::format("optim.state.{}.{}", entry.name, adam.theirs);
        paths[entries.back().name] = {"optim", "state", entry.name, adam.theirs};
      }
      states.push_back({std::move(source), std::move(of), first});
    }
  }
  const size_t steps = entries.size();
  if (state.has_optimizer) {
    for (const std::string& name : parameters) {
      entries.push_back({fmt::format("optim.state.{}.step", name), DType::kFloat32, {}});
      paths[entries.back().name] = {"optim", "state", name, "step"};
    }
  }
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.to));
  TESSERA_TRY(dcp::DcpWriter writer, dcp::DcpWriter::create(folder, entries, held.ranks));
  TESSERA_TRY_VOID(write_arrays(arrays, *state.tensors, 0, writer));
  for (const Part& part : states)
    TESSERA_TRY_VOID(write_arrays(part.arrays, *part.source, part.first, writer));
  const auto step = static_cast<float>(state.step.value_or(0));
  for (size_t i = steps; i < entries.size(); ++i) {
    TESSERA_TRY_VOID(writer.write(i, 0, sizeof step, reinterpret_cast<const std::byte*>(&step)));
  }
  std::map<std::string, dcp::PickleWriter> objects;
  if (state.has_optimizer) add_group(state, parameters, objects, paths);
  TESSERA_TRY_VOID(writer.finish(std::move(objects), std::move(paths)));
  TESSERA_TRY_VOID(folder.commit());
  ConvertReport done;
  done.path = request.to;
  done.tensors = std::ssize(entries);
  done.bytes = writer.bytes();
  return done;
}

Result<ConvertReport> write_huggingface(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const ExportedWeights exported,
              export_huggingface(*state.tensors, state.theirs.get(), state.model_text, request.to));
  ConvertReport done;
  done.path = request.to;
  done.tensors = exported.arrays;
  done.bytes = exported.bytes;
  done.notes = exported.notes;
  if (!request.plan.empty())
    done.notes.emplace_back("a Hugging Face folder has whole arrays: the plan changes nothing");
  if (state.has_optimizer)
    done.notes.emplace_back("a Hugging Face folder has no place for the optimizer's state");
  return done;
}

}  // namespace

Result<ConvertReport> convert_checkpoint(const ConvertRequest& request) {
  TESSERA_TRY(const TrainingState state, open_state(request.from, request.model));
  const std::string format = !request.format.empty()     ? request.format
                             : state.format == "tessera" ? "dcp"
                                                         : "tessera";
  const auto write = format == "tessera" ? write_checkpoint
                     : format == "dcp"   ? write_dcp
                                         : write_huggingface;
  TESSERA_TRY(ConvertReport done, write(state, request));
  done.from = state.format;
  done.to = format;
  done.step = state.step;
  return done;
}

}  // namespace tessera
