#include "tessera/models/huggingface/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/models/families.h"
#include "tessera/models/huggingface/rows.h"

namespace tessera {

const std::vector<huggingface::ModelType>& huggingface::model_types() {
  static const std::vector<ModelType> types = [] {
    std::vector<ModelType> all = gpts();
    for (auto& some : {decoders(), encoders(), recent_decoders(), planned_decoders()})
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }();
  return types;
}

namespace {

using namespace huggingface;

// ---- writing

// Returns our keys that do not change the function of a trained model.
const std::set<std::string, std::less<>>& keys_of_use() {
  static const std::set<std::string, std::less<>> keys = {
      "dtype",        "eod", "dropout", "attention_dropout", "masked", "capacity_factor",
      "weigh_inside", "seq", "source"};
  return keys;
}

bool holds(const Keys& keys, const std::string& assignments) {
  for (const std::string& assignment : split_text(assignments, ',')) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) continue;
    const auto key = keys.find(assignment.substr(0, equals));
    if (key == keys.end() || key->second != assignment.substr(equals + 1)) return false;
  }
  return true;
}

// Returns the JSON value by which their file expresses a value of ours.
json their_value(const ConfigRow& row, const std::string& value) {
  switch (row.written) {
    case Written::kInteger: return number(value);
    case Written::kReal: return number(value).get<double>();
    case Written::kBoolean: return value == "1";
  }
  return nullptr;
}

// Writes the key of a row to `out`, and adds our keys that the row covers to `said`. Returns "" if
// the row can express our values, else what would be needed.
std::string write_row(const ConfigRow& row, const Keys& keys, OrderedJson& out,
                      std::set<std::string>& said) {
  if (row.values.empty()) {
    said.insert(row.ours);
    const std::string& value = of(keys, row.ours);
    if (!row.theirs.empty()) {
      if (!out.contains(row.theirs)) out[row.theirs] = their_value(row, value);
      return "";
    }
    const bool other = row.otherwise.starts_with('=');
    const std::string expected = other ? of(keys, row.otherwise.substr(1)) : row.otherwise;
    return value == expected ? "" : fmt::format("{}={}, found {}", row.ours, expected, value);
  }
  for (const auto& [theirs, ours] : row.values) {
    for (const std::string& assignment : split_text(ours, ','))
      said.insert(assignment.substr(0, assignment.find('=')));
    if (!holds(keys, ours)) continue;
    // A key need not be written if the type's class lacks it and its value is the only allowed one.
    if (!ours.empty() || row.otherwise.empty()) out[row.theirs] = json::parse(theirs);
    return "";
  }
  std::string spoken;
  for (const std::string& assignment : split_text(row.values.front().second, ',')) {
    const std::string key = assignment.substr(0, assignment.find('='));
    spoken += fmt::format("{}{}={}", spoken.empty() ? "" : ",", key, of(keys, key));
  }
  return fmt::format("a {} for {}, found none", row.theirs, spoken);
}

// Writes the keys to `out`. Returns "" if the type can express them, else why not.
std::string write_type(const ModelType& type, const Keys& keys, OrderedJson& out) {
  out["architectures"] = {type.architecture};
  out["model_type"] = type.name;
  std::set<std::string> said(type.own.begin(), type.own.end());
  for (const ConfigRow& row : type.rows) {
    if (std::string why = write_row(row, keys, out, said); !why.empty()) return why;
  }
  for (const ModelKeyText& key : find_family(type.family)->keys) {
    const std::string& value = of(keys, key.name);
    const bool covered = said.contains(key.name) || keys_of_use().contains(key.name) ||
                         (said.contains("rope_scaling") && rotary_says(keys, key.name));
    if (value != key.value && !covered)
      return fmt::format("{}={}, found {}", key.name, key.value, value);
  }
  if (type.write != nullptr) {
    if (std::string why = type.write(keys, out); !why.empty()) return why;
  }
  if (type.spell != nullptr) type.spell(keys, out);
  if (!type.also.is_null()) out.update(type.also);
  return "";
}

// Sets the key of theirs that expresses this key of ours. Returns false if there is none.
bool set_key(const ModelType& type, const std::string& key, const std::string& value,
             OrderedJson& out) {
  const std::string said = fmt::format("{}={}", key, value);
  for (const ConfigRow& row : type.rows) {
    if (row.theirs.empty()) continue;
    if (row.ours == key) return out[row.theirs] = their_value(row, value), true;
    for (const auto& [theirs, ours] : row.values) {
      if (ours != said) continue;
      out[row.theirs] = json::parse(theirs);
      return true;
    }
  }
  return false;
}

tl::unexpected<Error> no_object(std::string_view file) {
  return invalid_input(
      fmt::format("{}: expected a JSON object (a Hugging Face config.json)", file));
}

// Returns the model type that the file names, or null if it is none of the types that can be read.
template <class Json>
const ModelType* type_of(const Json& config) {
  const auto at = config.find("model_type");
  for (const ModelType& type : model_types()) {
    if (at != config.end() && *at == type.name) return &type;
  }
  return nullptr;
}

// Returns the text in which infinite numbers, which Python writes as the bare word Infinity though
// JSON has no such numbers, are written as transformers 5 writes them.
std::string with_infinities(std::string_view text) {
  static const std::regex kInfinity(R"(([\s,:\[])Infinity(?=\s*[,\]}]))");
  if (text.find("Infinity") == std::string_view::npos) return std::string(text);
  return std::regex_replace(std::string(text), kInfinity, R"($1{"__float__": "Infinity"})");
}

// Returns the configuration of the language model: that in text_config, if the file has one and is
// itself of no type of the table, else the file. Keys that the file states for the whole model count
// there too.
template <class Json>
Json language_model(const Json& config) {
  const auto inner = config.find("text_config");
  if (type_of(config) != nullptr || inner == config.end() || !inner->is_object()) return config;
  Json out = *inner;
  for (const char* key : {"tie_word_embeddings", "dtype", "torch_dtype"})
    if (config.contains(key) && !out.contains(key)) out[key] = config[key];
  if (const ModelType* type = type_of(out)) out["architectures"] = {type->architecture};
  return out;
}

// Returns the language model of a text in the order of its keys, or none if the text is no such object.
std::optional<OrderedJson> ordered_language_model(std::string_view text) {
  const auto parsed = parse_ordered_json(with_infinities(text));
  if (!parsed || !parsed->is_object()) return std::nullopt;
  OrderedJson model = language_model(*parsed);
  if (type_of(model) == nullptr) return std::nullopt;
  return model;
}

// Returns ", not vision_config" for a file with such a part beside its language model, or "".
std::string other_parts(const json& config) {
  Texts names;
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_config") && key != "text_config" && key != "quantization_config")
      names.push_back(short_line(key, 40));
  }
  return names.empty() ? "" : ", not " + join(names, ", ");
}

// Returns the dtype that a file gives its weights. A run computes in no others than these.
std::optional<DType> dtype_of(const json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto at = config.find(key);
    if (at == config.end() || !at->is_string()) continue;
    const auto dtype = parse_dtype(at->get<std::string>());
    if (dtype && is_floating(*dtype)) return *dtype;
  }
  return std::nullopt;
}

void read_all(const ModelType& type, ConfigReader& reader) {
  for (const ConfigRow& row : type.rows) reader.read(row);
  if (type.read != nullptr) type.read(reader);
}

Result<Keys> keys_of(std::string_view text, std::string_view file) {
  TESSERA_TRY(HuggingFaceModel model, parse_huggingface_config(text, file));
  Keys keys;
  for (auto& [key, value] : model.arguments) keys[key] = std::move(value);
  return keys;
}

}  // namespace

std::vector<std::string> huggingface_model_types() {
  std::vector<std::string> names;
  for (const ModelType& type : model_types()) names.push_back(type.name);
  return names;
}

std::vector<std::string> huggingface_written_types() {
  std::vector<std::string> names;
  for (const ModelType& type : model_types())
    if (!type.architecture.empty()) names.push_back(type.name);
  return names;
}

std::vector<std::string> huggingface_keys(const std::string& model_type) {
  const json config = {{"model_type", model_type}};
  const ModelType* type = type_of(config);
  TESSERA_CHECK(type != nullptr, "model type {}", model_type);
  ConfigReader reader(config, type->name, "");
  read_all(*type, reader);
  return {reader.asked().begin(), reader.asked().end()};
}

Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file) {
  const std::optional<json> parsed = parse_json(with_infinities(text));
  if (!parsed || !parsed->is_object()) return no_object(file);
  const json config = language_model(*parsed);
  const ModelType* type = type_of(config);
  if (type == nullptr) {
    const auto at = parsed->find("model_type");
    const std::vector<std::string> known = huggingface_model_types();
    const auto inner = parsed->find("text_config");
    if (inner != parsed->end() && inner->is_object() && !inner->contains("model_type")) {
      return invalid_input(
          fmt::format("{}: text_config: expected the key model_type with one of {}, found none",
                      file, join(known, ", ")));
    }
    if (at == parsed->end() || !at->is_string()) {
      return invalid_input(fmt::format("{}: expected the key model_type with one of {}, found {}",
                                       file, join(known, ", "),
                                       at == parsed->end() ? "none" : "no text"));
    }
    const std::string name = short_line(at->get<std::string>(), 60);
    return invalid_input(
        fmt::format("{}: model_type '{}' is not supported, the nearest is '{}' (supported: {})",
                    file, name, nearest(name, known), join(known, ", ")));
  }
  ConfigReader reader(config, type->name, file);
  if (config != *parsed) {
    reader.remark(
        fmt::format("only the language model of text_config is read{}", other_parts(*parsed)));
  }
  read_all(*type, reader);
  TESSERA_TRY(HuggingFaceModel model, reader.finish(*type));
  model.stored_dtype = dtype_of(config);
  return model;
}

std::vector<std::string> remarks_of(const HuggingFaceModel& model, const ModelArguments& changes) {
  std::vector<std::string> sentences;
  for (const auto& [sentence, unless] : model.remarks) {
    const bool set = std::any_of(changes.begin(), changes.end(),
                                 [&](const auto& change) { return change.first == unless; });
    if (!set) sentences.push_back(sentence);
  }
  return sentences;
}

Status check_exact(const HuggingFaceModel& model, std::string_view file) {
  if (model.approximations.empty()) return {};
  return invalid_input(fmt::format(
      "{}: expected a model that can be computed exactly, found one that is approximated: {} "
      "(planning takes it: inspect, simulate, plan, report, export of plans)",
      file, join(model.approximations, "; ")));
}

Result<std::string> language_model_config(std::string_view text, std::string_view file) {
  const auto model = ordered_language_model(text);
  if (!model) return no_object(file);
  return *model == parse_ordered_json(with_infinities(text)) ? std::string(text)
                                                             : model->dump(2) + "\n";
}

Result<std::string> change_huggingface_config(std::string_view text, std::string_view file,
                                              const ModelArguments& changes) {
  TESSERA_TRY(Keys wanted, keys_of(text, file));
  for (const auto& [key, value] : changes) wanted[key] = value;
  auto parsed = ordered_language_model(text);
  if (!parsed) return no_object(file);
  const ModelType* type = type_of(*parsed);
  ModelArguments next = changes;  // in later passes: keys whose values changed as a result
  for (int pass = 0; pass < 3 && !next.empty(); ++pass) {
    for (const auto& [key, value] : next) {
      if (!set_key(*type, key, value, *parsed)) break;
    }
    next.clear();
    TESSERA_TRY(const Keys found, keys_of(parsed->dump(), file));
    for (const auto& [key, value] : wanted) {
      const auto at = found.find(key);
      if (at == found.end() || at->second != value) next.emplace_back(key, value);
    }
  }
  if (!next.empty()) {
    return invalid_input(fmt::format("{}: expected keys that can say {}={}, found none", file,
                                     next.front().first, next.front().second));
  }
  return parsed->dump(2) + "\n";
}

Result<std::string> spell_huggingface_config(std::string_view text, std::string_view file,
                                             std::string_view spec, DType dtype) {
  TESSERA_TRY(const Call call, parse_call(spec));
  const Keys keys(call.arguments.begin(), call.arguments.end());
  TESSERA_TRY(const std::string alone, language_model_config(text, file));
  const auto parsed = ordered_language_model(alone);
  if (!parsed) return no_object(file);
  const ModelType* type = type_of(*parsed);
  OrderedJson out = *parsed;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (out.contains(key)) out[key] = dtype_name(dtype);
  }
  // One version of transformers may know only the first name, so both are written.
  for (const auto& [other, name] : defaults_of(type->name)[kOtherNames].items())
    if (out.contains(other)) out[name.get<std::string>()] = out[other];
  if (type->spell != nullptr) type->spell(keys, out);
  return out == *parsed ? alone : out.dump(2) + "\n";
}

Result<std::string> huggingface_config(std::string_view spec, DType dtype,
                                       std::string_view preferred) {
  TESSERA_TRY(const Call call, parse_call(spec));
  const Keys keys(call.arguments.begin(), call.arguments.end());
  std::vector<const ModelType*> types;
  for (const ModelType& type : model_types())
    if (type.family == call.name && !type.architecture.empty()) types.push_back(&type);
  std::stable_partition(types.begin(), types.end(),
                        [&](const ModelType* type) { return type->name == preferred; });
  Texts reasons;
  for (const ModelType* each : types) {
    const ModelType& type = *each;
    OrderedJson out;
    const std::string why = write_type(type, keys, out);
    if (why.empty()) {
      out["dtype"] = dtype_name(dtype);
      return out.dump(2) + "\n";
    }
    reasons.push_back(fmt::format("{} has {}", type.name, why));
  }
  if (reasons.empty()) {
    return invalid_input(
        fmt::format("model '{}': expected a family of one of Hugging Face's model types {}",
                    call.name, join(huggingface_written_types(), ", ")));
  }
  return invalid_input(fmt::format("model '{}': expected what a model type of Hugging Face has: {}",
                                   call.name, join(reasons, "; ")));
}

}  // namespace tessera
