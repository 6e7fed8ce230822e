#include "tessera/models/planning_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/models/huggingface/huggingface.h"
#include "tessera/models/model.h"

namespace tessera {
namespace {

bool has_key(const ModelArguments& arguments, std::string_view key) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const auto& argument) { return argument.first == key; });
}

// Returns the keys as text, each once with its last value, in the order of their first values.
std::string spec_text(const std::string& family, const ModelArguments& arguments) {
  ModelArguments last;
  for (const auto& [key, value] : arguments) {
    const auto known = std::find_if(last.begin(), last.end(),
                                    [&name = key](const auto& one) { return one.first == name; });
    if (known != last.end()) {
      known->second = value;
    } else {
      last.emplace_back(key, value);
    }
  }
  std::string text = family;
  for (const auto& [key, value] : last)
    text += fmt::format("{}{}={}", text == family ? ":" : ",", key, value);
  return text;
}

std::string with_commas(int64_t value) {
  std::string text = fmt::format("{}", value);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

// Checks that the sizes of a file go together, so that the error names the file. A model of one layer
// is built; only if that fails, the whole one.
Status check_sizes(const std::string& spec, const std::string& file) {
  if (build_model(spec + ",layers=1", 1)) return {};
  const auto model = build_model(spec, 1);
  if (model) return {};
  return invalid_input(fmt::format("{}: {}", file, model.error().message));
}

}  // namespace

Result<PlanningModel> read_for_planning(std::string_view text) {
  PlanningModel out{std::string(text), ""};
  const auto named = resolve_model(text);
  if (!named || named->kind != ModelName::Kind::kConfig) return out;
  out.file = named->path;
  TESSERA_TRY(const std::string json, read_file(out.file));
  TESSERA_TRY(HuggingFaceModel file, parse_huggingface_config(json, out.file));
  ModelArguments changes;
  if (!named->changes.empty()) {
    TESSERA_TRY(Call call, parse_call(file.family + named->changes));
    changes = std::move(call.arguments);
  }
  out.approximations = std::move(file.approximations);
  out.remarks = remarks_of(file, changes);
  out.stored_dtype = file.stored_dtype;
  for (const HuggingFaceModel::PlannedKey& planned : file.planned) {
    if (has_key(changes, planned.key)) continue;
    file.arguments.emplace_back(planned.key, planned.value);
    out.approximations.push_back(planned.sentence);
  }
  if (!has_key(changes, "seq")) {
    for (const auto& [key, value] : file.arguments)
      if (key == "seq") out.file_seq = parse_int(value).value_or(0);
  }
  file.arguments.insert(file.arguments.end(), changes.begin(), changes.end());
  out.spec = spec_text(file.family, file.arguments);
  TESSERA_TRY_VOID(check_sizes(out.spec, out.file));
  return out;
}

std::vector<std::string> lines_of(const PlanningModel& model) {
  std::vector<std::string> lines;
  for (const std::string& sentence : model.approximations)
    lines.push_back("approximate: " + sentence);
  for (const std::string& sentence : model.remarks) lines.push_back("note: " + sentence);
  if (model.file_seq > kLongSequence) {
    const size_t slash = model.file.rfind('/');
    lines.push_back(fmt::format(
        "sequence length {} from {}; say :seq=4096 for shorter ones", with_commas(model.file_seq),
        slash == std::string::npos ? model.file : model.file.substr(slash + 1)));
  }
  return lines;
}

Result<std::optional<DType>> stored_dtype(std::string_view text) {
  TESSERA_TRY(const PlanningModel model, read_for_planning(text));
  return model.stored_dtype;
}

}  // namespace tessera
