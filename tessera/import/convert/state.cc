#include "tessera/import/convert/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/import/convert/megatron.h"
#include "tessera/import/dcp/saved.h"
#include "tessera/import/dcp/source.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/state/checkpoint.h"

namespace tessera {
namespace {

// Some arrays of a source under other names.
class Renamed : public TensorSource {
 public:
  explicit Renamed(std::shared_ptr<const TensorSource> from) : from_(std::move(from)) {}
  void add(std::string name, const SourceArray& array) {
    by_name_[name] = arrays_.size();
    arrays_.push_back({std::move(name), array.dtype, array.shape});
    originals_.push_back(&array);
  }
  std::string where() const override { return from_->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second];
  }
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    SourceArray original = *originals_[by_name_.find(array.name)->second];
    original.shape = array.shape;  // a caller may split dims
    return from_->read(original, region, dtype, out);
  }
  int64_t bytes_read() const override { return from_->bytes_read(); }

 private:
  std::shared_ptr<const TensorSource> from_;
  std::vector<SourceArray> arrays_;
  std::vector<const SourceArray*> originals_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Several sources as one. Their names must differ.
class Joined : public TensorSource {
 public:
  void add(std::shared_ptr<TensorSource> source, const std::string& prefix) {
    auto renamed = std::make_unique<Renamed>(source);
    for (const SourceArray& array : source->arrays()) renamed->add(prefix + array.name, array);
    for (const SourceArray& array : renamed->arrays()) {
      by_name_[array.name] = {sources_.size(), arrays_.size()};
      arrays_.push_back(array);
    }
    sources_.push_back(std::move(renamed));
  }
  std::string where() const override { return sources_.front()->where(); }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second.second];
  }
  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    const TensorSource& source = *sources_[by_name_.find(array.name)->second.first];
    return source.read(*source.find(array.name), region, dtype, out);
  }
  int64_t bytes_read() const override { return sources_.front()->bytes_read(); }

 private:
  std::vector<std::unique_ptr<TensorSource>> sources_;
  std::vector<SourceArray> arrays_;
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> by_name_;
};

// The keys of a run file that say what PyTorch's AdamW has as settings, by PyTorch's names.
struct Setting {
  const char* theirs;
  std::vector<const char*> ours;
};
const std::vector<Setting>& settings() {
  static const std::vector<Setting> all{{"lr", {"optimizer.lr"}},
                                        {"betas", {"optimizer.beta1", "optimizer.beta2"}},
                                        {"eps", {"optimizer.eps"}},
                                        {"weight_decay", {"optimizer.weight_decay"}}};
  return all;
}

// Returns the numbers of a run file that has one key a line, as checkpoints keep it.
std::map<std::string, double, std::less<>> numbers_of(const std::string& run) {
  std::map<std::string, double, std::less<>> out;
  std::string_view rest = run;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t equals = line.find(" = ");
    if (equals == std::string_view::npos) continue;
    if (const auto number = parse_double(line.substr(equals + 3)))
      out[std::string(line.substr(0, equals))] = *number;
  }
  return out;
}

// ---- folders of torch.distributed.checkpoint

// Returns the names of Hugging Face's arrays of the model.
std::set<std::string> names_of(const std::vector<TensorView>& views) {
  std::set<std::string> names;
  for (const TensorView& view : views) names.insert(view.arrays.begin(), view.arrays.end());
  return names;
}

// Returns what stands before the names of the arrays that end so, for the most of the model's
// arrays; nothing if there is none. A state_dict may have the module's arrays under a name of its
// own, and the optimizer's under another: "model." + name, "optim.state." + name + ".exp_avg".
std::optional<std::string> prefix_of(const TensorSource& source, const std::set<std::string>& names,
                                     std::string_view end) {
  std::map<std::string, int64_t> counts;
  for (const SourceArray& array : source.arrays()) {
    if (!array.name.ends_with(end)) continue;
    const std::string whole = array.name.substr(0, array.name.size() - end.size());
    // Each way to cut the name at a dot, or not at all.
    for (size_t at = 0; at != std::string::npos;) {
      if (names.contains(whole.substr(at))) ++counts[whole.substr(0, at)];
      at = whole.find('.', at);
      if (at != std::string::npos) ++at;
    }
  }
  const auto best =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second, b.first.size()) < std::pair(b.second, a.first.size());
      });
  return best == counts.end() ? std::nullopt : std::optional(best->first);
}

// Returns the arrays of a state_dict that begin and end so, under the names between, but for
// `not_these`.
std::unique_ptr<Renamed> part_of(const std::shared_ptr<const TensorSource>& source,
                                 const std::string& begin, const std::string& end,
                                 const std::set<std::string>& not_these) {
  auto part = std::make_unique<Renamed>(source);
  for (const SourceArray& array : source->arrays()) {
    if (!array.name.starts_with(begin) || !array.name.ends_with(end) ||
        array.name.size() < begin.size() + end.size() || not_these.contains(array.name))
      continue;
    part->add(array.name.substr(begin.size(), array.name.size() - begin.size() - end.size()),
              array);
  }
  return part;
}

// Returns the steps done, which PyTorch keeps for each parameter.
Result<std::optional<int64_t>> steps_of(const TensorSource& source, const std::string& begin,
                                        const std::set<std::string>& names) {
  std::optional<int64_t> steps;
  for (const std::string& name : names) {
    const SourceArray* array = source.find(begin + name + ".step");
    if (array == nullptr || !array->shape.empty()) continue;
    double value = 0;
    TESSERA_TRY_VOID(
        source.read(*array, Box::whole({}), DType::kFloat64, reinterpret_cast<std::byte*>(&value)));
    if (!(value >= 0 && value < 1e15) ||
        value != static_cast<double>(static_cast<int64_t>(value)) ||
        (steps && *steps != static_cast<int64_t>(value))) {
      return invalid_input(
          fmt::format("{}: '{}': expected the same whole number of steps for all parameters, "
                      "found {}{}",
                      source.where(), short_line(array->name), value,
                      steps ? fmt::format(" after {}", *steps) : ""));
    }
    steps = static_cast<int64_t>(value);
  }
  return steps;
}

// A folder's arrays under Hugging Face's names: functions that make a source of them.
using MakeSource = std::function<Result<std::unique_ptr<TensorSource>>()>;
struct Parts {
  MakeSource parameters;                     // null: the folder has none of the model's
  std::map<std::string, MakeSource> states;  // of AdamW, by PyTorch's name
  std::optional<int64_t> step;
};

// Finds the parts in a checkpoint of Megatron Core, whose optimizer has the same arrays again.
Parts find_megatron_parts(const std::shared_ptr<dcp::DcpSource>& source, const Model& model) {
  Parts parts;
  const auto part = [&](const std::string& begin) -> MakeSource {
    if (source->find(begin + kMegatronName) == nullptr) return nullptr;
    return [source, model, begin] {
      return megatron_as_huggingface(part_of(source, begin, "", {}), model);
    };
  };
  parts.parameters = part("");
  for (const AdamState& adam : kAdamStates) {
    if (MakeSource state = part(fmt::format("optimizer.state.{}.", adam.theirs)))
      parts.states[adam.theirs] = std::move(state);
  }
  if (const auto common = dcp::File::open(source->where() + "/common.pt")) {
    const auto step = dcp::saved_number(*common, {"optimizer", "state", "common_step"});
    if (step && *step >= 0 && *step < 1e15) parts.step = static_cast<int64_t>(*step);
  }
  return parts;
}

Result<Parts> find_parts(const std::shared_ptr<dcp::DcpSource>& source, const Model& model,
                         const std::set<std::string>& names) {
  Parts parts = find_megatron_parts(source, model);
  if (parts.parameters) return parts;
  const auto begin = prefix_of(*source, names, "");
  if (!begin) return parts;
  std::set<std::string> optimizer;
  std::vector<std::string> ends{"step"};
  for (const AdamState& adam : kAdamStates) ends.emplace_back(adam.theirs);
  for (const std::string& name : ends) {
    const auto found = prefix_of(*source, names, "." + name);
    if (!found) continue;
    for (const SourceArray& array : source->arrays()) {
      if (array.name.starts_with(*found) && array.name.ends_with("." + name))
        optimizer.insert(array.name);
    }
    if (name == "step") {
      TESSERA_TRY(parts.step, steps_of(*source, *found, names));
      continue;
    }
    parts.states[name] = [source, found, name]() -> Result<std::unique_ptr<TensorSource>> {
      return part_of(source, *found, "." + name, {});
    };
  }
  parts.parameters = [source, begin, optimizer]() -> Result<std::unique_ptr<TensorSource>> {
    return part_of(source, *begin, "", optimizer);
  };
  return parts;
}

Result<TrainingState> open_dcp_state(const std::string& path, const std::string& text) {
  if (text.empty()) {
    return invalid_input(fmt::format(
        "{}: expected --model, the model of the folder's tensors, as a config.json", path));
  }
  TrainingState state;
  state.format = "dcp";
  state.model_text = text;
  TESSERA_TRY(state.model, build_model(text, 1));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(state.model));
  TESSERA_TRY(std::unique_ptr<dcp::DcpSource> opened, dcp::open_dcp(path));
  const std::shared_ptr<dcp::DcpSource> source = std::move(opened);
  const std::set<std::string> names = names_of(views);
  TESSERA_TRY(const Parts parts, find_parts(source, state.model, names));
  if (!parts.parameters) {
    return invalid_input(fmt::format(
        "{}: expected the model's arrays, as '{}', found none of them among {} tensors: it is of "
        "another model",
        path, views.front().arrays.front(), source->arrays().size()));
  }
  TESSERA_TRY(state.theirs, parts.parameters());
  auto joined = std::make_unique<Joined>();
  TESSERA_TRY(std::unique_ptr<TensorSource> named, parts.parameters());
  TESSERA_TRY(std::unique_ptr<TensorSource> parameters,
              open_huggingface(std::move(named), path, state.model));
  joined->add(std::move(parameters), "");
  for (const AdamState& adam : kAdamStates) {
    const auto found = parts.states.find(adam.theirs);
    if (found == parts.states.end()) continue;
    TESSERA_TRY(named, found->second());
    TESSERA_TRY(
        std::unique_ptr<TensorSource> part,
        open_huggingface(std::move(named), fmt::format("{}: {}", path, adam.theirs), state.model));
    joined->add(std::move(part), adam.ours);
    state.has_optimizer = true;
  }
  state.step = parts.step;
  if (state.has_optimizer && !state.step) {
    return invalid_input(fmt::format(
        "{}: expected the steps that AdamW has done beside its state (a tensor step for each "
        "parameter, or common_step in common.pt), found none that can be read",
        path));
  }
  for (const Setting& setting : settings()) {
    for (const std::string& object : source->objects()) {
      if (!object.ends_with(fmt::format(".{}", setting.theirs))) continue;
      const std::vector<double> values = source->numbers(object);
      if (values.size() == setting.ours.size()) state.settings.emplace_back(setting.theirs, values);
      break;
    }
  }
  state.tensors = std::move(joined);
  return state;
}

// ---- the others

Result<TrainingState> open_checkpoint_state(const std::string& path, const std::string& text) {
  TESSERA_TRY(auto source, open_checkpoint(path, /*compares=*/true));
  TrainingState state;
  state.format = "tessera";
  state.model_text = text.empty() ? source->manifest().model : text;
  TESSERA_TRY(state.model, build_model(state.model_text, 1));
  state.step = source->manifest().step;
  state.seed = source->manifest().seed;
  for (const SourceArray& array : source->arrays()) {
    state.has_optimizer = state.has_optimizer || array.name.starts_with(kAdamStates[0].ours);
  }
  const auto numbers = numbers_of(source->manifest().run);
  for (const Setting& setting : settings()) {
    std::vector<double> values;
    for (const char* key : setting.ours) {
      if (const auto found = numbers.find(key); found != numbers.end())
        values.push_back(found->second);
    }
    if (values.size() == setting.ours.size()) state.settings.emplace_back(setting.theirs, values);
  }
  state.tensors = std::move(source);
  return state;
}

Result<TrainingState> open_huggingface_state(const std::string& path, const std::string& text) {
  TrainingState state;
  state.format = "hf";
  state.model_text = text.empty() ? path : text;
  TESSERA_TRY(state.model, build_model(state.model_text, 1));
  TESSERA_TRY(state.tensors, open_huggingface(path, state.model));
  TESSERA_TRY(state.theirs, open_safetensors(huggingface_weights(path)));
  return state;
}

}  // namespace

std::string run_of(const TrainingState& state) {
  std::string text;
  for (const Setting& setting : settings()) {
    for (const auto& [name, values] : state.settings) {
      if (name != setting.theirs) continue;
      for (size_t i = 0; i < values.size(); ++i)
        text += fmt::format("{} = {}\n", setting.ours[i], values[i]);
    }
  }
  return text;
}

Result<TrainingState> open_state(const std::string& path, const std::string& model) {
  if (dcp::is_dcp(path)) return open_dcp_state(path, model);
  if (is_checkpoint(path)) return open_checkpoint_state(path, model);
  FileSystem disk;
  TESSERA_TRY(const std::vector<CheckpointFolder> found, checkpoints_in(disk, path));
  if (!found.empty()) return open_checkpoint_state(found.back().path, model);
  if (is_huggingface_folder(path)) return open_huggingface_state(path, model);
  return invalid_input(fmt::format(
      "{}: expected a folder of torch.distributed.checkpoint (.metadata), a checkpoint of Tessera, "
      "or a Hugging Face folder, found none",
      path));
}

}  // namespace tessera
