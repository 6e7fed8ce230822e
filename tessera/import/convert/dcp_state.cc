#include "tessera/import/convert/dcp_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/one_line.h"
#include "tessera/import/convert/megatron.h"
#include "tessera/import/convert/sources.h"
#include "tessera/import/dcp/source.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/huggingface/source.h"

namespace tessera {
namespace {

using Source = std::shared_ptr<dcp::DcpSource>;
using dcp::SavedValue;

// A folder's arrays under Hugging Face's names: functions that make a source of them.
using MakeSource = std::function<Result<std::unique_ptr<TensorSource>>()>;
struct Parts {
  MakeSource parameters;                     // null: the folder has none of the model's
  MakeSource weights;                        // if they differ: what computes, in a narrower dtype
  std::map<std::string, MakeSource> states;  // of AdamW, by PyTorch's name
  std::optional<int64_t> step, samples;
  std::vector<std::pair<std::string, std::vector<double>>> settings;
  std::optional<int64_t> vocabulary_rows;
  std::string unread_optimizer;
  std::vector<std::string> notes;
};

// ---- state_dicts of PyTorch

// Returns the names of Hugging Face's arrays of the model.
std::set<std::string> names_of(const std::vector<TensorView>& views) {
  std::set<std::string> names;
  for (const TensorView& view : views) names.insert(view.arrays.begin(), view.arrays.end());
  return names;
}

// Returns what stands before the names of the arrays that end so, for the most of the model's
// arrays; nothing if there is none. A state_dict may have the module's arrays under a name of its
// own, and the optimizer's under another: "model." + name, "optim.state." + name + ".exp_avg".
// Errors (invalid input): two prefixes have as many, so that nothing says which is meant.
Result<std::optional<std::string>> prefix_of(const TensorSource& source,
                                             const std::set<std::string>& names,
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
  if (best == counts.end()) return std::optional<std::string>();
  const auto other = std::find_if(counts.begin(), counts.end(), [&](const auto& one) {
    return one.second == best->second && one.first != best->first;
  });
  // A single name may be the end of another one of the same model.
  if (other != counts.end() && best->second == std::ssize(names)) {
    return invalid_input(
        fmt::format("{}: expected one set of arrays with the model's names{}, found one that "
                    "begins with '{}' and one "
                    "that begins with '{}'",
                    source.where(), end.empty() ? "" : fmt::format(" and '{}'", end),
                    short_line(best->first), short_line(other->first)));
  }
  return std::optional(best->first);
}

// Returns what is behind the names of the model's arrays in those of other arrays, and is no state
// that is read.
std::set<std::string> unread_states(const TensorSource& source, const std::set<std::string>& names,
                                    const std::vector<std::string>& read) {
  std::set<std::string> unread;
  for (const SourceArray& array : source.arrays()) {
    const size_t end = array.name.rfind('.');
    if (end == std::string::npos) continue;
    const std::string state = array.name.substr(end + 1);
    if (std::find(read.begin(), read.end(), state) != read.end()) continue;
    for (size_t at = 0; at < end;) {
      if (names.contains(array.name.substr(at, end - at))) unread.insert(state);
      at = array.name.find('.', at) + 1;
    }
  }
  return unread;
}

// Adds the settings of AdamW, and notes of those that are not read.
void add_settings(const dcp::DcpSource& source, Parts& parts) {
  const auto numbers = [&](const std::string& object) {
    const auto value = source.object(object);
    return value ? value->numbers({}) : std::vector<double>();
  };
  for (const AdamSetting& setting : adam_settings()) {
    std::set<std::vector<double>> values;
    for (const std::string& object : source.objects()) {
      if (!object.ends_with(fmt::format(".{}", setting.theirs))) continue;
      const std::vector<double> found = numbers(object);
      if (found.size() != setting.ours.size()) continue;
      if (values.empty()) parts.settings.emplace_back(setting.theirs, found);
      values.insert(found);
    }
    if (values.size() > 1) {
      parts.notes.push_back(fmt::format(
          "its groups of parameters have {} values of {}, of which one is kept: {}", values.size(),
          setting.theirs, fmt::join(parts.settings.back().second, ", ")));
    }
  }
  for (const std::string& object : source.objects()) {
    if (!object.ends_with(".maximize") || numbers(object) != std::vector<double>{1}) continue;
    parts.notes.emplace_back("its optimizer had maximize, which is not kept");
    break;
  }
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

Result<Parts> find_parts(const Source& source, const std::set<std::string>& names) {
  Parts parts;
  TESSERA_TRY(const auto begin, prefix_of(*source, names, ""));
  if (!begin) return parts;
  std::set<std::string> optimizer;
  std::vector<std::string> ends{"step"};
  for (const AdamState& adam : kAdamStates) ends.emplace_back(adam.theirs);
  for (const std::string& name : ends) {
    TESSERA_TRY(const auto found, prefix_of(*source, names, "." + name));
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
  add_settings(*source, parts);
  for (const std::string& state : unread_states(*source, names, ends)) {
    parts.notes.push_back(fmt::format(
        "it has '{}' of parameters, which is not kept: of an optimizer's states, AdamW's are",
        short_line(state)));
  }
  return parts;
}

// ---- Megatron Core

// Opens what a checkpoint says of its optimizer besides tensors, and adds the keys under which the
// optimizer lies there. Each form of the checkpoint has it in another place.
Result<SavedValue> open_optimizer(const Source& source, std::vector<std::string>& keys) {
  for (const std::string& name : source->objects()) {
    // Releases without common.pt have the first, the distributed optimizer in its older forms the
    // second.
    const bool common = name == "common_state/shard_0_1";
    if (!common && name != "optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1") continue;
    keys = {"0"};
    if (common) keys.emplace_back("optimizer");
    return source->object(name);
  }
  keys = {"optimizer"};
  TESSERA_TRY(const dcp::File file, dcp::File::open(source->where() + "/common.pt"));
  return SavedValue::open(file, 0, file.bytes());
}

// Returns a count, or nothing if the numbers are no such.
std::optional<int64_t> count_of(const std::vector<double>& numbers) {
  if (numbers.size() != 1 || !(numbers[0] >= 0 && numbers[0] < 1e15)) return std::nullopt;
  return static_cast<int64_t>(numbers[0]);
}

// Adds AdamW's steps and settings, which Megatron Core's optimizers keep under several keys.
void add_settings(const SavedValue& saved, const std::vector<std::string>& keys, Parts& parts) {
  const auto numbers = [&](const std::vector<std::string>& rest) {
    std::vector<double> found;
    // The optimizers that keep masters or divide their state contain another one.
    for (const bool inside : {false, true}) {
      std::vector<std::string> all = keys;
      if (inside) all.emplace_back("optimizer");
      all.insert(all.end(), rest.begin(), rest.end());
      if (found.empty()) found = saved.numbers(all);
    }
    return found;
  };
  std::vector<double> step = numbers({"state", "common_step"});
  if (step.empty()) step = numbers({"param_groups", "0", "step"});
  parts.step = count_of(step);
  // The schedule of Megatron-LM counts samples. It lies beside the optimizer.
  std::vector<std::string> schedule(keys.begin(), keys.end() - 1);
  schedule.insert(schedule.end(), {"opt_param_scheduler", "num_steps"});
  parts.samples = count_of(saved.numbers(schedule));
  // The group that weight decay applies to says the decay.
  const std::vector<double> first = numbers({"param_groups", "0", "wd_mult"});
  const char* group = first == std::vector<double>{0} ? "1" : "0";
  for (const AdamSetting& setting : adam_settings()) {
    const std::vector<double> found = numbers({"param_groups", group, setting.theirs});
    if (found.size() == setting.ours.size()) parts.settings.emplace_back(setting.theirs, found);
  }
}

// Says why AdamW's state cannot be read, if the distributed optimizer has saved it in a form that
// only its own ranks can divide. "": it has not.
std::string foreign_state(const Source& source) {
  const char* form = nullptr;
  for (const SourceArray& array : source->arrays()) {
    if (array.name.find(".gbuf_idx_") != std::string::npos) form = "dp_reshardable";
  }
  for (const std::string& name : source->objects()) {
    if (name.starts_with("optimizer.distributed.") && name.ends_with(".param_state/shard_0_1"))
      form = "dp_zero_gather_scatter";
  }
  if (form == nullptr) return "";
  return fmt::format(
      "{}: expected AdamW's state by parameters, found the form {} of the distributed optimizer, "
      "which only ranks like those that saved can divide: save with "
      "--dist-ckpt-optim-fully-reshardable",
      source->where(), form);
}

// Finds the parts in a checkpoint of Megatron Core, whose optimizer has the same arrays again.
Result<Parts> find_megatron_parts(const Source& source, const Model& model) {
  Parts parts;
  const std::optional<int64_t> rows = megatron_rows(*source, "");
  if (!rows || source->find(kMegatronName) == nullptr) return parts;
  parts.vocabulary_rows = rows;
  auto made = megatron_table(model, *rows);
  if (!made) {
    return invalid_input(fmt::format("{}: {}", source->where(), made.error().message));
  }
  const auto table = std::make_shared<const MegatronTable>(std::move(*made));
  const auto part = [&](const std::string& begin) -> MakeSource {
    if (source->find(begin + kMegatronName) == nullptr) return nullptr;
    return [source, table, begin] {
      return megatron_as_huggingface(part_of(source, begin, "", {}), *table);
    };
  };
  parts.parameters = part("");
  for (const char* masters : kMegatronMasters) {
    MakeSource wide = part(masters);
    if (wide && !parts.weights) parts.weights = std::exchange(parts.parameters, std::move(wide));
  }
  parts.unread_optimizer = foreign_state(source);
  for (const AdamState& adam : kAdamStates) {
    if (MakeSource state = part(fmt::format("{}{}.", kMegatronState, adam.theirs)))
      parts.states[adam.theirs] = std::move(state);
  }
  if (parts.states.empty()) return parts;
  std::vector<std::string> keys;
  const auto saved = open_optimizer(source, keys);
  if (!saved) {
    parts.unread_optimizer = saved.error().message;
    parts.states.clear();
  } else {
    add_settings(*saved, keys, parts);
  }
  return parts;
}

}  // namespace

Result<TrainingState> open_dcp_state(const std::string& path, const std::string& text) {
  if (text.empty()) {
    return invalid_input(fmt::format(
        "{}: expected --model, the model of the folder's tensors, as a config.json", path));
  }
  TrainingState state;
  state.model_text = text;
  TESSERA_TRY(state.model, build_model(text, 1));
  TESSERA_TRY(const std::vector<TensorView> views, huggingface_views(state.model));
  TESSERA_TRY(std::unique_ptr<dcp::DcpSource> opened, dcp::open_dcp(path));
  const Source source = std::move(opened);
  TESSERA_TRY(Parts parts, find_megatron_parts(source, state.model));
  state.format = parts.parameters ? "torch_dist" : "dcp";
  if (!parts.parameters) {
    TESSERA_TRY(parts, find_parts(source, names_of(views)));
  }
  if (!parts.parameters) {
    return invalid_input(fmt::format(
        "{}: expected the model's arrays, as '{}', found none of them among {} tensors: it is of "
        "another model",
        path, views.front().arrays.front(), source->arrays().size()));
  }
  const auto open = [&](const MakeSource& make, const std::string& where) {
    return make().and_then([&](std::unique_ptr<TensorSource> named) {
      return open_huggingface(std::move(named), where, state.model);
    });
  };
  TESSERA_TRY(state.theirs, parts.weights ? parts.weights() : parts.parameters());
  auto joined = std::make_unique<Joined>();
  TESSERA_TRY(std::unique_ptr<TensorSource> parameters, open(parts.parameters, path));
  joined->add(std::move(parameters), "");
  for (const AdamState& adam : kAdamStates) {
    const auto found = parts.states.find(adam.theirs);
    if (found == parts.states.end()) continue;
    TESSERA_TRY(std::unique_ptr<TensorSource> part,
                open(found->second, fmt::format("{}: {}", path, adam.theirs)));
    joined->add(std::move(part), adam.ours);
    state.has_optimizer = true;
  }
  state.step = parts.step;
  state.samples = parts.samples;
  if (state.has_optimizer && !state.step) {
    return invalid_input(fmt::format(
        "{}: expected the steps that AdamW has done beside its state (a tensor step for each "
        "parameter, or common_step in common.pt), found none",
        path));
  }
  state.settings = std::move(parts.settings);
  state.vocabulary_rows = parts.vocabulary_rows;
  state.unread_optimizer = std::move(parts.unread_optimizer);
  state.notes = std::move(parts.notes);
  state.tensors = std::move(joined);
  return state;
}

}  // namespace tessera
