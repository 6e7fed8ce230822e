#include "tessera/models/huggingface/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/models/huggingface/huggingface_defaults.h"

namespace tessera::huggingface {

json number(const std::string& text) { return json::parse(text, nullptr, false); }
const std::string& of(const Keys& keys, std::string_view key) { return keys.find(key)->second; }
double real_of(const Keys& keys, std::string_view key) {
  return number(of(keys, key)).get<double>();
}

ConfigRow must_be(std::string theirs, const Texts& values, std::string otherwise) {
  ConfigRow row{std::move(theirs), "", std::move(otherwise)};
  for (const std::string& value : values) row.values.emplace_back(value, "");
  return row;
}
ConfigRow same(std::string theirs, std::string ours, std::string otherwise) {
  return {std::move(theirs), std::move(ours), std::move(otherwise)};
}
ConfigRow same_or_null(std::string theirs, std::string ours, std::string otherwise) {
  return {std::move(theirs), std::move(ours), std::move(otherwise), true};
}
ConfigRow real(std::string theirs, std::string ours) {
  return {std::move(theirs), std::move(ours), "", false, {}, Written::kReal};
}
ConfigRow boolean(std::string theirs, std::string ours) {
  return {std::move(theirs), std::move(ours), "", false, {}, Written::kBoolean};
}
ConfigRow implied(std::string ours, std::string value) {
  return {"", std::move(ours), std::move(value)};
}
ConfigRow activation(std::string theirs) {
  return {std::move(theirs),
          "",
          "",
          false,
          {{"\"gelu_new\"", "activation=gelu"},
           {"\"gelu_pytorch_tanh\"", "activation=gelu"},
           {"\"gelu\"", "activation=gelu_erf"},
           {"\"relu\"", "activation=relu"},
           {"\"relu2\"", "activation=relu2"},
           {"\"silu\"", "activation=silu"},
           {"\"swish\"", "activation=silu"}}};
}
ConfigRow near(std::string theirs, const Texts& values, std::string sentence,
               std::string otherwise) {
  ConfigRow row = must_be(std::move(theirs), values, std::move(otherwise));
  row.near = std::move(sentence);
  return row;
}
ConfigRow always_near(std::string sentence) {
  ConfigRow row;
  row.near = std::move(sentence);
  return row;
}
std::vector<ConfigRow> with(std::vector<ConfigRow> rows, const std::vector<ConfigRow>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

const json& defaults_of(const std::string& type) {
  static const json all = json::parse(huggingface_defaults());
  return all[type];
}

ConfigReader::ConfigReader(const json& config, const std::string& type, std::string_view file)
    : config_(config), defaults_(defaults_of(type)), file_(file) {}

const json* ConfigReader::given(const std::string& key) {
  asked_.insert(key);
  for (const auto& [other, name] : defaults_[kOtherNames].items()) {
    if (name == key && config_.contains(other)) return &config_[other];
  }
  const auto at = config_.find(key);
  return at == config_.end() ? nullptr : &*at;
}

json ConfigReader::value(const std::string& key, const std::string& otherwise) {
  if (const json* found = given(key)) return *found;
  if (const auto at = defaults_.find(key); at != defaults_.end()) return *at;
  TESSERA_CHECK(!otherwise.empty(), "no default of {}", key);
  return json::parse(otherwise);
}

void ConfigReader::read(const ConfigRow& row) {
  if (row.theirs.empty() && row.ours.empty()) {
    approximate(row.near);
  } else if (row.theirs.empty()) {
    if (!row.otherwise.starts_with('=')) add(row.ours, row.otherwise);
  } else if (row.values.empty()) {
    const json found = value(row.theirs, row.otherwise);
    if (found.is_null() && row.may_be_null) return;
    const bool flag = row.written == Written::kBoolean;
    add(row.ours, flag ? flag_of(row.theirs, found) : text_of(row.theirs, found));
  } else {
    translate(row, value(row.theirs, row.otherwise));
  }
}

void ConfigReader::translate(const ConfigRow& row, const json& found) {
  Texts known;
  for (const auto& [theirs, ours] : row.values) {
    known.push_back(theirs);
    if (json::parse(theirs) != found) continue;
    for (const std::string& assignment : split_text(ours, ',')) {
      const size_t equals = assignment.find('=');
      if (equals != std::string::npos)
        add(assignment.substr(0, equals), assignment.substr(equals + 1));
    }
    return;
  }
  if (row.near.empty()) return unsupported(row.theirs, found, join(known, ", "));
  std::string sentence = row.near;
  const size_t at = sentence.find("{}");
  approximate(at == std::string::npos ? sentence : sentence.replace(at, 2, shown(found)));
}

void ConfigReader::add(const std::string& key, const std::string& value) {
  for (auto& [name, said] : model_.arguments) {
    if (name == key) {
      said = value;
      return;
    }
  }
  model_.arguments.emplace_back(key, value);
}

void ConfigReader::add_for_planning(const std::string& key, const std::string& value,
                                    std::string sentence) {
  model_.planned.push_back({key, value, std::move(sentence)});
}

void ConfigReader::approximate(std::string sentence) {
  Texts& all = model_.approximations;
  if (std::find(all.begin(), all.end(), sentence) == all.end()) all.push_back(std::move(sentence));
}

void ConfigReader::remark(std::string sentence, std::string unless) {
  model_.remarks.push_back({std::move(sentence), std::move(unless)});
}

std::string ConfigReader::get(std::string_view key) const {
  std::string found;
  for (const auto& [name, value] : model_.arguments) {
    if (name == key) found = value;
  }
  return found;
}

int64_t ConfigReader::count(std::string_view key) const {
  const auto value = parse_int(get(key));
  return value && *value >= 1 && *value <= kMaxModelSize ? *value : 0;
}

void ConfigReader::fail(const std::string& message) {
  if (error_.empty()) error_ = fmt::format("{}: {}", file_, short_line(message));
}

void ConfigReader::unsupported(const std::string& key, const json& found, std::string_view known) {
  fail(fmt::format("{} {} is not supported (supported: {})", key, shown(found), known));
}

void ConfigReader::name_unknown(const json& object, const std::string& inside, const Texts& known) {
  static const json passed_over = json::parse(huggingface_passed_over());
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || key.starts_with('_')) continue;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto harmless = inside.empty() ? passed_over.find(key) : passed_over.end();
    if (harmless != passed_over.end() &&
        (harmless->empty() ||
         std::find(harmless->begin(), harmless->end(), value) != harmless->end()))
      continue;
    approximate(fmt::format("the key {}{} = {} is unknown and not read (nearest: {})", inside,
                            short_line(key, 40), shown(value), nearest(key, known)));
  }
}

Result<HuggingFaceModel> ConfigReader::finish(const ModelType& type) {
  Texts known(asked_.begin(), asked_.end());
  for (const auto* names : {&defaults_, &defaults_[kOtherNames]})
    for (const auto& [key, value] : names->items()) known.push_back(key);
  name_unknown(config_, "", known);
  if (!error_.empty()) return invalid_input(error_);
  model_.type = type.name;
  model_.family = type.family;
  return std::move(model_);
}

std::string ConfigReader::text_of(const std::string& name, const json& value) {
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) return fmt::format("{}", value.get<double>());
  fail(fmt::format("{} must be a number, found {}", name, shown(value)));
  return "0";
}

std::string ConfigReader::flag_of(const std::string& name, const json& value) {
  if (value == true || value == 1) return "1";
  if (value == false || value == 0) return "0";
  fail(fmt::format("{} must be a boolean, found {}", name, shown(value)));
  return "0";
}

}  // namespace tessera::huggingface
