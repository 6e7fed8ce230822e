#include "tessera/import/convert/dcp_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/import/convert/megatron.h"
#include "tessera/import/convert/plan_pieces.h"
#include "tessera/import/convert/sources.h"
#include "tessera/import/dcp/save.h"
#include "tessera/import/dcp/writer.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/new_folder.h"

namespace tessera {
namespace {

using dcp::PickleWriter;

// Parameters or one of AdamW's states, as Hugging Face's arrays.
struct StatePart {
  const AdamState* adam = nullptr;  // null: the parameters
  std::shared_ptr<const TensorSource> source;
  HuggingFaceArrays arrays;
};

Result<std::vector<StatePart>> parts_of(const TrainingState& state) {
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(state.model));
  std::vector<StatePart> parts;
  TESSERA_TRY(HuggingFaceArrays parameters, huggingface_arrays(views, *state.tensors));
  parts.push_back({nullptr, state.tensors, std::move(parameters)});
  if (!state.has_optimizer) return parts;
  for (const AdamState& adam : kAdamStates) {
    StatePart part{&adam, part_of(state.tensors, adam.ours, "", {}), {}};
    TESSERA_TRY(part.arrays, huggingface_arrays(views, *part.source));
    parts.push_back(std::move(part));
  }
  return parts;
}

// ---- PyTorch

// Returns numbers of AdamW's group of parameters by PyTorch's name: those of the run, or PyTorch's
// defaults.
std::map<std::string, std::vector<double>> group_numbers(const TrainingState& state) {
  const OptimizerSpec defaults;
  std::map<std::string, std::vector<double>> numbers{{"lr", {1e-3}},
                                                     {"betas", {defaults.beta1, defaults.beta2}},
                                                     {"eps", {defaults.eps}},
                                                     {"weight_decay", {defaults.weight_decay}}};
  for (const auto& [name, values] : state.settings) {
    if (values.size() == numbers[name].size()) numbers[name] = values;
  }
  return numbers;
}

// Calls `add` with each key of a group of torch.optim.AdamW but `params`, and what writes its value.
using AddValue =
    std::function<void(const char* key, const std::function<void(PickleWriter&)>& write)>;
void add_group(const std::map<std::string, std::vector<double>>& numbers, const AddValue& add) {
  for (const auto& [key, values] : numbers) {
    add(key.c_str(), [&, list = &values](PickleWriter& out) {
      if (list->size() == 1) return out.number(list->front());
      out.mark();
      for (const double one : *list) out.number(one);
      out.tuple();
    });
  }
  for (const char* key : {"amsgrad", "maximize", "capturable", "differentiable"})
    add(key, [](PickleWriter& out) { out.boolean(false); });
  for (const char* key : {"foreach", "fused"}) add(key, [](PickleWriter& out) { out.none(); });
  add("decoupled_weight_decay", [](PickleWriter& out) { out.boolean(true); });
}

// ---- Megatron Core

constexpr int64_t kVocabularyMultiple = 128;  // of rows of the vocabulary, for each tensor rank

// Returns among how many ranks the plan divides the rows of the vocabulary.
int64_t ranks_of_vocabulary(const std::vector<TensorView>& views, const MegatronTable& table,
                            const PlanPieces& held) {
  std::set<int64_t> begins{0};
  for (size_t i = 0; i < views.size(); ++i) {
    if (!table.arrays[table.boxes[i].array].padded) continue;
    const auto regions = held.regions.find(views[i].name);
    const int dim = views[i].dims.front();
    if (regions == held.regions.end() || dim == TensorView::kPart) continue;
    for (const Box& box : regions->second) {
      if (!box.empty()) begins.insert(box.dims[static_cast<size_t>(dim)].begin);
    }
  }
  return std::ssize(begins);
}

// Returns the table with the vocabulary padded as the request says, as it was before, or as Megatron
// Core pads it for the plan's ranks.
Result<MegatronTable> padded_table(const TrainingState& state, const ConvertRequest& request,
                                   const std::vector<TensorView>& views, const PlanPieces& held) {
  const int64_t own = state.model.vocab;
  TESSERA_TRY(MegatronTable table, megatron_table(state.model, own));
  const int64_t multiple = kVocabularyMultiple * ranks_of_vocabulary(views, table, held);
  const int64_t rows = request.vocabulary_rows ? *request.vocabulary_rows
                       : state.vocabulary_rows ? *state.vocabulary_rows
                                               : (own + multiple - 1) / multiple * multiple;
  return megatron_table(state.model, rows);
}

// Writes "key": value; the values of a dict stand between a mark and set_all().
template <class Write>
void add_key(PickleWriter& out, const char* key, Write&& write) {
  out.text(key);
  write();
}

// Writes the groups of parameters that Megatron Core makes: the one of the matrices, and the one of
// vectors, which have no weight decay.
void write_groups(PickleWriter& out, const TrainingState& state, int64_t step) {
  out.empty_list();
  out.mark();
  for (const bool decays : {true, false}) {
    std::map<std::string, std::vector<double>> numbers = group_numbers(state);
    if (!decays) numbers["weight_decay"] = {0};
    numbers["wd_mult"] = {decays ? 1.0 : 0.0};
    numbers["lr_mult"] = {1};
    numbers["max_lr"] = numbers["lr"];
    out.empty_dict();
    out.mark();
    add_group(numbers, [&](const char* key, const std::function<void(PickleWriter&)>& write) {
      add_key(out, key, [&] { write(out); });
    });
    for (const char* key : {"is_expert_parallel", "is_decoupled_lr"})
      add_key(out, key, [&] { out.boolean(false); });
    for (const char* key : {"default_config", "bias_correction"})
      add_key(out, key, [&] { out.boolean(true); });
    add_key(out, "step", [&] { out.integer(step); });
    out.set_all();
  }
  out.append_all();
}

// Writes what each of Megatron Core's optimizers loads besides tensors: the plain one its groups and
// steps, those that keep wide parameters or divide their state the same one level further in.
void write_optimizer(PickleWriter& out, const TrainingState& state, int64_t step) {
  const auto write_plain = [&] {
    add_key(out, "state", [&] {
      out.empty_dict();
      out.mark();
      add_key(out, "common_step", [&] { out.number(static_cast<double>(step)); });
      out.set_all();
    });
    add_key(out, "param_groups", [&] { write_groups(out, state, step); });
  };
  out.empty_dict();
  out.mark();
  write_plain();
  add_key(out, "optimizer", [&] {
    out.empty_dict();
    out.mark();
    write_plain();
    out.set_all();
  });
  add_key(out, "param_state_sharding_type", [&] { out.text("fully_reshardable"); });
  out.set_all();
}

// Writes the state of Megatron-LM's schedule after so many samples, at a constant rate. Its script
// asks for one, and takes the rest from its own flags where it is told to.
void write_schedule(PickleWriter& out, const TrainingState& state, int64_t samples) {
  const std::map<std::string, std::vector<double>> numbers = group_numbers(state);
  out.empty_dict();
  out.mark();
  for (const char* key : {"max_lr", "min_lr"})
    add_key(out, key, [&] { out.number(numbers.at("lr").front()); });
  for (const char* key : {"start_wd", "end_wd"})
    add_key(out, key, [&] { out.number(numbers.at("weight_decay").front()); });
  for (const char* key : {"lr_decay_style", "wd_incr_style"})
    add_key(out, key, [&] { out.text("constant"); });
  add_key(out, "lr_warmup_steps", [&] { out.integer(0); });
  for (const char* key : {"num_steps", "lr_decay_steps", "wd_incr_steps"})
    add_key(out, key, [&] { out.integer(samples); });
  out.set_all();
}

std::string common_text(const TrainingState& state) {
  const int64_t step = state.step.value_or(0);
  PickleWriter out;
  out.empty_dict();
  out.mark();
  add_key(out, "checkpoint_version", [&] { out.number(3.0); });
  add_key(out, "iteration", [&] { out.integer(step); });
  add_key(out, "content_metadata", [&] {
    out.empty_dict();
    out.mark();
    add_key(out, "distrib_optim_sharding_type", [&] { out.text("fully_reshardable"); });
    for (const char* key :
         {"distrib_optim_fully_reshardable_mem_efficient", "singleton_local_shards"})
      add_key(out, key, [&] { out.boolean(false); });
    add_key(out, "chained_optim_avoid_prefix", [&] { out.boolean(true); });
    out.set_all();
  });
  if (state.has_optimizer) add_key(out, "optimizer", [&] { write_optimizer(out, state, step); });
  if (state.samples) {
    const int64_t samples = *state.samples;
    add_key(out, "opt_param_scheduler", [&] { write_schedule(out, state, samples); });
  }
  out.set_all();
  return dcp::saved_object(std::move(out));
}

// Returns what Megatron Core's loader asks for besides arrays: for each module of each layer a state
// of Transformer Engine, which has none unless it computes in 8 bits.
std::map<std::string, PickleWriter> extra_states(const MegatronTable& table) {
  constexpr std::string_view kEnd = ".weight", kDecoder = "decoder.";
  std::map<std::string, PickleWriter> objects;
  const auto add = [&](std::string_view module, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      PickleWriter out;
      out.empty_list();
      out.mark();
      out.none();
      out.append_all();
      objects[fmt::format("{}._extra_state/shard_{}_{}", module, i, count)] = std::move(out);
    }
  };
  for (const MegatronArray& array : table.arrays) {
    const std::string_view name = array.name;
    if (!name.starts_with(kDecoder) || !name.ends_with(kEnd)) continue;
    add(name.substr(0, name.size() - kEnd.size()), array.layered ? array.shape[0] : 1);
    if (array.layered)
      add(fmt::format("{}self_attention.core_attention", kMegatronLayers), array.shape[0]);
  }
  return objects;
}

constexpr const char* kConfigText =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
    R"("common_backend": "torch", "common_backend_version": 1})";

}  // namespace

Result<ConvertReport> write_dcp(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const PlanPieces held, pieces_of(request.plan, state.model_text));
  TESSERA_TRY(std::vector<StatePart> parts, parts_of(state));
  // The optimizer has each parameter once, the module's state_dict also the copies.
  const std::vector<ArrayEntry> parameters = parts.front().arrays.entries;
  TESSERA_TRY(const std::vector<TensorView> tied, tied_views(state.model));
  std::vector<TensorView> views = parts.front().arrays.views;
  views.insert(views.end(), tied.begin(), tied.end());
  TESSERA_TRY(parts.front().arrays, huggingface_arrays(std::move(views), *state.tensors));
  std::vector<ArrayEntry> entries;
  decltype(dcp::Metadata::paths) paths;
  std::vector<size_t> firsts;
  for (const StatePart& part : parts) {
    firsts.push_back(entries.size());
    for (const ArrayEntry& entry : part.arrays.entries) {
      entries.push_back(entry);
      std::string& name = entries.back().name;
      if (part.adam == nullptr) {
        name = "model." + entry.name;
        paths[name] = {"model", entry.name};
      } else {
        name = fmt::format("optim.state.{}.{}", entry.name, part.adam->theirs);
        paths[name] = {"optim", "state", entry.name, part.adam->theirs};
      }
    }
  }
  const size_t steps = entries.size();
  if (state.has_optimizer) {
    for (const ArrayEntry& entry : parameters) {
      entries.push_back({fmt::format("optim.state.{}.step", entry.name), DType::kFloat32, {}});
      paths[entries.back().name] = {"optim", "state", entry.name, "step"};
    }
  }
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.to));
  TESSERA_TRY(dcp::DcpWriter writer, dcp::DcpWriter::create(folder, entries, held.ranks));
  for (size_t i = 0; i < parts.size(); ++i)
    TESSERA_TRY_VOID(write_arrays(parts[i].arrays, *parts[i].source, firsts[i], writer));
  const auto step = static_cast<float>(state.step.value_or(0));
  for (size_t i = steps; i < entries.size(); ++i) {
    TESSERA_TRY_VOID(writer.write(i, 0, sizeof step, reinterpret_cast<const std::byte*>(&step)));
  }
  std::map<std::string, PickleWriter> objects;
  const AddValue add = [&](const char* key, const std::function<void(PickleWriter&)>& write) {
    const std::string name = fmt::format("optim.param_groups.0.{}", key);
    write(objects[name]);
    paths[name] = {"optim", "param_groups", int64_t{0}, key};
  };
  if (state.has_optimizer) {
    add_group(group_numbers(state), add);
    add("params", [&](PickleWriter& out) {
      out.empty_list();
      out.mark();
      for (const ArrayEntry& entry : parameters) out.text(entry.name);
      out.append_all();
    });
  }
  TESSERA_TRY_VOID(writer.finish(std::move(objects), std::move(paths)));
  TESSERA_TRY_VOID(folder.commit());
  ConvertReport done;
  done.path = request.to;
  done.tensors = std::ssize(entries);
  done.bytes = writer.bytes();
  return done;
}

Result<ConvertReport> write_torch_dist(const TrainingState& state, const ConvertRequest& request) {
  TESSERA_TRY(const PlanPieces held, pieces_of(request.plan, state.model_text));
  TESSERA_TRY(const std::vector<StatePart> parts, parts_of(state));
  TESSERA_TRY(const MegatronTable table,
              padded_table(state, request, parts.front().arrays.views, held));
  std::map<std::string, size_t> boxes;
  for (size_t i = 0; i < table.boxes.size(); ++i) boxes[table.boxes[i].name] = i;
  std::vector<ArrayEntry> entries;
  std::map<std::string, size_t> others;
  for (const StatePart& part : parts) {
    const size_t first = entries.size();
    const std::string before =
        part.adam == nullptr ? "" : fmt::format("{}{}.", kMegatronState, part.adam->theirs);
    std::vector<std::optional<DType>> dtypes(table.arrays.size());
    for (const ArrayEntry& entry : part.arrays.entries) {
      const size_t array = table.boxes[boxes.at(entry.name)].array;
      std::optional<DType>& dtype = dtypes[array];
      if (dtype && *dtype != entry.dtype) {
        return invalid_input(fmt::format("{}: '{}': expected {} as of other parts of {}, found {}",
                                         part.source->where(), entry.name, dtype_name(*dtype),
                                         table.arrays[array].name, dtype_name(entry.dtype)));
      }
      dtype = entry.dtype;
    }
    for (size_t i = 0; i < table.arrays.size(); ++i) {
      const MegatronArray& array = table.arrays[i];
      entries.push_back({before + array.name, *dtypes[i], array.shape});
      // Optimizers with wide parameters find them in the parameters themselves.
      if (part.adam != nullptr || !state.has_optimizer) continue;
      for (const char* masters : kMegatronMasters) others[masters + array.name] = first + i;
    }
  }
  TESSERA_TRY(NewFolder folder, NewFolder::create(request.to));
  TESSERA_TRY(dcp::DcpWriter writer, dcp::DcpWriter::create(folder, entries, held.ranks));
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<size_t> numbers;
    for (const ArrayEntry& entry : parts[i].arrays.entries) numbers.push_back(boxes.at(entry.name));
    MegatronWriter to(table, std::move(numbers), entries, i * table.arrays.size(), writer);
    TESSERA_TRY_VOID(write_arrays(parts[i].arrays, *parts[i].source, 0, to));
  }
  TESSERA_TRY_VOID(writer.finish(extra_states(table), {}, others));
  TESSERA_TRY_VOID(write_file(folder.file("common.pt"), common_text(state)));
  TESSERA_TRY_VOID(write_file(folder.file("metadata.json"), kConfigText));
  TESSERA_TRY_VOID(folder.commit());
  ConvertReport done;
  done.path = request.to;
  done.tensors = std::ssize(entries);
  done.bytes = writer.bytes();
  if (state.has_optimizer && !state.samples) {
    done.notes.emplace_back(
        "it does not say how many samples the steps had, so that there is no opt_param_scheduler, "
        "which Megatron-LM's script asks for");
  }
  const int64_t own = state.model.vocab;
  bool said = false;
  for (const MegatronArray& array : table.arrays) {
    if (!array.padded || array.shape[0] == own || said) continue;
    said = true;
    done.notes.push_back(
        fmt::format("the vocabulary of {} is padded to {} by rows of zeros, which Megatron Core "
                    "counts in its softmax",
                    own, array.shape[0]));
  }
  return done;
}

}  // namespace tessera
